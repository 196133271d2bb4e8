"""Finding the lines of a stored text that match a pattern, at a guarded cost.

A pattern is taken both as plain text and, where it is one, as a regular expression: models write
either. A regular expression can take exponential time, so the time is bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from anyio import to_thread
from context_compaction.errors import QueryError

from mcp_server_compaction.text_source import TextSource

if TYPE_CHECKING:
    import regex

DEFAULT_MATCHES = 20
MAX_PATTERN_CHARS = 200
PATTERN_SECONDS = 5.0
_BATCH_LINES = 5_000
_SHOWN_LINE_CHARS = 400
_BEFORE_MATCH_CHARS = 100


@dataclass(frozen=True, slots=True)
class Pattern:
    """What is looked for: the plain text, and the expression where the text is one."""

    text: str
    expression: "regex.Pattern[str] | None"


@dataclass(frozen=True, slots=True)
class Found:
    """Matching lines as `grep -n` shows them, and the line from which to look for more."""

    text: str
    next_line: int | None


@dataclass(frozen=True, slots=True)
class _Match:
    position: int  # of the line, among those read
    column: int


def compile_pattern(text: str) -> Pattern:
    """The pattern of a caller.

    Raises:
        QueryError: It is empty or too long.
    """
    import regex  # only patterns need it; unlike `re` it can stop in time

    if not 0 < len(text) <= MAX_PATTERN_CHARS:
        raise QueryError(
            f"The pattern has {len(text)} characters. Give 1 to {MAX_PATTERN_CHARS} of them."
        )
    try:
        return Pattern(text, regex.compile(text))
    except regex.error:
        return Pattern(text, None)  # plain text, such as "f(x"


async def find_matches(
    source: TextSource,
    pattern: Pattern,
    *,
    start_line: int,
    context_lines: int,
    limit: int,
    max_chars: int,
) -> Found:
    """The first `limit` matching lines from `start_line` on, as far as `max_chars` hold them.

    Raises:
        QueryError: The search takes longer than `PATTERN_SECONDS`.
    """
    deadline = monotonic() + PATTERN_SECONDS
    lines: list[str] = []
    matches: list[_Match] = []
    searched = 0
    # One match more than is shown tells whether there are more; then its context is read.
    while start_line + len(lines) <= source.line_count:
        batch = await source.lines(start_line + len(lines), _BATCH_LINES)
        lines += batch.text.split("\n")[: batch.count]
        matches += await to_thread.run_sync(_search, pattern, lines, searched, deadline)
        searched = len(lines)
        if len(matches) > limit and len(lines) > matches[limit].position + context_lines:
            break
    blocks = _blocks(matches[: limit + 1], len(lines), context_lines)
    return await _show(source, lines, blocks, start_line, limit, max_chars)


def _search(pattern: Pattern, lines: Sequence[str], searched: int, deadline: float) -> list[_Match]:
    """The matches among `lines` from position `searched` on."""
    found: list[_Match] = []
    for position in range(searched, len(lines)):
        column = _column(pattern, lines[position], deadline)
        if column is not None:
            found.append(_Match(position, column))
    return found


def _column(pattern: Pattern, line: str, deadline: float) -> int | None:
    plain = line.find(pattern.text)
    if plain >= 0 or pattern.expression is None:
        return plain if plain >= 0 else None
    # A timeout of nothing would mean none at all.
    left_seconds = max(0.001, deadline - monotonic())
    try:
        match = pattern.expression.search(line, timeout=left_seconds)
    except TimeoutError as error:
        raise QueryError(
            f"The pattern {pattern.text!r} took longer than {PATTERN_SECONDS:.0f} seconds. "
            "Give a simpler one, or plain text."
        ) from error
    return match.start() if match else None


def _blocks(
    matches: Sequence[_Match], line_count: int, context_lines: int
) -> list[tuple[_Match, range]]:
    """Each match with the lines to show for it, none twice and no later match among them."""
    blocks: list[tuple[_Match, range]] = []
    shown_to = 0
    for at, match in enumerate(matches):
        next_match = matches[at + 1].position if at + 1 < len(matches) else line_count
        start = max(match.position - context_lines, shown_to)
        stop = min(match.position + context_lines + 1, next_match, line_count)
        blocks.append((match, range(start, stop)))
        shown_to = stop
    return blocks


async def _show(
    source: TextSource,
    lines: Sequence[str],
    blocks: Sequence[tuple[_Match, range]],
    start_line: int,
    limit: int,
    max_chars: int,
) -> Found:
    shown: list[str] = []
    used_chars = 0
    shown_to: int | None = None
    for at, (match, block) in enumerate(blocks):
        rendered: list[str] = []
        for position in block:
            number = start_line + position
            if position == match.position:
                rendered.append(f"{number}:{await _cut(source, lines[position], number, match)}")
            else:
                rendered.append(f"{number}-{lines[position][:_SHOWN_LINE_CHARS]}")
        size_chars = sum(len(text) + 1 for text in rendered)
        if at == limit or (shown and used_chars + size_chars > max_chars):
            return Found("\n".join(shown), start_line + match.position)
        if shown_to is not None and block.start > shown_to:
            shown.append("--")
        shown += rendered
        used_chars += size_chars
        shown_to = block.stop
    return Found("\n".join(shown), None)


async def _cut(source: TextSource, line: str, number: int, match: _Match) -> str:
    """The line, or where it is long the part around its match and the offset to read on from."""
    if len(line) <= _SHOWN_LINE_CHARS:
        return line
    start = max(0, match.column - _BEFORE_MATCH_CHARS)
    part = line[start : start + _SHOWN_LINE_CHARS]
    offset = await source.offset_of_line(number) + start
    return f"…{part}… [line of {len(line)} characters; this part is at offset={offset}]"
