"""Shorten large tool results: long texts become a preview and the ID of the archived text."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from context_compaction import Blob, JsonObject, compact_json, is_list, is_object, make_blob, redact

from mcp_server_compaction.protocol.tools.archived import marker_of

CountTokens: TypeAlias = Callable[[str], int]

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
        return self.tokens(text) > self.threshold_tokens

    def tokens(self, text: str) -> int:
        """Return the tokens of `text`; for a huge text its characters, because counting is slow."""
        # The longest token of the vocabulary has 128 bytes.
        if len(text) > 128 * self.threshold_tokens:
            return len(text)
        return self.count_tokens(text)


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

    def blocks(self, content: Sequence[Any]) -> list[Any]:
        """Replace long texts by markers, and many short texts by one marker for all of them."""
        limits = self._limits
        block_texts = enumerate(map(_text_of, content))
        texts = {index: text for index, text in block_texts if text is not None}
        markers = self._markers([*texts.values()])
        after = list(content)
        for index, text in texts.items():
            if text in markers:
                after[index] = _with_text(content[index], markers[text])
        short = [index for index, text in texts.items() if text not in markers]
        joined = "\n".join(_readable(content[index]) for index in short)
        shown = "\n".join(markers.get(text, text) for text in texts.values())
        if len(short) < 2 or len(joined) <= limits.preview_chars or not limits.is_large(shown):
            return after
        after[short[0]] = {"type": "text", "text": self._marker(joined)}
        return [block for index, block in enumerate(after) if index not in short[1:]]

    def structured(self, value: JsonObject) -> tuple[JsonObject, str]:
        """Shorten the texts of an object, then its lists, so that it still fits its schema.

        Returns:
            The object, and a pointer to the whole object. The pointer is empty if the object has
            all items of its lists.
        """
        limits = self._limits
        markers = self._markers([item for item in _items(value) if isinstance(item, str)])
        after = _with_markers(value, markers)
        if not limits.is_large(compact_json(after)):
            return after, ""
        while limits.is_large(compact_json(after)):
            lists = [item for item in _items(after) if is_list(item) and len(item) > 1]
            if not lists:
                break
            longest = max(lists, key=lambda items: len(compact_json(items)))
            del longest[len(longest) // 2 :]
        blob = self._add(compact_json(value))
        return after, f"Truncated. Full content: read_persisted_output {blob.output_id}"

    def _markers(self, texts: Sequence[str]) -> dict[str, str]:
        """Return markers for the longest texts, until all texts are within the threshold."""
        limits = self._limits
        if not limits.is_large("\n".join(texts)):
            return {}
        counts = Counter(texts)
        tokens = {text: limits.tokens(text) for text in counts}
        total = sum(tokens[text] for text in texts)
        markers: dict[str, str] = {}
        for text in sorted(counts, key=lambda text: -tokens[text]):
            if total <= limits.threshold_tokens or len(text) <= limits.preview_chars:
                break
            markers[text] = self._marker(text)
            total += counts[text] * (limits.count_tokens(markers[text]) - tokens[text])
        return markers

    def _marker(self, text: str) -> str:
        blob = self._add(text)
        text = redact(text) if self._limits.redacts else text
        return marker_of(blob, text, self._tool_name, self._limits.preview_chars)

    def _add(self, text: str) -> Blob:
        blob = make_blob(text, tool_name=self._tool_name)
        return self.blobs.setdefault(blob.output_id, blob)


def _text_of(block: Any) -> str | None:
    """Return the text of a block or of its embedded resource; None if it has no text."""
    if not is_object(block):
        return None
    holder = block if block.get("type") == "text" else block.get("resource")
    text = holder.get("text") if is_object(holder) else None
    return text if isinstance(text, str) else None


def _with_text(block: JsonObject, text: str) -> JsonObject:
    resource = block.get("resource")
    if block.get("type") != "text" and is_object(resource):
        return {**block, "resource": {**resource, "text": text}}
    return {**block, "text": text}


def _readable(block: JsonObject) -> str:
    """Return the text of a block; for a resource with its address in the first line."""
    resource = block.get("resource")
    return f"{resource.get('uri')}\n{resource['text']}" if is_object(resource) else block["text"]


def _items(value: Any) -> Iterator[Any]:
    """Yield `value` and every value inside it."""
    yield value
    if is_object(value) or is_list(value):
        for item in value.values() if is_object(value) else value:
            yield from _items(item)


def _with_markers(value: Any, markers: Mapping[str, str]) -> Any:
    """Return a deep copy of `value` with markers instead of some texts."""
    if isinstance(value, str):
        return markers.get(value, value)
    if is_object(value):
        return {key: _with_markers(item, markers) for key, item in value.items()}
    return [_with_markers(item, markers) for item in value] if is_list(value) else value
