"""Finding the lines of a stored text that match a pattern, as `grep -n` shows them.

A model asks once. So unless it says how many lines it wants around a match, there are as many as a
reply has room for: the line that matches seldom is the one that answers.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from mcp_server_compaction.reading.text_source import TextSource

MAX_MATCHES = 60  # unless more are asked for
CONTEXT_LINES = (16, 12, 8, 6, 4, 3, 2, 1)  # around a match, unless told: the first that fits
CONTEXT_CHARS = 4_500  # in which they have to fit
PATTERN_SECONDS = 5.0
_BATCH_LINES = 5_000
_SHOWN_LINE_CHARS = 400
_BEFORE_MATCH_CHARS = 100


@dataclass(frozen=True, slots=True)
class Found:
    """Matching lines as `grep -n` shows them, and the line from which to look for more."""

    text: str
    next_line: int | None


@dataclass(frozen=True, slots=True)
class _Match:
    position: int  # of the line, among those read
    column: int


async def find_matches(
    source: TextSource,
    pattern: str,
    *,
    start_line: int,
    context_lines: int | None,
    limit: int | None,
    max_chars: int,
) -> Found:
    """The first `limit` matching lines from `start_line` on, as far as `max_chars` hold them.

    Args:
        source: What is searched.
        pattern: Looked for as plain text and, where it is one, as a regular expression: models
            write either.
        start_line: Where to begin, from 1.
        context_lines: Lines to show before and after each match; None for what there is room for.
        limit: Matches to show; None for `MAX_MATCHES`.
        max_chars: Of the text.

    Raises:
        QueryError: The pattern cannot be used, or takes longer than `PATTERN_SECONDS`.
    """
    from context_compaction.archive.patterns import open_matcher, too_slow

    lines: list[str] = []
    matches: list[_Match] = []
    most = limit or MAX_MATCHES
    further = CONTEXT_LINES[0] if context_lines is None else context_lines
    async with open_matcher(pattern, also_as_text=True) as matcher:
        with anyio.move_on_after(PATTERN_SECONDS) as time:
            # One match more than is shown tells whether there are more; then its context is read.
            while start_line + len(lines) <= source.line_count:
                batch = await source.lines(start_line + len(lines), _BATCH_LINES)
                new = batch.text.split("\n")[: batch.count]
                columns = enumerate(await matcher.first_matches(new), len(lines))
                matches += [_Match(position, at) for position, at in columns if at >= 0]
                lines += new
                if len(matches) > most and len(lines) > matches[most].position + further:
                    break
    if time.cancelled_caught:
        raise too_slow(pattern, PATTERN_SECONDS)
    shown = matches[: most + 1]
    around = _widest(shown, lines) if context_lines is None else context_lines
    blocks = _blocks(shown, len(lines), around)
    return await _show(source, lines, blocks, start_line, most, max_chars)


def _widest(matches: Sequence[_Match], lines: Sequence[str]) -> int:
    """How many lines around each match there is room for."""
    for around in CONTEXT_LINES:
        blocks = _blocks(matches, len(lines), around)
        sizes = (min(len(lines[at]), _SHOWN_LINE_CHARS) for _, block in blocks for at in block)
        if sum(sizes) <= CONTEXT_CHARS:
            return around
    return 0


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
        heading = _heading(source.headings, start_line + block.start, start_line + (shown_to or 0))
        rendered: list[str] = []
        if heading:
            rendered.append(f"{heading}-{(await source.lines(heading, 1)).text.rstrip()}")
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


def _heading(headings: Sequence[int], line: int, shown_to: int) -> int | None:
    """The line that names the message of `line`, unless it is that or was shown before."""
    at = bisect_right(headings, line) - 1
    return headings[at] if at >= 0 and shown_to <= headings[at] < line else None


async def _cut(source: TextSource, line: str, number: int, match: _Match) -> str:
    """The line, or where it is long the part around its match and the offset to read on from."""
    if len(line) <= _SHOWN_LINE_CHARS:
        return line
    start = max(0, match.column - _BEFORE_MATCH_CHARS)
    part = line[start : start + _SHOWN_LINE_CHARS]
    offset = await source.offset_of_line(number) + start
    return f"…{part}… [line of {len(line)} characters; this part is at offset={offset}]"
