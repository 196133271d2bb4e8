"""What a summary of a record should not leave out: names that were given, that failed, that recur.

Pure and deterministic. It looks at the record alone, so a model's text cannot change the result.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from context_compaction.activity.error_line import error_line
from context_compaction.messages.model import Messages, ToolResult, text_of
from context_compaction.messages.names import kind_of, names_in
from context_compaction.messages.speakers import user_text

# What somebody marks as a name is one.
_MARKED = re.compile(r"`([^`\n]{2,60})`")
_MIN_NAME_CHARS = 3
# As many as one request to mend a summary can list and a summary can hold.
_MAX_ITEMS = 24
_RECURS = 3  # a name that the assistant uses in so many messages is worked with
_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Salient:
    """A name that a summary should contain, and the line of the record that has it."""

    name: str
    line: str


def salient_in(messages: Messages) -> tuple[Salient, ...]:
    """The names by the user, newest first, then in errors, then those the assistant repeats."""
    found: dict[str, Salient] = {}
    for name, line in (*_asked(messages), *_failed(messages), *_worked_with(messages)):
        if len(name) >= _MIN_NAME_CHARS:
            found.setdefault(name.casefold(), Salient(name, one_line(line)))
    return tuple(found.values())[:_MAX_ITEMS]


def missing_in(text: str, salient: Iterable[Salient]) -> tuple[Salient, ...]:
    """The items whose name `text` does not contain."""
    folded = html.unescape(text).casefold()
    return tuple(item for item in salient if item.name.casefold() not in folded)


def one_line(text: str) -> str:
    """`text` on one line of at most 200 characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _LINE_CHARS else flat[: _LINE_CHARS - 1] + "…"


def _asked(messages: Messages) -> Iterator[tuple[str, str]]:
    for message in reversed(messages):
        for line, names in _named_lines(user_text(message)):
            yield from ((name, f"user: {line}") for name in names)


def _failed(messages: Messages) -> Iterator[tuple[str, str]]:
    for message in reversed(messages):
        for block in message.blocks:
            if isinstance(block, ToolResult) and block.is_error:
                line = error_line(text_of(block.content))
                yield from ((name, f"tool: {line}") for name in _names(line)[:1])


def _worked_with(messages: Messages) -> Iterator[tuple[str, str]]:
    used: Counter[str] = Counter()
    line_of: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            text = text_of(message.blocks)
            newest = {name: line for line, names in _named_lines(text) for name in names}
            used.update(newest.keys())
            line_of.update(newest)
    often = [(-times, name) for name, times in used.items() if times >= _RECURS]
    for _, name in sorted(often):
        yield name, f"assistant: {line_of[name]}"


def _named_lines(text: str) -> Iterator[tuple[str, list[str]]]:
    for line in text.splitlines():
        if names := _names(line):
            yield line, names


def _names(line: str) -> list[str]:
    return [*_MARKED.findall(line), *filter(kind_of, names_in(line))]
