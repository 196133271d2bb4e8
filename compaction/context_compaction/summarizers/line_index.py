"""The lines of a conversation as a writer sees them: who says each, where, and what it names.

One pass, linear in the text. A line that stands many times is kept once; how often and how lately
its names were used is counted all the same.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Author,
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    tool_results,
)
from context_compaction.messages.speakers import passages_of

MIN_LINE_CHARS = 12
# A longer line is cut into pieces of about this size: what makes a name understood stands near it.
_PIECE_CHARS = 90
# Of one text: beyond it, its head and its tail speak for it.
MAX_TEXT_LINES = 4_000
MAX_LINE_CHARS = 20_000

# The speakers that are the agent.
_AGENT = ("agent", "call")

Speaker: TypeAlias = Author | Literal["call"]

_NAME = re.compile(r"[^\W_][\w./:@#-]{2,}\w")
_PLAIN_WORD = re.compile(r"(?<![^\s\"'(\[{])[^\W\d_]{3,}(?![^\s\"'.,;:!?)\]}])")


class Line(NamedTuple):
    """A candidate line, each distinct one once, where it stood last.

    Attributes:
        order: Its place among the lines.
        message: Position of its message.
        speaker: Who says it; "call" for the agent's calls.
        text: The line, stripped.
        names: The distinct names in it.
    """

    order: int
    message: int
    speaker: Speaker
    text: str
    names: tuple[str, ...]

    def has_context(self) -> bool:
        """Whether it has the words that make its names understood."""
        words = _PLAIN_WORD.finditer(self.text)
        return next(words, None) is not None and next(words, None) is not None


@dataclass(frozen=True, slots=True)
class NameUses:
    """How names were used.

    Attributes:
        messages: In how many messages each name stands.
        last: Position of the last of them.
        by_agent: The names that the agent wrote, in words or calls.
        by_user: Those that the user wrote.
    """

    messages: Mapping[str, int]
    last: Mapping[str, int]
    by_agent: Set[str]
    by_user: Set[str]


@dataclass(frozen=True, slots=True)
class LineIndex:
    """All lines of a conversation and the use of their names."""

    lines: tuple[Line, ...]
    uses: NameUses
    message_count: int


def index_lines(messages: Messages) -> LineIndex:
    """The lines of `messages`; texts that a compaction put there are left out."""
    times: Counter[str] = Counter()
    last: dict[str, int] = {}
    by_agent: set[str] = set()
    by_user: set[str] = set()
    found: dict[str, Line] = {}
    order = 0
    for at, message in enumerate(messages):
        if placeholders.is_synthetic(message):
            continue
        said: set[str] = set()
        has_results = bool(tool_results(message))
        for speaker, text in spoken(message):
            here: set[str] = set()
            for piece in _pieces(text):
                known = found.pop(piece, None)
                names = known.names if known else tuple(dict.fromkeys(_NAME.findall(piece)))
                if not names:
                    continue
                here.update(names)
                order += 1
                found[piece] = Line(order, at, speaker, piece, names)
            said |= here
            # What is told in the user's name only is needed as seldom as what he says.
            if message.role == "user" and (speaker != "tool" or not has_results):
                by_user |= here
            elif speaker in _AGENT:
                by_agent |= here
        times.update(said)
        last.update(dict.fromkeys(said, at))
    return LineIndex(tuple(found.values()), NameUses(times, last, by_agent, by_user), len(messages))


def names_of(text: str) -> list[str]:
    """The names in `text`: words, numbers, paths and identifiers of four characters and more."""
    return _NAME.findall(text)


def spoken(message: Message) -> Iterator[tuple[Speaker, str]]:
    """Who speaks and what: text, calls as `name(key=value, …)`, results that were not cleared."""
    for block in message.blocks:
        match block:
            case Text():
                yield from passages_of(message, block)
            case ToolCall():
                yield "call", call_text(block)
            case ToolResult() if not placeholders.is_placeholder(block):
                for part in block.content:
                    if isinstance(part, Text):
                        yield "tool", part.text
            case _:
                continue


def call_text(call: ToolCall) -> str:
    """A call as one text; its string arguments keep their lines."""
    arguments: Any = call.arguments
    if not isinstance(arguments, dict):
        return f"{call.name}({arguments})"
    named = cast("dict[str, Any]", arguments)
    return f"{call.name}({', '.join(f'{key}={value}' for key, value in named.items())})"


def _pieces(text: str) -> Iterator[str]:
    lines = text.splitlines()
    if len(lines) > MAX_TEXT_LINES:
        half = MAX_TEXT_LINES // 2
        lines = lines[:half] + lines[-half:]
    for line in lines:
        stripped = line.strip()
        if len(stripped) < MIN_LINE_CHARS:
            continue
        if len(stripped) <= _PIECE_CHARS * 3 // 2:
            yield stripped
        else:
            yield from _cut(stripped[:MAX_LINE_CHARS])


def _cut(line: str) -> Iterator[str]:
    """A long line in pieces of about `_PIECE_CHARS`, cut where a part of it ends."""
    start = 0
    while len(line) - start > _PIECE_CHARS * 3 // 2:
        stop = start + _PIECE_CHARS
        for mark in (". ", "。", "; ", ", ", " "):
            at = line.rfind(mark, start + _PIECE_CHARS // 2, stop)
            if at >= 0:
                stop = at + len(mark)
                break
        else:  # no name is cut in two, unless it is longer than a line
            at = line.find(" ", stop, start + 2 * _PIECE_CHARS)
            stop = at + 1 if at >= 0 else stop
        yield line[start:stop].strip()
        start = stop
    if rest := line[start:].strip():
        yield rest
