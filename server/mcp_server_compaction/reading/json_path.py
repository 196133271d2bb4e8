"""The value at a path of a stored JSON text, as a text of its own.

    $.items[0].name    a field of the first element        $.items[-1]    the last element
    $.items[2:5]       some elements                       $.items[*].id  one field of each
    $["odd key"]       a key that is no plain word

That much and no more: filters and recursive descent, which full JSONPath has, would let one short
path cost any time.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from anyio import to_thread
from context_compaction.errors import QueryError
from context_compaction.formats.parsing import list_or_none, object_or_none

from mcp_server_compaction.reading.text_source import MemorySource, TextSource

MAX_JSON_CHARS = 64_000_000
_SHOWN_KEYS = 20
_STEP = re.compile(
    r"""
    \.(?P<name>[^.\[\]"'*\s]+) | \[(?P<quoted>"(?:[^"\\]|\\.)*")\] | \['(?P<single>[^']*)'\]
    | \[(?P<index>-?\d+)\] | \[(?P<start>-?\d*):(?P<stop>-?\d*)\] | (?P<all>\.\*|\[\*\])
    """,
    re.VERBOSE,
)

Step: TypeAlias = str | int | slice


async def source_at(source: TextSource, path: str) -> TextSource:
    """The value of `source` at `path`: a string as it reads, all else as indented JSON.

    Raises:
        QueryError: The path cannot be read or leads nowhere, or the text is no JSON.
    """
    if source.size_chars > MAX_JSON_CHARS:
        raise QueryError(
            f"{source.pointer} has {source.size_chars} characters, too many for a json_path "
            f"(at most {MAX_JSON_CHARS}). Read it by lines, or use a pattern."
        )
    text = await source.characters(0, source.size_chars)
    found = await to_thread.run_sync(_text_at, source.pointer, text, path)
    return MemorySource(f"{source.pointer} {path}", found)


def _text_at(pointer: str, text: str, path: str) -> str:
    try:
        value = value_at(_load(pointer, text), path)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    except RecursionError as error:
        raise QueryError(
            f"{pointer} nests too deeply for a json_path. Read it by lines."
        ) from error


def value_at(document: Any, path: str) -> Any:
    """The value of a JSON document at `path`; a list where the path has a `*` or a range.

    Raises:
        QueryError: The path cannot be read, or leads nowhere.
    """
    values = [document]
    walked = "$"
    is_many = False
    for step, written in _steps(path):
        if is_many:
            values = [inner for value in values for inner in _each(value, step)]
        elif isinstance(step, slice):
            values = _each(values[0], step)
            is_many = True
        else:
            values = [_one(values[0], step, walked)]
        walked += written
    return values if is_many else values[0]


def _steps(path: str) -> list[tuple[Step, str]]:
    rest = path.strip().removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[tuple[Step, str]] = []
    position = 0
    while position < len(rest):
        found = _STEP.match(rest, position)
        if found is None:
            raise QueryError(
                f"The json_path {path[:80]!r} cannot be read from {rest[position:][:40]!r} on. "
                'Write it as $.items[0].name, $.items[2:5], $.items[*].id or $["odd key"].'
            )
        try:
            steps.append((_step_of(found), found.group()))
        except ValueError as error:  # a key that is no JSON string, or thousands of digits
            raise QueryError(
                f"The json_path cannot be read at {found.group()[:40]!r}: {error}. "
                "Correct that step."
            ) from error
        position = found.end()
    return steps


def _step_of(found: re.Match[str]) -> Step:
    part = found.groupdict()
    if part["quoted"] is not None:
        return str(json.loads(part["quoted"]))
    if part["index"] is not None:
        return int(part["index"])
    if part["all"] is not None:
        return slice(None)
    if part["start"] is not None:
        return slice(*(int(end) if end else None for end in (part["start"], part["stop"])))
    return str(part["name"] if part["single"] is None else part["single"])


def _one(value: Any, step: str | int, walked: str) -> Any:
    """What stands at one step, which must be there."""
    found = _each(value, step)
    if found:
        return found[0]
    fields, elements = object_or_none(value), list_or_none(value)
    if fields is not None:
        keys = ", ".join(map(json.dumps, list(fields)[:_SHOWN_KEYS])) or "none"
        more = ", ..." if len(fields) > _SHOWN_KEYS else ""
        there = f"an object with the keys {keys}{more}"
    elif elements is not None:
        there = f"a list of {len(elements)} elements"
    else:
        there = f"{json.dumps(value)[:80]}"
    raise QueryError(f"At {walked} stands {there}; {step!r} leads nowhere.")


def _each(value: Any, step: Step) -> list[Any]:
    """What a step finds in a value: nothing where it does not fit."""
    fields, elements = object_or_none(value), list_or_none(value)
    if isinstance(step, str):
        return [fields[step]] if fields is not None and step in fields else []
    if isinstance(step, slice):
        if fields is not None:
            return list(fields.values()) if step == slice(None) else []
        return list((elements or ())[step])
    return _element(elements or (), step)


def _element(elements: Sequence[Any], index: int) -> list[Any]:
    return [elements[index]] if -len(elements) <= index < len(elements) else []


def _load(pointer: str, text: str) -> Any:
    """The document; JSON lines (messages, receipts) are a list of them."""
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        except ValueError:
            raise QueryError(
                f"{pointer} is no JSON ({error}), so a json_path leads nowhere in it. Read it by "
                "lines, or use a pattern."
            ) from error
