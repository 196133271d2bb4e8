r"""Read the value at a path of a stored JSON text.

    $.items[0].name    a field of the first element    $.items[-1]    the last element
    $.items[2:5]       a range of elements             $.items[*].id  one field of each element
    $["odd key"]       a key with special characters

Filters and recursive descent of full JSONPath are not supported, because with them a short path
could take unlimited time.
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
    | \[(?P<index>\*|-?\d+|-?\d*:-?\d*)\]""",
    re.VERBOSE,
)

Step: TypeAlias = str | int | slice


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
