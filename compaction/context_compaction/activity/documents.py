"""Plans that the agent proposes, what is handed over in the user's name, texts that it files."""

import re
from collections.abc import Iterator

from context_compaction.activity.shell_words import QUOTED
from context_compaction.messages.model import Messages, text_of
from context_compaction.messages.speakers import user_text

# A plan of the agent's in its host's frame; one without a word is none.
PLAN = re.compile(
    r"^<(\w{0,40}plan)>\n(?!\s*</\1>)((?:(?!</?\w{0,40}plan>).*\n)*+)</\1>[ \t]*$", re.MULTILINE
)
# A document that a line hands over: "Please implement this plan:\n# Fix the login".
_HANDED_OVER = re.compile(r"\s*(\S[^\n]{0,80}:)\s*\n\s*(# .+)", re.DOTALL)

_PIECE = re.compile(rf"\$'(?:\\.|[^'\\])*+'|{QUOTED.pattern}", re.DOTALL)
# How commands are given the text of a commit, an issue, a pull request, a comment: quoted, as a
# document in the command line, or by the name of a file. A command to note something may be given
# it bare: `bd note ab-1 'It holds.'`.
_FILED = re.compile(
    r"(?:(?:\s-\w?m|\s-b|\s-[fF] body|--(?:body|message|notes|comment|description))[ =]"
    r"|(?<=\w )(?:note|comment|annotate)s?(?: add)?(?: [\w./#-]{1,60})? )"
    rf"(?P<quoted>(?!\"\$\()(?:{_PIECE.pattern})++)"
    r"|(?:\$\(cat |[ -](?:F|file)[ =]-[ ]?|\bcat > ?(?P<to>[^\s'\"]{1,200}) )"
    r"<<-?[ \t]*(?P<quote>['\"]?)(?P<mark>\w{1,40})(?P=quote)[^\n]*\n"
    r"(?P<document>.*?)\n[ \t]*(?P=mark)\b"
    r"|(?:\s-F|-file)[ =](?:body=@)?['\"]?(?P<path>(?<=['\"])[^'\"\n]{2,}|[^\s'\";|&]{2,})",
    re.DOTALL,
)
_MOST_CHARS = 12_000
# To look for the program further back would cost the square of the command.
_LINE_CHARS = 210
# Who wrote it, and with what.
_TRAILERS = re.compile(r"\n(?:[A-Z][\w-]{1,40}-[Bb]y: [^\n]{1,120}|\W{0,3}🤖[^\n]*)(?=\n|\Z)")
_GIT = re.compile(r"\bgit [^\n;&|'\"]{0,200}\"?\Z")
_ESCAPED = re.compile(r"\\([\"`$\\])")


def filed_in(command: str, written: dict[str, str]) -> Iterator[str]:
    """The texts that a command line files: those of issues, pull requests, comments, commits.

    A commit's is told without its subject.

    Args:
        command: The command line.
        written: The texts of the files that were written before, by path; those that the command
            writes are added.
    """
    for found in _FILED.finditer(command[:_MOST_CHARS]):
        if quoted := found["quoted"]:
            text = "".join(_unquoted(piece[0]) for piece in _PIECE.finditer(quoted))
        elif to := found["to"]:
            written[to] = found["document"]
            continue
        else:
            text = found["document"] or written.get(found["path"] or "", "")
        text = _TRAILERS.sub("", text)
        body = (
            text.partition("\n\n")[2]
            if _GIT.search(command, max(0, found.start() - _LINE_CHARS), found.start())
            else ""
        )
        yield body or text


def _unquoted(piece: str) -> str:
    """A quoted piece of a command line as the shell reads it."""
    if piece[0] == "$":
        return piece[2:-1].replace("\\n", "\n").replace("\\'", "'")
    return _ESCAPED.sub(r"\1", piece[1:-1]) if piece[0] == '"' else piece[1:-1]


def newer_documents(messages: Messages) -> dict[int, int]:
    """The user's messages that hand over a document, each with that of the newest of its kind.

    Of the same kind are those below the same line, and the plans of the agent, which a host may
    hand over in the user's name.
    """
    asked, plans = 0, set[str]()
    kinds: dict[int, str] = {}
    newest: dict[str, int] = {}
    for at, message in enumerate(messages):
        if message.role == "assistant":
            proposed = ["".join(plan[2].split()) for plan in PLAN.finditer(text_of(message.blocks))]
            plans.update(proposed)
            newest.update(dict.fromkeys(["plan"] * bool(proposed), asked))
        elif text := user_text(message).strip():
            asked = at
            if found := _HANDED_OVER.match(text):
                kinds[at] = "plan" if "".join(found[2].split()) in plans else found[1]
                newest[kinds[at]] = at
    return {at: newest[kind] for at, kind in kinds.items() if newest[kind] > at}
