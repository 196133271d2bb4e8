"""A message as it is whatever cache markers its host has set.

Hosts move `cache_control` from block to block at every turn, and a message is the same with and
without. It stands on a message, a block, or a block within a result; anywhere deeper (the
arguments of a call) the name is the host's own data, and stays.
"""

from typing import Any, cast

from context_compaction.messages import JsonObject

CACHE_MARKER = "cache_control"


def without_cache_markers(raw: JsonObject) -> JsonObject:
    """`raw` without cache markers; all else as it is."""
    message: JsonObject = _unmarked(raw)
    match message:
        case {"content": [*blocks]}:
            return {**message, "content": [_without_in_block(block) for block in blocks]}
        case _:
            return message


def normal_form(raw: JsonObject) -> JsonObject:
    """What two messages have in common that differ in cache markers only.

    Some hosts write a text as a block where it carries a marker, and as a plain string otherwise.
    """
    message = without_cache_markers(raw)
    match message:
        case {"content": [{"type": "text", "text": str(text), **more}]} if not more:
            return {**message, "content": text}
        case _:
            return message


def _without_in_block(block: Any) -> Any:
    found = _unmarked(block)
    match found:
        case {"type": "tool_result", "content": [*parts]}:
            return {**found, "content": [_unmarked(part) for part in parts]}
        case _:
            return found


def _unmarked(value: Any) -> Any:
    match value:
        case {"cache_control": _, **rest}:
            return cast("JsonObject", rest)
        case _:
            return value
