"""A host's own message as JSON: without private text, without cache markers, and its hash.

Private text is what the user marks with `<private>…</private>`: only the model sees it. It stays in
the host's own message. The archive, search, outputs, summaries, rules and notes are made from the
message without it.

Hosts move `cache_control` to another block at every turn, and a message with and without it is the
same message. The marker is on a message, a block, or a block in a result. At a deeper level, such
as the arguments of a call, the name is the host's own data and stays. Bedrock's Converse API uses
`cachePoint` instead: a block of its own after the marked block. A host marks at most four blocks in
a request. If history with a marker is replaced, the marker moves to the summary. Otherwise the new
prefix would not be cached until the host marks it. The number of markers never grows.

Hashes identify a conversation: one per message, chained into one per branch. The branch head is the
chain hash of the last message and covers all messages before it. Two lists share a prefix exactly
as far as their chain hashes agree, so one lookup per message finds the prefix that a session
already has. All hashes ignore cache markers.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, cast

from context_compaction.messages import model, placeholders
from context_compaction.messages.cache import MAX_MESSAGES, Key, RecentCache, json_key

# 128 bits, so that branches of one archive never collide by chance.
_HASH_BYTES = 16
_canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
# The chain hash of an empty list.
ROOT = ""
# Length of a branch head in pointers: 48 bits, for the branches of one session.
HEAD_CHARS = 12
_content_hashes: RecentCache[str] = RecentCache(MAX_MESSAGES)
_CACHE_MARKER = "cache_control"
CACHE_POINT = "cachePoint"
_TEXT_TYPES = ("text", "input_text", "output_text")
HIDDEN = "[The user marked text here as private. It is not stored.]"
_TAG = re.compile(r"<(/?)private>", re.IGNORECASE)
# Tool results in a user's message are not searched, because they may be about such tags.
_RESULT_KEYS = frozenset({"functionResponse", "function_response", "toolResult"})


def hide_private(raw: Any) -> Any:
    """Return a host's message without private text of the user; the same object without any."""
    is_users = model.is_object(raw) and raw.get("role", "user" if "parts" in raw else "") == "user"
    return _without_private(raw) if is_users else raw


def _without_private(value: Any) -> Any:
    if isinstance(value, str):
        return _hide_in_text(value)
    if model.is_list(value):
        items = [_without_private(item) for item in value]
        return value if model.is_same(items, value) else items
    if not model.is_object(value) or value.get("type") == "tool_result":
        return cast("Any", value)
    changed = {
        key: public
        for key, item in value.items()
        if key not in _RESULT_KEYS and (public := _without_private(item)) is not item
    }
    return value | changed if changed else value


def _hide_in_text(text: str) -> str:
    """Return `text` with each outermost private passage replaced."""
    if "rivate>" not in text and "RIVATE>" not in text:
        return text
    parts: list[str] = []
    depth = position = start = 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                parts += (text[position:start], HIDDEN)
                position = tag.end()
    return "".join((*parts, text[position:])) if parts else text


def without_cache_markers(raw: model.JsonObject) -> model.JsonObject:
    """Return `raw` without cache markers, otherwise unchanged."""
    return _normalized(raw, lambda parts: parts)


def canonical_form(raw: model.JsonObject) -> model.JsonObject:
    """Return the form that messages share if they differ only in cache markers.

    Some hosts write a text as a block if it has a marker, and as a string otherwise.
    """
    return _normalized(raw, _as_string)


def _normalized(raw: model.JsonObject, convert: Callable[[list[Any]], Any]) -> model.JsonObject:
    """Return `raw` without cache markers, with each list of parts passed through `convert`."""
    message: model.JsonObject = _unmarked(raw)
    match message:
        case {"content": [*blocks]}:
            converted = [_normalized_block(b, convert) for b in blocks if not _is_cache_point(b)]
            return {**message, "content": convert(converted)}
        case {"type": "function_call_output", "output": [*parts]}:
            return {**message, "output": convert([_unmarked(part) for part in parts])}
        case _:
            return message


def _normalized_block(raw: Any, convert: Callable[[list[Any]], Any]) -> Any:
    block = _unmarked(raw)
    match block:
        case {"type": "tool_result", "content": [*parts]}:
            return {**block, "content": convert([_unmarked(part) for part in parts])}
        case _:
            return block


def _as_string(parts: list[Any]) -> Any:
    """Return the text of `parts` if they are one plain text; else `parts`."""
    match parts:
        case [{"type": kind, "text": str(text), **more}] if kind in _TEXT_TYPES and not more:
            return text
        case _:
            return parts


def cache_marker_count(raw: model.JsonObject) -> int:
    """Return the number of cache markers in a message."""
    blocks = _list_in(raw, "content")
    parts = [part for block in blocks for part in _list_in(block, "content")]
    values = (raw, *blocks, *parts)
    return sum(_unmarked(value) is not value or _is_cache_point(value) for value in values)


def _list_in(container: Any, key: str) -> list[Any]:
    value = container.get(key) if model.is_object(container) else None
    return value if model.is_list(value) else []


def _is_cache_point(block: Any) -> bool:
    return isinstance(block, dict) and CACHE_POINT in block


def _unmarked(value: Any) -> Any:
    if not model.is_object(value) or _CACHE_MARKER not in value:
        return value
    return {key: item for key, item in value.items() if key != _CACHE_MARKER}


def cache_markers(messages: model.Messages) -> list[Any]:
    """Return the markers of `messages`, in order."""
    return [marker for message in messages for marker in _markers_of(message)]


def keep_cache_markers(markers: Sequence[Any], after: model.Messages) -> model.Messages:
    """Return `after` with the first of `markers` on its last summary if a marker is missing."""
    if not markers or len(cache_markers(after)) >= len(markers):
        return after
    indices = [i for i, message in enumerate(after) if placeholders.span_replaced_by(message)]
    # An earlier summary that the host passed as its own object is not edited.
    if not indices or after[indices[-1]].source is not None:
        return after
    index = indices[-1]
    return (*after[:index], _marked(after[index], markers[0]), *after[index + 1 :])


def _markers_of(message: model.Message) -> list[Any]:
    markers = [
        block.source[_CACHE_MARKER]
        for block in message.blocks
        if block.source is not None and block.source.get(_CACHE_MARKER) is not None
    ]
    points = cache_points(message)
    return markers + [p for block in message.blocks for p in points.get(id(block.source), ())]


def cache_points(message: model.Message) -> dict[int, list[model.JsonObject]]:
    """Return the cache points of the host's message, by the identity of the preceding block.

    They are not blocks of the message. The cache point of a replaced block disappears.
    """
    points: dict[int, list[model.JsonObject]] = {}
    previous: object = None
    for block in _list_in(message.source, "content"):
        if _is_cache_point(block):
            points.setdefault(id(previous), []).append(block)
        else:
            previous = block
    return points


def _marked(message: model.Message, marker: Any) -> model.Message:
    (block,) = message.blocks
    if not isinstance(block, model.Text):
        return message
    if _is_cache_point(marker):
        return replace(message, blocks=(block, model.Opaque(CACHE_POINT, marker)))
    source = {"type": "text", "text": block.text, _CACHE_MARKER: marker}
    return replace(message, blocks=(replace(block, source=source),))


def content_hash(raw: Any, key: Key | None = None) -> str:
    """Return the hex hash of a host's message, independent of key order and cache markers.

    Args:
        raw: The message.
        key: The `json_key` of `raw`, if the caller has it.

    Raises:
        TypeError, ValueError, RecursionError: The value cannot be written as JSON.
    """
    # Cached, because a list is passed again at every turn and sorting keys is slow.
    key = json_key(raw) if key is None else key
    return _content_hashes.get_or_compute(key, lambda: _content_hash(raw))


def _content_hash(raw: Any) -> str:
    text = _canonical_json(canonical_form(raw))
    return blake2b(text.encode("ascii"), digest_size=_HASH_BYTES).hexdigest()


def chain_hash(parent: str, content: str) -> str:
    """Return the head of the branch that adds a message with the hash `content` to `parent`."""
    return blake2b((parent + content).encode("ascii"), digest_size=_HASH_BYTES).hexdigest()


def chain_hashes(contents: Sequence[str], parent: str = ROOT) -> list[str]:
    """Return the branch head after each of `contents`, starting from `parent`."""
    chain: list[str] = []
    for content in contents:
        parent = chain_hash(parent, content)
        chain.append(parent)
    return chain


def history_hash(raws: Iterable[Any]) -> str:
    """Return the head of the branch of the host's messages `raws`.

    It is the ID under which an archive stores that branch.

    Raises:
        TypeError, ValueError, RecursionError: A value cannot be written as JSON.
    """
    parent = ROOT
    for raw in raws:
        parent = chain_hash(parent, content_hash(raw))
    return parent
