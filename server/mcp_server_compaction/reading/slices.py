"""Cutting out the part of a stored text that was asked for, and saying how to get the next.

A part is exact: its text is the stored text and nothing else, but for the numbers before the lines
of messages that read as plain text. A note beside it names what it is and how to go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from context_compaction.activity.json_rows import parsed_json
from context_compaction.errors import QueryError
from context_compaction.messages.model import compact_json

from mcp_server_compaction.protocol.schemas import MAX_READ_CHARS, ReadArguments
from mcp_server_compaction.protocol.tools.answers import shortened
from mcp_server_compaction.reading.grep import find_matches
from mcp_server_compaction.reading.json_path import MAX_JSON_CHARS, source_at
from mcp_server_compaction.reading.text_source import TextSource

# With the note beside it an answer stays below 8,000 characters unless more is asked for.
DEFAULT_CHARS = 7_000

# Of messages that are read at once and do not fit, each has at least this much, or all of it.
LEAST_SHARE_CHARS = 300
_HEAD_SHARE = 2 / 3  # of what is shown of one; the rest is its end, where results say what came
_LEFT_OUT_CHARS = 40  # that say which lines were left out
_SHORT_JSON = (
    "JSON, its long texts and lists cut to fit: json_path reads one of them whole, offset=0 the "
    "exact text."
)


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
    if arguments.start_line is None and not (arguments.as_json or arguments.json_path):
        return await _lines(source, 1, arguments.limit, is_shortened=True)
    return await _lines(source, arguments.start_line or 1, arguments.limit)


async def _characters(source: TextSource, offset: int, limit: int | None) -> TextPart:
    if offset > source.size_chars:
        raise QueryError(
            f"offset {offset} lies behind the end: {source.pointer} has {source.size_chars} "
            "characters. Give a smaller offset."
        )
    text = await source.characters(offset, min(limit or DEFAULT_CHARS, MAX_READ_CHARS))
    stop = offset + len(text)
    return TextPart(
        text, f"Characters {offset}-{stop} of {source.size_chars}. {_next_chars(source, stop)}"
    )


async def _lines(
    source: TextSource, start_line: int, limit: int | None, *, is_shortened: bool = False
) -> TextPart:
    """Whole lines; where `is_shortened` and they don't fit, some of each message or JSON field."""
    if start_line > max(1, source.line_count):
        raise QueryError(
            f"start_line {start_line} lies behind the end: {source.pointer} has "
            f"{source.line_count} lines. Give a smaller number, or tail."
        )
    # Every line has its newline at least, so more lines than characters cannot be shown.
    found = await source.lines(start_line, min(limit or DEFAULT_CHARS, DEFAULT_CHARS))
    text = _numbered(found.text, found.start_line) if source.headings else found.text
    if len(text) > DEFAULT_CHARS:
        if is_shortened and (shorter := await _shortened_part(source)):
            return shorter
        whole = text.rfind("\n", 0, DEFAULT_CHARS) + 1
        if whole == 0:
            return await _long_line(source, found.start_line, found.text[:DEFAULT_CHARS])
        text = text[:whole]
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    stop_line = found.start_line + count - 1
    shown = f"Lines {found.start_line}-{stop_line}" if count else "No lines"
    further = (
        f"Go on with start_line={stop_line + 1}."
        if stop_line < source.line_count
        else "That is the end."
    )
    form = " as NUMBER:TEXT" if source.headings and count else ""
    size = f"{source.line_count}{form} ({source.size_chars} characters in all)"
    return TextPart(text, f"{shown} of {size}. {further}")


async def _shortened_part(source: TextSource) -> TextPart | None:
    """What does not fit, with some of all that is in it; None where its parts are not known."""
    if len(source.headings) > 1:
        return await _some_of_each(source)
    if source.line_count > 1 or source.size_chars > MAX_JSON_CHARS:
        return None
    shorter = _short_json(await source.characters(0, source.size_chars))
    return TextPart(shorter, _SHORT_JSON) if shorter else None


async def _some_of_each(source: TextSource) -> TextPart:
    """Messages that do not fit: of each its share, of the long ones beginning and end.

    Who asks for several wants to know what happened in them, and most of what is long is a file
    that was read, or a log.
    """
    lines = (await source.lines(1, source.line_count)).text.split("\n")
    bounds = [*source.headings, source.line_count + 1]
    messages = [
        [f"{number}:{lines[number - 1]}" for number in range(*span)] for span in pairwise(bounds)
    ]
    sizes = [sum(len(line) + 1 for line in message) for message in messages]
    shares = fair_shares(sizes, DEFAULT_CHARS, LEAST_SHARE_CHARS)
    shown = [
        message if size <= share else _ends(message, share)
        for message, size, share in zip(messages, sizes, shares, strict=False)
    ]
    stop_line = bounds[len(shown)] - 1
    further = (
        f"Go on with start_line={stop_line + 1}."
        if stop_line < source.line_count
        else "That is the end."
    )
    return TextPart(
        "\n".join(line for message in shown for line in message),
        f"Lines 1-{stop_line} of {source.line_count} as NUMBER:TEXT ({source.size_chars} "
        "characters in all); of long messages the middle is left out: read it with start_line. "
        f"{further}",
    )


def fair_shares(sizes: Sequence[int], room: int, least: int) -> list[int]:
    """What each of several texts may have of a room: all of it, or what is left for the long ones.

    Args:
        sizes: What each would take.
        room: For all of them.
        least: A text that cannot have so much, or all of it, ends the list, as do those behind it.
    """
    needed = accumulate(min(size, least) for size in sizes)
    count = max(1, sum(total <= room for total in needed))
    shares = [0] * count
    for rank, at in enumerate(sorted(range(count), key=sizes.__getitem__)):
        shares[at] = min(sizes[at], room // (count - rank))
        room -= shares[at]
    return shares


def _ends(lines: Sequence[str], max_chars: int) -> list[str]:
    """The first and the last lines of a message that is longer, and which are left out."""
    room = max_chars - _LEFT_OUT_CHARS
    first = [_clipped(line, room // 2) for line in lines]
    head = _count_within(first, int(room * _HEAD_SHARE))
    room -= sum(len(line) + 1 for line in first[:head])
    last = [_clipped(line, room) for line in lines[head:]]
    tail = _count_within(last[::-1], room)
    left_out = last[: len(last) - tail]
    if sum(len(line) + 1 for line in left_out) <= _LEFT_OUT_CHARS:
        return [*first[:head], *last]
    start, stop = (line.partition(":")[0] for line in (left_out[0], left_out[-1]))
    return [*first[:head], f"[lines {start}-{stop} left out]", *last[len(left_out) :]]


def _clipped(line: str, max_chars: int) -> str:
    if len(line) < max_chars:
        return line
    return f"{line[: max_chars - _LEFT_OUT_CHARS]}… [line of {len(line)} characters]"


def _count_within(lines: Sequence[str], max_chars: int) -> int:
    """How many of the first lines fit."""
    return sum(total <= max_chars for total in accumulate(len(line) + 1 for line in lines))


def _numbered(text: str, start_line: int) -> str:
    """`text` with the number of each line before it, as a pattern's matches have theirs."""
    lines = text.split("\n")
    ends = lines.pop()
    last = [f"{start_line + len(lines)}:{ends}"] if ends else [""]
    return "\n".join([*(f"{at}:{line}" for at, line in enumerate(lines, start_line)), *last])


def _short_json(text: str) -> str | None:
    """A JSON text with what is long in it cut, so that all of its fields show; None if it is none.

    Of a service's reply the first characters are often those of one long text among many fields.
    """
    value = parsed_json(text, MAX_JSON_CHARS)
    if value is None:
        return None
    try:
        shorter = compact_json(shortened(value, DEFAULT_CHARS))
    except RecursionError:
        return None
    return shorter if len(shorter) <= DEFAULT_CHARS else None


async def _long_line(source: TextSource, line: int, text: str) -> TextPart:
    start = await source.offset_of_line(line)
    stop = start + len(text)
    return TextPart(
        text,
        f"The beginning of line {line} of {source.line_count}, which is too long for one answer: "
        f"characters {start}-{stop} of {source.size_chars}. {_next_chars(source, stop)}",
    )


def _next_chars(source: TextSource, stop: int) -> str:
    return f"Go on with offset={stop}." if stop < source.size_chars else "That is the end."


async def _matching_lines(source: TextSource, arguments: ReadArguments, pattern: str) -> TextPart:
    # Who goes on with the next matches lists them.
    context_lines = 0 if arguments.start_line and arguments.context is None else arguments.context
    found = await find_matches(
        source,
        pattern,
        start_line=arguments.start_line or 1,
        context_lines=context_lines,
        limit=arguments.limit,
        max_chars=DEFAULT_CHARS,
    )
    if not found.text:
        return TextPart("", f"No line of {source.line_count} matches. Try another pattern.")
    further = (
        f"Go on with start_line={found.next_line}."
        if found.next_line
        else "There are no more matches."
    )
    fewer = " Less context than asked for, so that the matches fit." if found.is_narrowed else ""
    return TextPart(
        found.text,
        f"Matching lines of {source.line_count} as NUMBER:TEXT, context as NUMBER-TEXT; a long "
        f"line is cut around its match.{fewer} {further}",
    )
