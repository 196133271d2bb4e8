"""Transcript text as HTML, always escaped.

Every function returns `Markup` from Pygments, markdown-it (with HTML off) or `escape`. Nothing is
loaded, and attributes contain no transcript text, except the addresses of web links.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from context_compaction.activity.outcome import ERROR
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from pygments.lexer import Lexer

# Longer texts are not highlighted, because lexers take a millisecond for 1,000 characters.
_MAX_HIGHLIGHTED_CHARS = 30_000
_MAX_MARKDOWN_CHARS = 60_000
# Shorter lines of a summary get no search link, because a search for them finds too much.
_MIN_SEARCH_WORDS = 3
_PATCH_STARTS = ("diff --git ", "*** Begin Patch", "*** Update File", "+++ ", "--- ", "@@")
# Pointers to outputs and messages, and numbers of messages in brackets.
POINTER = re.compile(
    r"\b(?P<output>o_[0-9a-f]{24})\b"
    r"|transcript://(?P<session>[A-Za-z0-9_.:-]{1,128})/messages/(?P<start>\d{1,12})-(?P<stop>\d{1,12})"
    r"(?:@(?P<head>[0-9a-f]{12,32}))?"
    r"|\[(?P<number>\d{1,9})\]"
)


def markdown(text: str) -> Markup:
    """Render Markdown; very long text stays plain."""
    if len(text) > _MAX_MARKDOWN_CHARS:
        return plain(text)
    return Markup(_markdown_parser().render(text))  # noqa: S704, its HTML is off


def plain(text: str) -> Markup:
    """Render text with its line breaks."""
    return Markup('<div class="plain">{}</div>').format(text)


def code(text: str, language: str = "", path: str = "") -> Markup:
    """Render a listing, highlighted if the language or the file type is known."""
    return Markup('<pre class="code"><code>{}</code></pre>').format(
        highlighted(text, language, path)
    )


def highlighted(text: str, language: str = "", path: str = "") -> Markup:
    """Render the content of a listing without the surrounding element."""
    lexer = None if len(text) > _MAX_HIGHLIGHTED_CHARS else _lexer(language, path)
    if lexer is None:
        return escape(text)
    from pygments import highlight

    return Markup(highlight(text, lexer, _formatter()).rstrip("\n"))  # noqa: S704, it escapes


def patch(lines: Sequence[str]) -> Markup:
    """Render the lines of a diff, which begin with a blank, + or -."""
    return Markup('<pre class="code diff">{}</pre>').format(
        Markup("\n").join(_patch_line(line) for line in lines)
    )


def output(text: str, path: str = "") -> Markup:
    """Render text of a tool as JSON, as a diff, as code if its file is known, or as a log."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return code(json_text(json.loads(text)), "json")
        except (ValueError, RecursionError):
            pass  # not JSON, although it begins like JSON
    lines = text.split("\n")
    if sum(line.startswith(_PATCH_STARTS) for line in lines[:40]) >= 2:
        return patch(lines)
    return code(text, path=path) if path else _log(lines)


def _log(lines: Sequence[str]) -> Markup:
    """Render the output of a command; lines that report an error are highlighted."""
    marked_lines = (
        Markup('<span class="bad">{}</span>').format(line)
        if len(line) < 2_000 and ERROR.search(line)
        else escape(line)
        for line in lines
    )
    return Markup('<pre class="code log">{}</pre>').format(Markup("\n").join(marked_lines))


def linked(text: str, session_id: str = "", message_count: int = 0) -> Markup:
    """Render text with links for its pointers.

    Args:
        text: The text.
        session_id: Session whose messages the numbers in brackets, such as [12], refer to.
        message_count: Number of its messages; greater numbers in brackets get no link.
    """

    def link(match: re.Match[str]) -> Markup:
        if number := match["number"]:
            if not (session_id and int(number) < message_count):
                return escape(match[0])
            return Markup('<a class="seq" href="/sessions/{}?at={}#m{}">{}</a>').format(
                session_id, number, number, match[0]
            )
        if match["session"]:
            head = f"&head={match['head']}" if match["head"] else ""
            return Markup('<a class="pointer" href="/sessions/{}?at={}{}#m{}">{}</a>').format(
                match["session"], match["start"], head, match["start"], match[0]
            )
        return Markup('<a class="pointer" href="/outputs/{}">{}</a>').format(match[0], match[0])

    return with_matches(text, POINTER, link)


def with_matches(
    text: str, pattern: re.Pattern[str], render: Callable[[re.Match[str]], Markup]
) -> Markup:
    """Escape the text and render each match of the pattern."""
    pieces: list[Markup] = []
    position = 0
    for match in pattern.finditer(text):
        pieces += [escape(text[position : match.start()]), render(match)]
        position = match.end()
    return Markup("").join([*pieces, escape(text[position:])])


def summary(text: str, session_id: str, message_count: int) -> Markup:
    """Render a summary by lines, each with a link to its source message or a search for it."""
    rows = (_summary_line(line, session_id, message_count) for line in text.split("\n"))
    return Markup('<div class="summary">{}</div>').format(Markup("").join(rows))


def _summary_line(line: str, session_id: str, message_count: int) -> Markup:
    numbers = (match["number"] for match in POINTER.finditer(line))
    seq = next(filter(None, numbers), None)
    if seq is not None and int(seq) < message_count:
        source = Markup(
            '<a class="from" href="/sessions/{}?at={}#m{}" aria-label="From message {}">{}</a>'
        ).format(session_id, *[seq] * 4)
    elif len(line.split()) >= _MIN_SEARCH_WORDS and not line.startswith(("#", "<")):
        query = urlencode({"query": line.strip()[:120], "session_id": session_id})
        source = Markup('<a class="from" href="/search?{}" aria-label="Find this line">find</a>')
        source = source.format(query)
    else:
        source = Markup('<span class="from"></span>')
    return Markup("<div>{}<span>{}</span></div>").format(
        source, linked(line, session_id, message_count)
    )


def numbered_lines(text: str, first: int, path: str = "") -> list[tuple[int, Markup]]:
    """Return the lines of a listing with their numbers, starting at `first`."""
    lines = str(highlighted(text, path=path) if path else escape(text)).split("\n")
    if not lines[-1]:
        lines.pop()
    # Each line is complete HTML, because lexers close all elements at the end of a line.
    return [(number, Markup(line)) for number, line in enumerate(lines, first)]  # noqa: S704


def _patch_line(line: str) -> Markup:
    kind = {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")
    return Markup('<span class="{}">{}</span>').format(kind, line) if kind else escape(line)


@cache
def _formatter() -> Any:
    import pygments.formatters as formatters

    html_formatter: Any = formatters.HtmlFormatter  # Pygments has no types
    return html_formatter(nowrap=True, classprefix="h-")


@cache
def _lexer(language: str, path: str) -> "Lexer | None":
    import pygments.lexers
    from pygments.util import ClassNotFound

    lexers: Any = pygments.lexers  # Pygments has no types
    get = lexers.get_lexer_by_name if language else lexers.get_lexer_for_filename
    try:
        lexer: Lexer = get(language or path.rsplit("/", 1)[-1], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer


@cache
def _markdown_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt(
        "commonmark", {"html": False, "linkify": False, "breaks": True, "highlight": _fence}
    ).enable(["table", "strikethrough"])
    # A browser would load images from addresses in the transcript; their source text is shown.
    parser.disable(["image", "html_block", "html_inline"])
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("th_open", _cell_open)
    parser.add_render_rule("td_open", _cell_open)
    return parser


def _link_open(renderer: Any, tokens: Any, index: int, options: Any, _: Any) -> str:
    """Render the start of a link: to the web without a referrer, all other targets removed."""
    token = tokens[index]
    if not str(token.attrGet("href") or "").lower().startswith(("http://", "https://")):
        token.attrs.pop("href", None)
    token.attrSet("rel", "noopener noreferrer nofollow")
    token.attrSet("target", "_blank")
    return str(renderer.renderToken(tokens, index, options, _))


def _cell_open(renderer: Any, tokens: Any, index: int, options: Any, _: Any) -> str:
    """Render the start of a table cell with its alignment as a class.

    markdown-it writes a `style` attribute, which the content security policy blocks.
    """
    style = str(tokens[index].attrs.pop("style", ""))
    if style:
        tokens[index].attrSet("class", style.replace("text-align:", "align-"))
    return str(renderer.renderToken(tokens, index, options, _))


def _fence(text: str, language: str, _attributes: str) -> str:
    """Render a fenced code block. It begins with <pre, so that markdown-it does not wrap it."""
    return str(code(text.rstrip("\n"), language))


def json_text(value: Any) -> str:
    """Format a JSON value on one line, or on several lines if it is long."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)
