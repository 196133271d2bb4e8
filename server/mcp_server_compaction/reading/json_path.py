"""The value at a path of a stored JSON text, as a text of its own.

    $.items[0].name    a field of the first element        $.items[-1]    the last element
    $.items[2:5]       some elements                       $.items[*].id  one field of each
    $["odd key"]       a key that is no plain word

That much and no more: filters and recursive descent, which full JSONPath has, would let one short
path cost any time.
"""

import json
import re
from typing import Any, TypeAlias

from anyio import to_thread
from context_compaction import QueryError, is_list, is_object

from mcp_server_compaction.reading.text_source import MemorySource, TextSource

MAX_JSON_CHARS = 64_000_000
_SHOWN_KEYS = 20
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"'*\s]+|\*) | \[(?P<key>"(?:[^"\\]|\\.)*"|'[^']*')\]
    | \[(?P<place>\*|-?\d+|-?\d*:-?\d*)\]""",
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


def value_at(document: Any, path: str) -> Any:
    """The value of a JSON document at `path`; a list where the path has a `*` or a range.

    Raises:
        QueryError: The path cannot be read, or leads nowhere.
    """
    values = [document]
    walked = "$"
    is_many = False
    for step, written in _steps(path):
        found = [inner for value in values for inner in _each(value, step)]
        is_many = is_many or isinstance(step, slice)
        if not found and not is_many:
            raise QueryError(f"At {walked} is {_outline(values[0])}; {step!r} leads nowhere.")
        values = found
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
    name, key, place = found.groups()
    if key is not None:
        return str(json.loads(key)) if key[0] == '"' else str(key[1:-1])
    if "*" in (name, place):
        return slice(None)
    if place is None:
        return str(name)
    ends = [int(end) if end else None for end in place.split(":")]
    return slice(*ends) if ":" in place else int(place)


def _each(value: Any, step: Step) -> list[Any]:
    """What a step finds in a value: nothing where it does not fit."""
    if is_object(value):
        if isinstance(step, str):
            return [value[step]] if step in value else []
        return list(value.values()) if step == slice(None) else []
    if not is_list(value) or isinstance(step, str):
        return []
    if isinstance(step, slice):
        return list(value[step])
    return [value[step]] if -len(value) <= step < len(value) else []


def _outline(value: Any) -> str:
    if is_object(value):
        keys = ", ".join(map(json.dumps, list(value)[:_SHOWN_KEYS])) or "none"
        more = ", ..." if len(value) > _SHOWN_KEYS else ""
        return f"an object with the keys {keys}{more}"
    return f"a list of {len(value)} elements" if is_list(value) else json.dumps(value)[:80]
