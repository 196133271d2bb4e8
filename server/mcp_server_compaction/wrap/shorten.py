"""Shorten large tool results: long texts become a preview and the ID of the archived text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from context_compaction import (
    Blob,
    JsonObject,
    compact_json,
    is_list,
    is_object,
    make_blob,
    redact,
)

from mcp_server_compaction.protocol.tools.persist_large_output import marker_of

CountTokens: TypeAlias = Callable[[str], int]
_Path: TypeAlias = tuple[str | int, ...]

# Field with the pointer in a shortened object, if its schema allows other fields.
POINTER_FIELD = "persisted_output"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for tool results.

    Attributes:
        threshold_tokens: Token limit for the texts of a result, and for its structured content.
            Each is limited separately, because hosts show the model one or the other.
        preview_chars: Number of characters that remain of a long text.
        count_tokens: Counts the tokens of a text.
        redacts: Whether secrets are removed from previews.
    """

    threshold_tokens: int
    preview_chars: int
    count_tokens: CountTokens
    redacts: bool = False

    def is_large(self, text: str) -> bool:
        """Whether `text` is above the threshold."""
        # A token has at least one byte, and a character at most four.
        if len(text) <= self.threshold_tokens // 4:
            return False
        return self.count_tokens(text) > self.threshold_tokens


def shorten(
    result: JsonObject, limits: Limits, *, tool_name: str, output_schema: Any = None
) -> tuple[JsonObject, tuple[Blob, ...]]:
    """Return a tool's result with shorter texts, and the outputs to archive before it is sent.

    Texts, texts of embedded resources and structured content are shortened. Media, links and all
    other fields stay. If nothing is large, the result itself is returned.

    Args:
        result: A `CallToolResult` as JSON.
        limits: Limits for the result.
        tool_name: Name of the tool.
        output_schema: JSON Schema of the structured content; None if the tool has none.
    """
    shortener = _Shortener(limits, tool_name)
    content = result.get("content")
    after = dict(result)
    if is_list(content):
        after["content"] = shortener.blocks(content)
    structured = result.get("structuredContent")
    if is_object(structured) and limits.is_large(compact_json(structured)):
        shorter, pointer = shortener.structured(structured)
        is_closed = (
            is_object(output_schema) and output_schema.get("additionalProperties", True) is not True
        )
        if pointer and not is_closed:
            shorter = {**shorter, POINTER_FIELD: pointer}
        elif pointer:
            block = {"type": "text", "text": pointer}
            after["content"] = [*(after.get("content") or ()), block]
        after["structuredContent"] = shorter
    text = compact_json(after)
    blobs = tuple(blob for blob in shortener.blobs.values() if blob.output_id in text)
    return (after, blobs) if blobs else (result, ())


class _Shortener:
    """Shortens the texts of one result, and collects them in `blobs` by their IDs."""

    def __init__(self, limits: Limits, tool_name: str) -> None:
        self._limits = limits
        self._tool_name = tool_name
        self.blobs: dict[str, Blob] = {}

    def blocks(self, content: Sequence[Any]) -> Sequence[Any]:
        """Replace long texts by markers, and many short texts by one marker for all of them."""
        limits = self._limits
        changed = self._markers(dict(_texts_of(content)))
        after: Sequence[Any] = _with(content, changed)
        texts = dict(_texts_of(after))
        short = [int(path[0]) for path in texts if path not in changed]
        joined = "\n".join(_readable(content[index]) for index in short)
        is_small = not limits.is_large("\n".join(texts.values()))
        if is_small or len(short) < 2 or len(joined) <= limits.preview_chars:
            return after
        marker = {"type": "text", "text": self._marker(joined)}
        return [
            marker if index == short[0] else block
            for index, block in enumerate(after)
            if index not in short[1:]
        ]

    def structured(self, value: JsonObject) -> tuple[JsonObject, str]:
        """Shorten the texts of an object, then its lists, so that it still fits its schema.

        Returns:
            The object, and a pointer to the whole object. The pointer is empty if the object has
            all items of its lists.
        """
        limits = self._limits
        texts = {path: item for path, item in _walk(value) if isinstance(item, str)}
        after: JsonObject = _with(value, self._markers(texts))
        if not limits.is_large(compact_json(after)):
            return after, ""
        while limits.is_large(compact_json(after)) and (longest := _longest_list(after)):
            path, items = longest
            after = _with(after, {path: items[: len(items) // 2]})
        blob = self._add(compact_json(value))
        return after, f"Truncated. Full content: read_persisted_output {blob.output_id}"

    def _markers(self, texts: Mapping[_Path, str]) -> dict[_Path, str]:
        """Return markers for the longest texts, until all texts are within the threshold."""
        limits = self._limits
        if not limits.is_large("\n".join(texts.values())):
            return {}
        tokens = {path: limits.count_tokens(text) for path, text in texts.items()}
        total = sum(tokens.values())
        markers: dict[_Path, str] = {}
        for path in sorted(texts, key=lambda path: -tokens[path]):
            if total <= limits.threshold_tokens or len(texts[path]) <= limits.preview_chars:
                break
            markers[path] = self._marker(texts[path])
            total += limits.count_tokens(markers[path]) - tokens[path]
        return markers

    def _marker(self, text: str) -> str:
        blob = self._add(text)
        text = redact(text) if self._limits.redacts else text
        return marker_of(blob, text, self._tool_name, self._limits.preview_chars)

    def _add(self, text: str) -> Blob:
        blob = make_blob(text, tool_name=self._tool_name)
        return self.blobs.setdefault(blob.output_id, blob)


def _texts_of(content: Sequence[Any]) -> Iterator[tuple[_Path, str]]:
    """Yield the texts of blocks and embedded resources."""
    for index, block in enumerate(content):
        if not is_object(block):
            continue
        resource = block.get("resource")
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            yield (index, "text"), block["text"]
        elif is_object(resource) and isinstance(resource.get("text"), str):
            yield (index, "resource", "text"), resource["text"]


def _readable(block: JsonObject) -> str:
    """Return the text of a block; for a resource with its address in the first line."""
    resource = block.get("resource")
    return f"{resource.get('uri')}\n{resource['text']}" if is_object(resource) else block["text"]


def _walk(value: Any) -> Iterator[tuple[_Path, Any]]:
    """Yield every value inside `value`, without recursion because servers may nest deeply."""
    waiting: list[tuple[_Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        yield path, item
        if is_object(item):
            waiting += [((*path, key), member) for key, member in item.items()]
        elif is_list(item):
            waiting += [((*path, index), member) for index, member in enumerate(item)]


def _longest_list(value: Any) -> tuple[_Path, list[Any]] | None:
    """Return the list with the longest JSON; None if no list has more than one item."""
    lists = [(path, item) for path, item in _walk(value) if is_list(item) and len(item) > 1]
    return max(lists, key=lambda entry: len(compact_json(entry[1])), default=None)


def _with(value: Any, changes: Mapping[_Path, Any]) -> Any:
    """Return `value` with other values at some paths. Unchanged parts are shared."""
    if () in changes:
        return changes[()]
    by_key: dict[str | int, dict[_Path, Any]] = {}
    for path, new in changes.items():
        by_key.setdefault(path[0], {})[path[1:]] = new
    if not by_key:
        return value
    if is_object(value):
        return {key: _with(item, by_key.get(key, {})) for key, item in value.items()}
    return [_with(item, by_key.get(index, {})) for index, item in enumerate(value)]
