"""Finding the lines of a stored text that match a pattern, as `grep -n` shows them.

A model asks once. So a reply shows all matches if it can: long lines are cut shorter for it, then
there are fewer lines around each. Unless it says how many lines it wants around a match, there are
as many as there is room for: the line that matches seldom is the one that answers. What room is
left then shows more of long lines.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import anyio

from mcp_server_compaction.reading.text_source import TextSource

MAX_MATCHES = 60  # unless more are asked for
CONTEXT_LINES = (16, 12, 8, 6, 4, 3, 2, 1, 0)  # around a match, unless told: the first that fits
CONTEXT_CHARS = 4_500  # in which they have to fit
PATTERN_SECONDS = 5.0
_BATCH_LINES = 5_000
_LINE_CHARS = 400  # of a long line, for which lines around are left out, or ...
_LEAST_LINE_CHARS = 200  # ... so many, where those are wanted that were asked for
_WIDTHS = (1_500, 800, _LINE_CHARS, 300, _LEAST_LINE_CHARS, 100)  # the first that fits
_BEFORE_MATCH_CHARS = 100
_NUMBER_CHARS = 8  # before a line
_CUT_CHARS = 70  # that say where a long line was cut
_HEADING_CHARS = 50  # of a line that names a message
_GAP_CHARS = 3  # of the line between two matches


@dataclass(frozen=True, slots=True)
class Found:
    """Matching lines as `grep -n` shows them.

    Attributes:
        text: The lines.
        next_line: From which to look for more; None where there are none.
        is_narrowed: Whether there are fewer lines around matches than were asked for.
    """

    text: str
    next_line: int | None
    is_narrowed: bool = False


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
        context_lines: Lines to show before and after each match, fewer where the matches do not
            fit else; None for what there is room for.
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
    named = {bisect_right(source.headings, start_line + one.position) for one in shown[:most]}
    room_chars = max_chars - _HEADING_CHARS * len(named) - _GAP_CHARS * len(shown)
    arounds, line_chars = _fitting(shown[:most], lines, context_lines, room_chars)
    blocks = _blocks(shown, len(lines), [*arounds, 0])
    found = await _show(source, lines, blocks, start_line, most, max_chars, line_chars)
    return replace(found, is_narrowed=min(arounds, default=0) < (context_lines or 0))


def _fitting(
    matches: Sequence[_Match], lines: Sequence[str], context_lines: int | None, max_chars: int
) -> tuple[list[int], int]:
    """How many lines around each match to show, and how much of a long line."""

    def fits(arounds: Sequence[int], line_chars: int, room_chars: int = max_chars) -> bool:
        blocks = _blocks(matches, len(lines), arounds)
        sizes = (_shown_chars(lines[at], line_chars) for _, block in blocks for at in block)
        return all(total <= room_chars for total in accumulate(sizes))

    def same(around: int) -> list[int]:
        return [around] * len(matches)

    if context_lines is None:
        roomy = (n for n in CONTEXT_LINES if fits(same(n), _LINE_CHARS, CONTEXT_CHARS))
        arounds = same(next(roomy, 0))
    else:
        fewer = (context_lines, *(n for n in CONTEXT_LINES if n < context_lines))
        arounds = next((same(n) for n in fewer if fits(same(n), _LEAST_LINE_CHARS)), same(0))
        arounds = _widened(arounds, fewer, lambda wider: fits(wider, _LEAST_LINE_CHARS))
    return arounds, next((n for n in _WIDTHS if fits(arounds, n)), _WIDTHS[-1])


def _widened(
    arounds: list[int], numbers: Sequence[int], fits: Callable[[Sequence[int]], bool]
) -> list[int]:
    """`arounds` with more lines around the last matches, which tell how things stand in the end."""
    for at in reversed(range(len(arounds))):
        wider = ([*arounds[:at], n, *arounds[at + 1 :]] for n in numbers if n > arounds[at])
        found = next(filter(fits, wider), None)
        if found is None:
            break
        arounds = found
    return arounds


def _shown_chars(line: str, line_chars: int) -> int:
    """About what a line takes."""
    return _NUMBER_CHARS + (len(line) if len(line) <= line_chars else line_chars + _CUT_CHARS)


def _blocks(
    matches: Sequence[_Match], line_count: int, arounds: Sequence[int]
) -> list[tuple[_Match, range]]:
    """Each match with the lines to show for it, none twice and no later match among them.

    Args:
        matches: The matches, rising.
        line_count: How many lines there are.
        arounds: For each match how many lines to show before and after it, or more numbers.
    """
    blocks: list[tuple[_Match, range]] = []
    shown_to = 0
    for at, (match, around) in enumerate(zip(matches, arounds, strict=False)):
        next_match = matches[at + 1].position if at + 1 < len(matches) else line_count
        start = max(match.position - around, shown_to)
        stop = min(match.position + around + 1, next_match, line_count)
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
    line_chars: int,
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
                line = await _cut(source, lines[position], number, match, line_chars)
                rendered.append(f"{number}:{line}")
            else:
                rendered.append(f"{number}-{lines[position][:line_chars]}")
        if shown_to is not None and block.start > shown_to:
            rendered.insert(0, "--")
        size_chars = sum(len(text) + 1 for text in rendered)
        if at == limit or (shown and used_chars + size_chars > max_chars):
            return Found("\n".join(shown), start_line + match.position)
        shown += rendered
        used_chars += size_chars
        shown_to = block.stop
    return Found("\n".join(shown), None)


def _heading(headings: Sequence[int], line: int, shown_to: int) -> int | None:
    """The line that names the message of `line`, unless it is that or was shown before."""
    at = bisect_right(headings, line) - 1
    return headings[at] if at >= 0 and shown_to <= headings[at] < line else None


async def _cut(source: TextSource, line: str, number: int, match: _Match, line_chars: int) -> str:
    """The line, or where it is long the part around its match and the offset to read on from."""
    if len(line) <= line_chars:
        return line
    start = max(0, match.column - min(_BEFORE_MATCH_CHARS, line_chars // 4))
    part = line[start : start + line_chars]
    offset = await source.offset_of_line(number) + start
    return f"…{part}… [line of {len(line)} characters; this part is at offset={offset}]"
