"""Cutting out the part of a stored text that was asked for, and saying how to get the next.

A part is exact: its text is the stored text and nothing else, but for the numbers before the lines
of messages that read as plain text. A note beside it names what it is and how to go on.
"""

from dataclasses import dataclass

from context_compaction.errors import QueryError

from mcp_server_compaction.protocol.schemas import MAX_READ_CHARS, ReadArguments
from mcp_server_compaction.reading.grep import find_matches
from mcp_server_compaction.reading.json_path import source_at
from mcp_server_compaction.reading.text_source import TextSource

# With the note beside it an answer stays below 8,000 characters unless more is asked for.
DEFAULT_CHARS = 7_000


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
    return TextPart(
        text, f"Characters {offset}-{stop} of {source.size_chars}. {_next_chars(source, stop)}"
    )


async def _lines(source: TextSource, start_line: int, limit: int | None) -> TextPart:
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
    further = (
        f"Go on with start_line={stop_line + 1}."
        if stop_line < source.line_count
        else "That is the end."
    )
    form = " as NUMBER:TEXT" if source.headings and count else ""
    size = f"{source.line_count}{form} ({source.size_chars} characters in all)"
    return TextPart(text, f"{shown} of {size}. {further}")


def _numbered(text: str, start_line: int) -> str:
    """`text` with the number of each line before it, as a pattern's matches have theirs."""
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
    return TextPart(
        found.text,
        f"Matching lines of {source.line_count} as NUMBER:TEXT, context as NUMBER-TEXT; a long "
        f"line is cut around its match. {further}",
    )
