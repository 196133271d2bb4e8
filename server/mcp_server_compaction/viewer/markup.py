"""Texts of a transcript as HTML: all of it escaped, whatever it contains.

Every function here returns `Markup` that Pygments, markdown-it (with HTML off) or `escape` made.
Nothing links to another place by itself, nothing is loaded, and no attribute contains transcript
text, but for links that show where they lead.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from context_compaction.activity.outcome import ERROR
from markupsafe import Markup, escape

from mcp_server_compaction.reading.plain_text import diff_lines

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict
    from pygments.lexer import Lexer

# A longer text is not highlighted: lexers take a millisecond for a thousand characters.
_MAX_HIGHLIGHTED_CHARS = 30_000
_MAX_PROSE_CHARS = 60_000
# A line of fewer words says too little to be searched for.
_TELLING_WORDS = 3
_SOUGHT_CHARS = 120
_OUTPUT_ID = r"o_[0-9a-f]{24}"
_POINTER = re.compile(
    rf"\b(?P<output>{_OUTPUT_ID})\b"
    r"|transcript://(?P<session>[A-Za-z0-9_.:-]{1,128})/messages/(?P<start>\d{1,12})-(?P<stop>\d{1,12})"
    r"(?:@(?P<head>[0-9a-f]{12,32}))?"
    r"|\[(?P<number>\d{1,9})\]"
)
_NUMBER = re.compile(r"\[(\d{1,9})\]")


def prose(text: str) -> Markup:
    """Markdown as a model writes it."""
    if len(text) > _MAX_PROSE_CHARS:
        return plain(text)
    return Markup(_markdown().render(text))  # noqa: S704, its HTML is off


def plain(text: str) -> Markup:
    """The text as it is, in lines."""
    return Markup('<div class="plain">{}</div>').format(text)


def code(text: str, language: str = "", path: str = "") -> Markup:
    """A listing, highlighted where its language is known."""
    return Markup('<pre class="code"><code>{}</code></pre>').format(
        highlighted(text, language, path)
    )


def highlighted(text: str, language: str = "", path: str = "") -> Markup:
    """The inside of a listing."""
    lexer = None if len(text) > _MAX_HIGHLIGHTED_CHARS else _lexer(language, path)
    if lexer is None:
        return escape(text)
    from pygments import highlight

    return Markup(highlight(text, lexer, _formatter()).rstrip("\n"))  # noqa: S704, it escapes


def diff(old: str, new: str) -> Markup:
    """What an edit changed, line by line."""
    return patch([*diff_lines(old, new)])


def patch(lines: Sequence[str]) -> Markup:
    """Lines that begin with a blank, + or -."""
    return Markup('<pre class="code diff">{}</pre>').format(
        Markup("\n").join(_changed_line(line) for line in lines)
    )


def log(text: str) -> Markup:
    """What a command printed; lines that report an error are highlighted."""
    lines = (
        Markup('<span class="bad">{}</span>').format(line)
        if len(line) < 2_000 and ERROR.search(line)
        else escape(line)
        for line in text.split("\n")
    )
    return Markup('<pre class="code log">{}</pre>').format(Markup("\n").join(lines))


def output(text: str, path: str = "") -> Markup:
    """The result of a tool, by its kind: JSON, a diff, code of a file, or a log."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return code(json_text(json.loads(text)), "json")
        except (ValueError, RecursionError):
            pass  # it only begins like JSON
    lines = text.split("\n")
    if sum(line.startswith(("diff --git ", "+++ ", "--- ", "@@ ")) for line in lines[:40]) >= 2:
        return patch(lines)
    return code(text, path=path) if path else log(text)


def linked(text: str, session_id: str = "", message_count: int = 0) -> Markup:
    """The text with its pointers as links, and of a summary `[12]` as a link to message 12."""

    def link(found: re.Match[str]) -> Markup:
        if number := found["number"]:
            if not (session_id and int(number) < message_count):
                return escape(found[0])
            return Markup('<a class="seq" href="/sessions/{}?at={}#m{}">{}</a>').format(
                session_id, number, number, found[0]
            )
        if found["session"]:
            head = f"&head={found['head']}" if found["head"] else ""
            return Markup('<a class="pointer" href="/sessions/{}?at={}{}#m{}">{}</a>').format(
                found["session"], found["start"], head, found["start"], found[0]
            )
        return Markup('<a class="pointer" href="/outputs/{}">{}</a>').format(found[0], found[0])

    return replaced(text, _POINTER, link)


def replaced(
    text: str, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], Markup]
) -> Markup:
    """The text, escaped, with the replacement of each match."""
    done: list[Markup] = []
    at = 0
    for found in pattern.finditer(text):
        done += [escape(text[at : found.start()]), replacement(found)]
        at = found.end()
    return Markup("").join([*done, escape(text[at:])])


def summary(text: str, session_id: str, message_count: int) -> Markup:
    """A summary by lines, each with what leads to its source: its message, or a search for it."""
    rows = (_summary_line(line, session_id, message_count) for line in text.split("\n"))
    return Markup('<div class="summary">{}</div>').format(Markup("").join(rows))


def _summary_line(line: str, session_id: str, message_count: int) -> Markup:
    found = _NUMBER.search(line)
    if found is not None and int(found[1]) < message_count:
        source = Markup(
            '<a class="from" href="/sessions/{}?at={}#m{}" aria-label="From message {}">{}</a>'
        ).format(session_id, *[found[1]] * 4)
    elif len(line.split()) >= _TELLING_WORDS and not line.startswith(("#", "<")):
        wanted = urlencode({"q": line.strip()[:_SOUGHT_CHARS], "session": session_id})
        source = Markup('<a class="from" href="/search?{}" aria-label="Find this line">find</a>')
        source = source.format(wanted)
    else:
        source = Markup('<span class="from"></span>')
    return Markup("<div>{}<span>{}</span></div>").format(
        source, linked(line, session_id, message_count)
    )


def numbered_lines(text: str, first: int, path: str = "") -> list[tuple[int, Markup]]:
    """The lines of a listing with their numbers."""
    body = highlighted(text, path=path) if path else escape(text)
    lines = str(body).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    # A lexer closes what it opened at the end of each line.
    return [(first + at, Markup(line)) for at, line in enumerate(lines)]  # noqa: S704


def _changed_line(line: str) -> Markup:
    kind = {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")
    return Markup('<span class="{}">{}</span>').format(kind, line) if kind else escape(line)


@cache
def _formatter() -> Any:
    import pygments.formatters as formatters

    made: Any = formatters.HtmlFormatter  # it has no types of its own
    return made(nowrap=True, classprefix="h-")


@cache
def _lexer(language: str, path: str) -> "Lexer | None":
    import pygments.lexers as lexers
    from pygments.util import ClassNotFound

    made: Any = lexers  # as above
    name = path.rsplit("/", 1)[-1]
    get = made.get_lexer_by_name if language else made.get_lexer_for_filename
    try:
        found: Lexer | None = get(language or name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        found = None
    return found


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    made = MarkdownIt(
        "commonmark",
        {"html": False, "linkify": False, "breaks": True, "highlight": _fence},
    ).enable(["table", "strikethrough"])
    # Pictures would be fetched from where a transcript says; they stand as their words.
    made.disable(["image", "html_block", "html_inline"])

    made.add_render_rule("link_open", _link_open)
    return made


def _link_open(
    self: "RendererHTML",
    tokens: "Sequence[Token]",
    at: int,
    options: "OptionsDict",
    _env: "EnvType",
) -> str:
    """A link that says nothing of where it was followed; to the web, or to nowhere."""
    token = tokens[at]
    if not str(token.attrGet("href") or "").lower().startswith(("http://", "https://")):
        token.attrs.pop("href", None)
    token.attrSet("rel", "noopener noreferrer nofollow")
    token.attrSet("target", "_blank")
    return self.renderToken(tokens, at, options, _env)


def _fence(text: str, language: str, _attributes: str) -> str:
    """The listing of a fenced block; markdown-it wraps what does not begin with <pre."""
    return str(code(text.rstrip("\n"), language))


def json_text(value: Any) -> str:
    """A JSON value, on lines of its own where it is long."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)
