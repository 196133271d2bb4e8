"""Cutting out the part of a stored text that was asked for, and saying how to get the next.

A part is exact: its text is the stored text and nothing else, but for the numbers before the lines
of messages that read as plain text, and before matching lines. A note beside it names the part and
how to go on.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import anyio
from context_compaction import QueryError, open_matcher

from mcp_server_compaction.protocol.schemas import MAX_READ_CHARS, ReadArguments
from mcp_server_compaction.reading.json_path import source_at
from mcp_server_compaction.reading.text_source import TextSource

# With the note beside it an answer stays below 8,000 characters unless more is asked for.
DEFAULT_CHARS = 7_000
PATTERN_SECONDS = 5.0
_MAX_MATCHES = 60  # unless more are asked for
_CONTEXT_LINES = (16, 8, 4, 2, 0)  # around each match: the first that fits
_BATCH_LINES = 5_000
_LINE_CHARS = 800  # of a line among matches; a longer one is cut
_BEFORE_MATCH_CHARS = 100
_NUMBER_CHARS = 10  # before a line, and its end


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text: exact, unless it is a list of matches.

    Attributes:
        text: The part.
        note: Which part it is, and how to get the next one.
    """

    text: str
    note: str


async def read_part(source: TextSource, arguments: ReadArguments) -> TextPart:
    """The part of `source` that `arguments` ask for.

    Raises:
        QueryError: The part lies behind the end, or the pattern or path cannot be used.
    """
    if arguments.json_path is not None:
        source = await source_at(source, arguments.json_path)
    if arguments.pattern is not None:
        return await _matching_lines(source, arguments, arguments.pattern)
    if arguments.offset is not None:
        return await _characters(source, arguments.offset, arguments.limit)
    if arguments.tail is not None:
        return await _lines(source, -arguments.tail, arguments.limit or arguments.tail)
    return await _lines(source, arguments.start_line or 1, arguments.limit)


async def _characters(source: TextSource, offset: int, limit: int | None) -> TextPart:
    if offset > source.size_chars:
        raise QueryError(
            f"offset {offset} lies behind the end: {source.pointer} has {source.size_chars} "
            "characters. Give a smaller offset."
        )
    text = await source.characters(offset, min(limit or DEFAULT_CHARS, MAX_READ_CHARS))
    stop = offset + len(text)
    note = f"Characters {offset}-{stop} of {source.size_chars}. {_next_chars(source, stop)}"
    return TextPart(text, note)


async def _lines(source: TextSource, start_line: int, limit: int | None) -> TextPart:
    """Whole lines, or where one is too long for an answer its beginning."""
    if start_line > max(1, source.line_count):
        raise QueryError(
            f"start_line {start_line} lies behind the end: {source.pointer} has "
            f"{source.line_count} lines. Give a smaller number, or tail."
        )
    # Every line has its newline at least, so more lines than characters cannot be shown.
    found = await source.lines(start_line, min(limit or DEFAULT_CHARS, DEFAULT_CHARS))
    text = _numbered(found.text, found.start_line) if source.headings else found.text
    if len(text) > DEFAULT_CHARS:
        whole = text.rfind("\n", 0, DEFAULT_CHARS) + 1
        if whole == 0:
            return await _long_line(source, found.start_line, found.text[:DEFAULT_CHARS])
        text = text[:whole]
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    stop_line = found.start_line + count - 1
    shown = f"Lines {found.start_line}-{stop_line}" if count else "No lines"
    form = " as NUMBER:TEXT" if source.headings and count else ""
    further = (
        f"Go on with start_line={stop_line + 1}."
        if stop_line < source.line_count
        else "That is the end."
    )
    size = f"{source.line_count}{form} ({source.size_chars} characters in all)"
    return TextPart(text, f"{shown} of {size}. {further}")


def _numbered(text: str, start_line: int) -> str:
    """`text` with the number of each line before it, as matching lines have theirs."""
    lines = text.split("\n")
    ends = lines.pop()
    last = [f"{start_line + len(lines)}:{ends}"] if ends else [""]
    return "\n".join([*(f"{at}:{line}" for at, line in enumerate(lines, start_line)), *last])


async def _long_line(source: TextSource, line: int, text: str) -> TextPart:
    start = await source.offset_of_line(line)
    stop = start + len(text)
    return TextPart(
        text,
        f"The beginning of line {line} of {source.line_count}, which is too long for one answer: "
        f"characters {start}-{stop} of {source.size_chars}. Of JSON, json_path reads one value. "
        f"{_next_chars(source, stop)}",
    )


def _next_chars(source: TextSource, stop: int) -> str:
    return f"Go on with offset={stop}." if stop < source.size_chars else "That is the end."


@dataclass(frozen=True, slots=True)
class _Match:
    """A matching line: its place among the lines that were read, and the column of the match."""

    position: int
    column: int


async def _matching_lines(source: TextSource, arguments: ReadArguments, pattern: str) -> TextPart:
    """The matching lines as `grep -n` shows them, with as many around them as fit."""
    start_line = arguments.start_line or 1
    limit = arguments.limit or _MAX_MATCHES
    wanted = arguments.context
    if wanted is None:  # who goes on with the next matches lists them
        wanted = 0 if arguments.start_line else _CONTEXT_LINES[0]
    lines, matches = await _find(source, pattern, start_line, limit, wanted)
    if not matches:
        return TextPart("", f"No line of {source.line_count} matches. Try another pattern.")
    sizes = [wanted, *(number for number in _CONTEXT_LINES if number < wanted)]
    around = next((number for number in sizes if _fits(matches[:limit], lines, number)), 0)
    text, shown = await _show(source, lines, matches[:limit], start_line, around)
    further = "There are no more matches."
    if shown < len(matches):
        further = f"Go on with start_line={start_line + matches[shown].position}."
    fewer = ""
    if arguments.context is not None and around < wanted:
        fewer = " Less context than asked for, so that the matches fit."
    return TextPart(
        text,
        f"Matching lines of {source.line_count} as NUMBER:TEXT, context as NUMBER-TEXT; a long "
        f"line is cut around its match.{fewer} {further}",
    )


async def _find(
    source: TextSource, pattern: str, start_line: int, limit: int, context_lines: int
) -> tuple[list[str], list[_Match]]:
    """The lines from `start_line` on that were read, and one match more than `limit`.

    The pattern is sought as plain text and, where it is one, as a regular expression: models write
    either.

    Raises:
        QueryError: The pattern cannot be used, or takes longer than `PATTERN_SECONDS`.
    """
    lines: list[str] = []
    matches: list[_Match] = []
    async with open_matcher(pattern, also_as_text=True) as matcher:
        with anyio.move_on_after(PATTERN_SECONDS) as time:
            while start_line + len(lines) <= source.line_count:
                batch = await source.lines(start_line + len(lines), _BATCH_LINES)
                new = batch.text.split("\n")[: batch.count]
                columns = enumerate(await matcher.first_matches(new), len(lines))
                matches += [_Match(position, at) for position, at in columns if at >= 0]
                lines += new
                if len(matches) > limit and len(lines) > matches[limit].position + context_lines:
                    break
    if time.cancelled_caught:
        raise QueryError(
            f"The pattern {pattern[:80]!r} takes longer than {PATTERN_SECONDS:g} seconds. Give a "
            "simpler one."
        )
    return lines, matches[: limit + 1]


def _blocks(matches: Sequence[_Match], line_count: int, around: int) -> list[range]:
    """For each match the lines to show: none twice, and no later match among them."""
    blocks: list[range] = []
    shown_to = 0
    for at, match in enumerate(matches):
        next_match = matches[at + 1].position if at + 1 < len(matches) else line_count
        start = max(match.position - around, shown_to)
        shown_to = min(match.position + around + 1, next_match)
        blocks.append(range(start, shown_to))
    return blocks


def _fits(matches: Sequence[_Match], lines: Sequence[str], around: int) -> bool:
    sizes = (
        _NUMBER_CHARS + min(len(lines[position]), _LINE_CHARS)
        for block in _blocks(matches, len(lines), around)
        for position in block
    )
    return all(total <= DEFAULT_CHARS for total in accumulate(sizes))


async def _show(
    source: TextSource,
    lines: Sequence[str],
    matches: Sequence[_Match],
    start_line: int,
    around: int,
) -> tuple[str, int]:
    """The matches that fit an answer, with the headings of their messages; and how many."""
    shown: list[str] = []
    used_chars = 0
    shown_to: int | None = None
    for at, (match, block) in enumerate(
        zip(matches, _blocks(matches, len(lines), around), strict=True)
    ):
        rendered = ["--"] if shown_to is not None and block.start > shown_to else []
        heading = _heading(source.headings, start_line + block.start, start_line + (shown_to or 0))
        if heading:
            rendered.append(f"{heading}-{(await source.lines(heading, 1)).text.rstrip()}")
        for position in block:
            number = start_line + position
            if position == match.position:
                rendered.append(f"{number}:{await _cut(source, lines[position], number, match)}")
            else:
                rendered.append(f"{number}-{lines[position][:_LINE_CHARS]}")
        used_chars += sum(len(text) + 1 for text in rendered)
        if shown and used_chars > DEFAULT_CHARS:
            return "\n".join(shown), at
        shown += rendered
        shown_to = block.stop
    return "\n".join(shown), len(matches)


def _heading(headings: Sequence[int], line: int, shown_to: int) -> int | None:
    """The line that names the message of `line`, unless it is that or was shown before."""
    at = bisect_right(headings, line) - 1
    return headings[at] if at >= 0 and shown_to <= headings[at] < line else None


async def _cut(source: TextSource, line: str, number: int, match: _Match) -> str:
    """The line, or where it is long the part around its match and the offset to read on from."""
    if len(line) <= _LINE_CHARS:
        return line
    start = max(0, match.column - _BEFORE_MATCH_CHARS)
    part = line[start : start + _LINE_CHARS]
    offset = await source.offset_of_line(number) + start
    return f"…{part}… [line of {len(line)} characters; this part is at offset={offset}]"
