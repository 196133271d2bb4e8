"""Cache markers of the host: a message without them, and where they go when blocks are replaced.

Hosts move `cache_control` from block to block at every turn, and a message is the same with and
without. It stands on a message, a block, or a block within a result, in whatever format; anywhere
deeper (the arguments of a call) the name is the host's own data, and stays.

Bedrock's Converse API has `cachePoint` instead, a block of its own behind the one that it marks.

A host marks at most four blocks in a request. A marker whose block was replaced would leave the new
prefix unmarked until the host sets it anew, and so unread from the cache: one that left with
history moves to the summary. Only what was there is moved, so the number of markers never grows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    JsonObject,
    Message,
    Messages,
    Opaque,
    Text,
    is_list,
    is_object,
)

CACHE_MARKER = "cache_control"
CACHE_POINT = "cachePoint"
_TEXT_TYPES = ("text", "input_text", "output_text")


def without_cache_markers(raw: JsonObject) -> JsonObject:
    """`raw` without cache markers; all else as it is."""
    return _unmarked_with(raw, lambda parts: parts)


def canonical_form(raw: JsonObject) -> JsonObject:
    """What two messages have in common that differ in cache markers only.

    Some hosts write a text as a block where it carries a marker, and as a plain string otherwise:
    what a message says, and what a tool answered.
    """
    return _unmarked_with(raw, _as_string)


def _unmarked_with(raw: JsonObject, write: Callable[[list[Any]], Any]) -> JsonObject:
    """`raw` without cache markers, each of its lists of parts as `write` returns it."""
    message: JsonObject = _unmarked(raw)
    match message:
        case {"content": [*blocks]}:
            kept = [_unmarked_block(block, write) for block in blocks if not is_cache_point(block)]
            return {**message, "content": write(kept)}
        case {"type": "function_call_output", "output": [*parts]}:
            return {**message, "output": write([_unmarked(part) for part in parts])}
        case _:
            return message


def _unmarked_block(block: Any, write: Callable[[list[Any]], Any]) -> Any:
    found = _unmarked(block)
    match found:
        case {"type": "tool_result", "content": [*parts]}:
            return {**found, "content": write([_unmarked(part) for part in parts])}
        case _:
            return found


def _as_string(parts: list[Any]) -> Any:
    """The text of `parts` where they are one plain text; else themselves."""
    match parts:
        case [{"type": kind, "text": str(text), **more}] if kind in _TEXT_TYPES and not more:
            return text
        case _:
            return parts


def cache_marker_count(raw: JsonObject) -> int:
    """How many cache markers are in a message."""
    blocks = _list_in(raw, "content")
    parts = [part for block in blocks for part in _list_in(block, "content")]
    marked = (raw, *blocks, *parts)
    return sum(_unmarked(value) is not value or is_cache_point(value) for value in marked)


def _list_in(holder: Any, key: str) -> list[Any]:
    found = holder.get(key) if is_object(holder) else None
    return found if is_list(found) else []


def is_cache_point(block: Any) -> bool:
    """Whether a block is Converse's marker: one that holds nothing else."""
    return isinstance(block, dict) and CACHE_POINT in block


def _unmarked(value: Any) -> Any:
    if not is_object(value) or CACHE_MARKER not in value:
        return value
    return {key: item for key, item in value.items() if key != CACHE_MARKER}


def cache_markers(messages: Messages) -> list[Any]:
    """The markers of `messages`, in order."""
    return [marker for message in messages for marker in _markers_of(message)]


def keep_cache_markers(lost: Sequence[Any], after: Messages) -> Messages:
    """`after`, its last summary marked where one of the markers `lost` is missing in it."""
    if not lost or len(cache_markers(after)) >= len(lost):
        return after
    made = [at for at, message in enumerate(after) if placeholders.span_replaced_by(message)]
    # A summary of ours that came in as the host's own object is not touched.
    if not made or after[made[-1]].source is not None:
        return after
    at = made[-1]
    return (*after[:at], _marked(after[at], lost[0]), *after[at + 1 :])


def _markers_of(message: Message) -> list[Any]:
    within = [
        block.source[CACHE_MARKER]
        for block in message.blocks
        if block.source is not None and block.source.get(CACHE_MARKER) is not None
    ]
    if not (points := cache_points(message)):
        return within
    at = (point for block in message.blocks for point in points.get(id(block.source), ()))
    return [*within, *at]


def cache_points(message: Message) -> dict[int, list[JsonObject]]:
    """The cache points in the host's object, by the identity of the block that each follows.

    They are no blocks of the message: where its block was replaced, a point has no place.
    """
    found: dict[int, list[JsonObject]] = {}
    before: object = None
    for block in _list_in(message.source, "content"):
        if is_cache_point(block):
            found.setdefault(id(before), []).append(block)
        else:
            before = block
    return found


def _marked(message: Message, marker: Any) -> Message:
    (block,) = message.blocks
    if not isinstance(block, Text):
        return message
    if is_cache_point(marker):
        return replace(message, blocks=(block, Opaque(CACHE_POINT, marker)))
    source = {"type": "text", "text": block.text, CACHE_MARKER: marker}
    return replace(message, blocks=(replace(block, source=source),))
