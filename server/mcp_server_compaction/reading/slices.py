"""Select the requested part of a stored text, and say how to read the next part.

A part is an exact copy of the stored text, with two exceptions: each line of messages in plain text
starts with its number, and so does each matching line. A note describes the part.

A JSON path selects a value of a stored JSON text:

    $.items[0].name    a field of the first element    $.items[-1]    the last element
    $.items[2:5]       a range of elements             $.items[*].id  one field of each element
    $["odd key"]       a key with special characters

Filters and recursive descent of full JSONPath are not supported, because with them a short path
could take unlimited time.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
from anyio import to_thread
from context_compaction import QueryError, is_list, is_object, open_matcher

from mcp_server_compaction.protocol.schemas import MAX_READ_CHARS, ReadArguments
from mcp_server_compaction.reading.text_source import MemorySource, TextSource, split_lines

# Together with its note a default answer stays below 8,000 characters.
DEFAULT_CHARS = 7_000
PATTERN_SECONDS = 5.0
_MAX_MATCHES = 60  # default limit
_CONTEXT_LINES = (16, 8, 4, 2, 0)  # numbers of lines to try before and after each match
_BATCH_LINES = 5_000
_LINE_CHARS = 800  # a longer line is truncated in a list of matches
MAX_JSON_CHARS = 64_000_000
_SHOWN_KEYS = 20
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"'*\s]+|\*) | \[(?P<key>"(?:[^"\\]|\\.)*"|'[^']*')\]
    | \[(?P<index>\*|-?\d+|-?\d*:-?\d*)\]""",
    re.VERBOSE,
)
Step: TypeAlias = str | int | slice


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text.

    Attributes:
        text: The part itself.
        note: Which part it is, and how to read the next part.
    """

    text: str
    note: str


async def read_part(source: TextSource, arguments: ReadArguments) -> TextPart:
    """Return the part of `source` that `arguments` select.

    Raises:
        QueryError: The part starts after the end of the text, or the pattern or path is invalid.
    """
    if arguments.json_path is not None:
        source = await source_at(source, arguments.json_path)
    if arguments.pattern is not None:
        return await _read_matches(source, arguments, arguments.pattern)
    if arguments.offset is not None:
        return await _read_characters(source, arguments.offset, arguments.limit)
    if arguments.tail is not None:
        return await _read_lines(source, -arguments.tail, arguments.limit or arguments.tail)
    return await _read_lines(source, arguments.start_line or 1, arguments.limit)


async def _read_characters(source: TextSource, offset: int, limit: int | None) -> TextPart:
    if offset > source.size_chars:
        raise QueryError(
            f"offset {offset} is after the end: {source.pointer} has {source.size_chars} "
            "characters. Pass a smaller offset."
        )
    text = await source.characters(offset, min(limit or DEFAULT_CHARS, MAX_READ_CHARS))
    stop = offset + len(text)
    note = f"Characters {offset}-{stop} of {source.size_chars}. {_next_offset(source, stop)}"
    return TextPart(text, note)


async def _read_lines(source: TextSource, start_line: int, limit: int | None) -> TextPart:
    """Return whole lines, or the beginning of a line that is too long for one answer."""
    if start_line > max(1, source.line_count):
        raise QueryError(
            f"start_line {start_line} is after the end: {source.pointer} has "
            f"{source.line_count} lines. Pass a smaller number, or tail."
        )
    # More lines than characters cannot fit, because each line has at least its newline.
    part = await source.lines(start_line, min(limit or DEFAULT_CHARS, DEFAULT_CHARS))
    text = part.text
    if source.headings:  # each line begins with its number, as in a list of matches
        numbered = enumerate(split_lines(text), part.start_line)
        text = "".join(f"{number}:{line}" for number, line in numbered)
    if len(text) > DEFAULT_CHARS:
        whole_lines_chars = text.rfind("\n", 0, DEFAULT_CHARS) + 1
        if whole_lines_chars == 0:
            return await _start_of_line(source, part.start_line, part.text[:DEFAULT_CHARS])
        text = text[:whole_lines_chars]
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    stop_line = part.start_line + count - 1
    lines = f"Lines {part.start_line}-{stop_line}" if count else "No lines"
    form = " as NUMBER:TEXT" if source.headings and count else ""
    is_end = stop_line >= source.line_count
    next_part = "End of text." if is_end else f"Continue with start_line={stop_line + 1}."
    total = f"{source.line_count}{form} ({source.size_chars} characters in total)"
    return TextPart(text, f"{lines} of {total}. {next_part}")


async def _start_of_line(source: TextSource, line: int, text: str) -> TextPart:
    start = await source.offset_of_line(line)
    stop = start + len(text)
    return TextPart(
        text,
        f"Beginning of line {line} of {source.line_count}, which is too long for one answer: "
        f"characters {start}-{stop} of {source.size_chars}. For JSON, json_path reads one value. "
        f"{_next_offset(source, stop)}",
    )


def _next_offset(source: TextSource, stop: int) -> str:
    return f"Continue with offset={stop}." if stop < source.size_chars else "End of text."


async def _read_matches(source: TextSource, arguments: ReadArguments, pattern: str) -> TextPart:
    """Return the matching lines as `grep -n` does, with as many context lines as fit."""
    start_line = arguments.start_line or 1
    limit = arguments.limit or _MAX_MATCHES
    context_lines = arguments.context
    if context_lines is None:
        # A caller that continues from a later line is listing matches, so show no context lines.
        context_lines = 0 if arguments.start_line else _CONTEXT_LINES[0]
    lines, columns = await _find(source, pattern, start_line, limit, context_lines)
    if not columns:
        return TextPart("", f"No line of {source.line_count} matches. Try another pattern.")
    positions = [*columns]
    texts = await _match_texts(source, start_line, lines, [*columns.items()][:limit])
    text, shown_count, shown_lines = "", 0, context_lines
    for shown_lines in [context_lines, *(n for n in _CONTEXT_LINES if n < context_lines)]:
        text, shown_count = await _listing(source, start_line, lines, texts, shown_lines)
        if shown_count == len(texts):
            break
    next_part = "No more matches."
    if shown_count < len(positions):
        next_part = f"Continue with start_line={start_line + positions[shown_count]}."
    is_reduced = arguments.context is not None and shown_lines < context_lines
    reduced = " Fewer context lines than requested, so that all matches fit." if is_reduced else ""
    return TextPart(
        text,
        f"Matching lines of {source.line_count} as NUMBER:TEXT, context lines as NUMBER-TEXT. Long "
        f"lines are truncated around the match.{reduced} {next_part}",
    )


async def _listing(
    source: TextSource,
    start_line: int,
    lines: Sequence[str],
    texts: Mapping[int, str],
    context_lines: int,
) -> tuple[str, int]:
    """Return a list of matches with context lines, and the number of matches that fit an answer.

    Args:
        source: The text that was searched.
        start_line: Number of the first line in `lines`.
        lines: The lines that were read.
        texts: Text of each matching line, truncated if long, by its index in `lines`.
        context_lines: Number of lines before and after each match.
    """

    def context(start: int, stop: int) -> list[str]:
        numbered = enumerate(lines[start:stop], start_line + start)
        return [f"{number}-{line[:_LINE_CHARS]}" for number, line in numbered]

    listed: list[str] = []
    listed_chars = listed_stop = 0
    stops = [*texts, len(lines)][1:]
    for count, (position, text) in enumerate(texts.items()):
        first = max(position - context_lines, listed_stop)
        stop = min(position + context_lines + 1, stops[count])
        block = ["--"] if listed and first > listed_stop else []
        block += await _heading(source, start_line + listed_stop, start_line + first)
        block += context(first, position)
        block += [f"{start_line + position}:{text}", *context(position + 1, stop)]
        listed_chars += sum(len(line) + 1 for line in block)
        if listed and listed_chars > DEFAULT_CHARS:
            return "\n".join(listed), count
        listed += block
        listed_stop = stop
    return "\n".join(listed), len(texts)


async def _heading(source: TextSource, after_line: int, line: int) -> list[str]:
    """Return the heading of the message that contains `line`, unless it is before `after_line`."""
    index = bisect_right(source.headings, line) - 1
    if index < 0 or not after_line <= source.headings[index] < line:
        return []
    heading = await source.lines(source.headings[index], 1)
    return [f"{source.headings[index]}-{heading.text.rstrip()}"]


async def _find(
    source: TextSource, pattern: str, start_line: int, limit: int, context_lines: int
) -> tuple[list[str], dict[int, int]]:
    """Return the lines that were read from `start_line`, and up to `limit` + 1 matches.

    A match is the index of a line, and the index of its first matching character. The pattern is
    searched as plain text and, if it is valid, as a regular expression, because models write both.

    Raises:
        QueryError: The pattern is invalid, or the search takes longer than `PATTERN_SECONDS`.
    """
    lines: list[str] = []
    matches: list[tuple[int, int]] = []
    async with open_matcher(pattern, also_as_text=True) as matcher:
        with anyio.move_on_after(PATTERN_SECONDS) as timeout:
            while start_line + len(lines) <= source.line_count:
                batch = await source.lines(start_line + len(lines), _BATCH_LINES)
                new_lines = batch.text.removesuffix("\n").split("\n")
                columns = enumerate(await matcher(new_lines), len(lines))
                matches += [(position, column) for position, column in columns if column >= 0]
                lines += new_lines
                if len(matches) > limit and len(lines) > matches[limit][0] + context_lines:
                    break
    if timeout.cancelled_caught:
        raise QueryError(
            f"The search for pattern {pattern[:80]!r} takes longer than {PATTERN_SECONDS:g} "
            "seconds. Pass a simpler pattern."
        )
    return lines, dict(matches[: limit + 1])


async def _match_texts(
    source: TextSource, start_line: int, lines: Sequence[str], matches: Sequence[tuple[int, int]]
) -> dict[int, str]:
    """Return the text of each match until they fill an answer, by its index in `lines`.

    A long line is truncated around its match and names the offset of the part.
    """
    texts: dict[int, str] = {}
    for position, column in matches:
        line = lines[position]
        if len(line) > _LINE_CHARS:
            start = max(0, column - _LINE_CHARS // 8)
            offset = await source.offset_of_line(start_line + position) + start
            part = line[start : start + _LINE_CHARS]
            line = f"…{part}… [line of {len(line)} characters; this part is at offset={offset}]"
        texts[position] = line
        if sum(map(len, texts.values())) > DEFAULT_CHARS:
            break
    return texts


async def source_at(source: TextSource, path: str) -> TextSource:
    """Return the value of `source` at `path`: a string as it is, other values as indented JSON.

    Raises:
        QueryError: The path is invalid or matches nothing, or the text is not JSON.
    """
    if source.size_chars > MAX_JSON_CHARS:
        raise QueryError(
            f"{source.pointer} has {source.size_chars} characters, but json_path reads at most "
            f"{MAX_JSON_CHARS}. Read it by lines, or pass a pattern."
        )
    text = await source.characters(0, source.size_chars)
    value_text = await to_thread.run_sync(_text_at, source.pointer, text, path)
    return MemorySource(f"{source.pointer} {path}", value_text)


def _text_at(pointer: str, text: str, path: str) -> str:
    try:
        value = value_at(_load(pointer, text), path)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    except RecursionError as error:
        raise QueryError(
            f"{pointer} is nested too deeply for json_path. Read it by lines."
        ) from error


def _load(pointer: str, text: str) -> Any:
    """Return the JSON document; JSON lines (messages, receipts) become a list."""
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        except ValueError:
            raise QueryError(
                f"{pointer} is not JSON ({error}), so json_path cannot be used. Read it by lines, "
                "or pass a pattern."
            ) from error


def value_at(document: Any, path: str) -> Any:
    """Return the value at `path`; a list if the path contains a `*` or a range.

    Raises:
        QueryError: The path is invalid or matches nothing.
    """
    values = [document]
    is_list_path = False
    matched_path = "$"
    for step, step_text in _steps(path):
        next_values = [inner for value in values for inner in _values_at(value, step)]
        is_list_path |= isinstance(step, slice)
        if not next_values and not is_list_path:
            raise QueryError(
                f"{matched_path} is {_description(values[0])}, so {step_text!r} matches nothing. "
                "Correct the json_path."
            )
        values = next_values
        matched_path += step_text
    return values if is_list_path else values[0]


def _steps(path: str) -> list[tuple[Step, str]]:
    """Return each step of a path, and its text."""
    rest = path.strip().removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[tuple[Step, str]] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise QueryError(
                f"Invalid json_path {path[:80]!r} at {rest[position:][:40]!r}. Write it as "
                '$.items[0].name, $.items[2:5], $.items[*].id or $["odd key"].'
            )
        try:
            steps.append((_parse_step(match), match[0]))
        except ValueError as error:  # the key is not a JSON string, or an index has too many digits
            raise QueryError(
                f"Invalid json_path at {match[0][:40]!r}: {error}. Correct this step."
            ) from error
        position = match.end()
    return steps


def _parse_step(match: re.Match[str]) -> Step:
    name, key, index = match.groups()
    if key is not None:
        return str(json.loads(key)) if key[0] == '"' else str(key[1:-1])
    if "*" in (name, index):
        return slice(None)
    if index is None:
        return str(name)
    bounds = [int(bound) if bound else None for bound in index.split(":")]
    return slice(*bounds) if ":" in index else int(index)


def _values_at(value: Any, step: Step) -> list[Any]:
    """Return what `step` selects from a value; nothing if the step does not fit its type."""
    if is_object(value):
        if isinstance(step, str):
            return [value[step]] if step in value else []
        return list(value.values()) if step == slice(None) else []
    if not is_list(value) or isinstance(step, str):
        return []
    if isinstance(step, slice):
        return list(value[step])
    return [value[step]] if -len(value) <= step < len(value) else []


def _description(value: Any) -> str:
    if is_object(value):
        keys = ", ".join(map(json.dumps, list(value)[:_SHOWN_KEYS])) or "none"
        more = ", ..." if len(value) > _SHOWN_KEYS else ""
        return f"an object with the keys {keys}{more}"
    return f"a list of {len(value)} elements" if is_list(value) else json.dumps(value)[:80]
