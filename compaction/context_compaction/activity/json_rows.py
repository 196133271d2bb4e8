"""JSON as lines for a reader, without the signs that its words do not need."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from context_compaction.messages.model import is_list, is_object


def parsed_json(text: str, most_chars: int = 100_000) -> Any:
    """The JSON object or list that `text` is; None if it is neither, or too long to look at."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > most_chars:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) or is_list(value) else None


def shown(value: Any, depth: int = 0) -> str:
    """A JSON value on one line."""
    if depth > 8:  # what is nested deeper is left out
        return "…"
    if is_object(value):
        members = ((key, shown(item, depth + 1)) for key, item in value.items())
        inner = ", ".join(f"{key}: {text}" for key, text in members if text)
        return f"({inner})" if inner else ""
    if is_list(value):
        return ", ".join(shown(item, depth + 1) for item in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())


def named(values: Mapping[str, Any]) -> str:
    """Values by name on one line, without those that are null."""
    given = ((key, value) for key, value in values.items() if value is not None)
    return ", ".join(f"{key}={v if isinstance(v, str) else shown(v)}" for key, v in given)


def lines(data: Any, depth: int = 0) -> Iterator[str]:
    """A JSON value as lines, each member on its own."""
    if is_list(data):
        yield from map(shown, data)
        return
    for key, value in data.items():
        is_nested = is_object(value) or (is_list(value) and value and is_object(value[0]))
        if is_nested and depth < 8 and len(shown(value)) > 160:
            yield from (f"{key} {line}" for line in lines(value, depth + 1))
        else:
            yield f"{key}: {shown(value)}"
