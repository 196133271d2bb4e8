"""JSON as lines for a reader: records of one shape as one header and rows, without the signs.

Used where a large result is previewed, and where a summary contains a tool's answer.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_compaction.messages.model import is_list, is_object

_TOO_DEEP = "…"
# What is nested deeper is left out.
_MOST_DEPTH = 8


def parsed_json(text: str, most_chars: int = 100_000) -> Any:
    """The JSON object or list that `text` is; None where it is neither, or too long to look at."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > most_chars:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) or is_list(value) else None


def shown(value: Any, depth: int = 0) -> str:
    """A JSON value on one line without the signs that its words do not need."""
    if depth > _MOST_DEPTH:
        return _TOO_DEEP
    if is_object(value):
        told = ((key, shown(item, depth + 1)) for key, item in value.items())
        inner = ", ".join(f"{key}: {text}" for key, text in told if text)
        return f"({inner})" if inner else ""
    if is_list(value):
        if len(value) > 1 and _have_one_shape(value):
            columns = _columns(value, depth + 1)
            rows = zip(*(cells for _, cells in columns.values()), strict=True)
            titles = ", ".join(title for title, _ in columns.values())
            return f"({titles}) {' + '.join(map(', '.join, rows))}"
        return ", ".join(shown(item, depth + 1) for item in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())


def named(values: Mapping[str, Any]) -> str:
    """Values by name on one line, as the arguments of a call are told; what is null is none."""
    given = ((key, value) for key, value in values.items() if value is not None)
    told = ((key, v if isinstance(v, str) else shown(v)) for key, v in given)
    return ", ".join(f"{key}={text}" for key, text in told)


def table_of(values: Sequence[Any]) -> tuple[str, list[str]] | None:
    """The keys of records of one shape, and a row for each; None for other values.

    What is the same in all is contained once, beside the keys. A value may be a list of these.
    """
    groups = [value if is_list(value) else [value] for value in values]
    records = [record for group in groups for record in group]
    # Fewer records are told with their keys.
    if len(groups) < 3 or not all(groups) or not _have_one_shape(records):
        return None
    columns = _columns(records)
    varied = [key for key, (_, cells) in columns.items() if len(set(cells)) > 1] or list(columns)
    # What a record is known by goes before what it holds, and values before prose: a row that is
    # cut short loses the end of a text, not a verdict behind it.
    flat = [key for key in varied if not _holds(records[0][key])]
    # What is longer is a text, not a value.
    flat.sort(key=lambda key: max(map(len, columns[key][1])) > 60)
    nested = [key for key in varied if _holds(records[0][key])]
    common = ", ".join(f"{key}: {shown(records[0][key])}" for key in columns if key not in varied)
    header = " | ".join(columns[key][0] for key in (*flat, *nested))
    rows: list[str] = []
    stop = 0
    for group in groups:
        at = range(stop, stop := stop + len(group))
        parts = (
            " + ".join(" | ".join(columns[key][1][n] for key in keys) for n in at)
            for keys in (flat, nested)
            if keys
        )
        rows.append(" | ".join(parts))
    return f"{header}{f' (all: {common})' if common else ''}", rows


def _columns(records: Sequence[Any], depth: int = 0) -> dict[str, tuple[str, list[str]]]:
    """The title and the cells of each column; records in a cell share their keys in the title."""
    columns: dict[str, tuple[str, list[str]]] = {}
    for key in records[0]:
        values = [record[key] for record in records]
        if _have_one_shape(values) and not any(
            _holds(v) for value in values for v in value.values()
        ):
            cells = ["/".join(map(shown, value.values())) for value in values]
            columns[key] = f"{key} ({'/'.join(values[0])})", cells
        else:
            columns[key] = key, [shown(value, depth) for value in values]
    return columns


def _have_one_shape(values: Sequence[Any]) -> bool:
    """Whether all values are records with the same keys, and with some."""
    return (
        all(map(is_object, values))
        and len({tuple(value) for value in values}) == 1
        and bool(values[0])
    )


def _holds(value: Any) -> bool:
    """Whether a value contains others."""
    return is_object(value) or is_list(value)


def lines(data: Any, depth: int = 0) -> Iterator[str]:
    """A JSON value as lines: each member on its own, a list of records as header and rows."""
    if is_list(data):
        found = table_of(data)
        if found:
            yield f"{len(data)} records: {found[0]}"
            yield from found[1]
        else:
            yield from map(shown, data)
        return
    for key, value in data.items():
        if is_list(value) and value and depth < _MOST_DEPTH and is_object(value[0]):
            first, *rest = lines(value, depth + 1)
            yield from (f"{key}: {first}", *rest)
        elif is_object(value) and depth < _MOST_DEPTH and len(shown(value)) > 160:
            yield from (f"{key} {line}" for line in lines(value, depth + 1))
        else:
            yield f"{key}: {shown(value)}"
