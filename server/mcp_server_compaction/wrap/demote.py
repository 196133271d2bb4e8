"""A tool's result made small: long texts become a preview and the id of the whole. Pure."""

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

# Where the id of a shortened object stands, if its schema lets it have another field.
POINTER_FIELD = "persisted_output"


@dataclass(frozen=True, slots=True)
class Demotion:
    """How results are demoted.

    Attributes:
        threshold_tokens: A result above this is demoted, its texts and its structured content each
            by itself, since hosts show a model the one or the other.
        preview_chars: What stays of each long text.
        count_tokens: Counts a text.
        redacts: Whether previews show no secrets.
    """

    threshold_tokens: int
    preview_chars: int
    count_tokens: CountTokens
    redacts: bool = False

    def is_large(self, text: str) -> bool:
        """Whether `text` is above the threshold; a text has at most as many tokens as bytes."""
        if len(text) <= self.threshold_tokens // 4:  # no character has more than four bytes
            return False
        return self.count_tokens(text) > self.threshold_tokens


def demote(
    result: JsonObject, demotion: Demotion, *, tool_name: str, output_schema: Any = None
) -> tuple[JsonObject, tuple[Blob, ...]]:
    """`result` (a `CallToolResult` as JSON) with its large texts demoted; itself if none is.

    With it, what must be stored before it may be passed on.

    Texts, texts of embedded resources and structured content are made smaller. Images, sounds and
    links stay, and so does every field that is not named here.
    """
    demoted = _Replacer(demotion, tool_name)
    content = result.get("content")
    after = dict(result)
    if is_list(content):
        after["content"] = demoted.blocks(content)
    structured = result.get("structuredContent")
    if is_object(structured) and demotion.is_large(compact_json(structured)):
        shorter, pointer = demoted.structured(structured)
        if pointer and not _is_closed(output_schema):
            shorter = {**shorter, POINTER_FIELD: pointer}
        elif pointer:
            block = {"type": "text", "text": pointer}
            after["content"] = [*(after.get("content") or ()), block]
        after["structuredContent"] = shorter
    named = compact_json(after)
    blobs = tuple(blob for blob in demoted.blobs.values() if blob.output_id in named)
    return (after, blobs) if blobs else (result, ())


def _is_closed(schema: Any) -> bool:
    """Whether an object of `schema` may have no field that the schema does not name."""
    return is_object(schema) and schema.get("additionalProperties", True) is not True


class _Replacer:
    """What one result's texts become; remembers the blobs that they are kept in."""

    def __init__(self, demotion: Demotion, tool_name: str) -> None:
        self._demotion = demotion
        self._tool_name = tool_name
        self.blobs: dict[str, Blob] = {}

    def blocks(self, content: Sequence[Any]) -> Sequence[Any]:
        """The blocks with markers for long texts, and one for many short ones, as rows are."""
        changed = self.texts_within(dict(_texts_of(content)))
        after: Sequence[Any] = _with(content, changed)
        shown = dict(_texts_of(after))
        short = [int(path[0]) for path in shown if path not in changed]
        text = "\n".join(_as_text(content[at]) for at in short)
        is_within = not self._demotion.is_large("\n".join(shown.values()))
        if is_within or len(short) < 2 or len(text) <= self._demotion.preview_chars:
            return after
        joined = {short[0]: {"type": "text", "text": self._marker(text)}}
        gone = short[1:]
        return [joined.get(at, block) for at, block in enumerate(after) if at not in gone]

    def texts_within(self, texts: Mapping[_Path, str]) -> dict[_Path, str]:
        """Markers for the longest of `texts`, until all of them are within the threshold."""
        demotion = self._demotion
        if not demotion.is_large("\n".join(texts.values())):
            return {}
        tokens = {path: demotion.count_tokens(text) for path, text in texts.items()}
        total = sum(tokens.values())
        changed: dict[_Path, str] = {}
        for path in sorted(texts, key=lambda path: -tokens[path]):
            if total <= demotion.threshold_tokens or len(texts[path]) <= demotion.preview_chars:
                break
            changed[path] = self._marker(texts[path])
            total += demotion.count_tokens(changed[path]) - tokens[path]
        return changed

    def structured(self, value: JsonObject) -> tuple[JsonObject, str]:
        """The object with the types that its schema asks for: shorter texts, then fewer items.

        With it, where items are left out, the text that says where the whole is.
        """
        texts = {path: found for path, found in _walk(value) if isinstance(found, str)}
        after: JsonObject = _with(value, self.texts_within(texts))
        if not self._demotion.is_large(compact_json(after)):
            return after, ""
        while self._demotion.is_large(compact_json(after)) and (longest := _longest_list(after)):
            path, items = longest
            after = _with(after, {path: items[: len(items) // 2]})
        blob = self._keep(compact_json(value))
        return after, f"Cut; kept whole: read_persisted_output {blob.output_id}"

    def _marker(self, text: str) -> str:
        blob = self._keep(text)
        text = redact(text) if self._demotion.redacts else text
        return marker_of(blob, text, self._tool_name, self._demotion.preview_chars)

    def _keep(self, text: str) -> Blob:
        blob = make_blob(text, tool_name=self._tool_name)
        return self.blobs.setdefault(blob.output_id, blob)


def _texts_of(content: Sequence[Any]) -> Iterator[tuple[_Path, str]]:
    """The texts of a result's blocks, and of resources embedded in it."""
    for index, block in enumerate(content):
        if not is_object(block):
            continue
        resource = block.get("resource")
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            yield (index, "text"), block["text"]
        elif is_object(resource) and isinstance(resource.get("text"), str):
            yield (index, "resource", "text"), resource["text"]


def _as_text(block: JsonObject) -> str:
    """The text of a block where it stands among others; a resource's behind its address."""
    resource = block.get("resource")
    return f"{resource.get('uri')}\n{resource['text']}" if is_object(resource) else block["text"]


def _walk(value: Any) -> Iterator[tuple[_Path, Any]]:
    """`value` and everything in it; a stack of its own, since servers may nest deeply."""
    waiting: list[tuple[_Path, Any]] = [((), value)]
    while waiting:
        where, found = waiting.pop()
        yield where, found
        if is_object(found):
            waiting += [((*where, key), item) for key, item in found.items()]
        elif is_list(found):
            waiting += [((*where, index), item) for index, item in enumerate(found)]


def _longest_list(value: Any) -> tuple[_Path, list[Any]] | None:
    """The list of more than one item that takes most room."""
    lists = [(path, found) for path, found in _walk(value) if is_list(found) and len(found) > 1]
    return max(lists, key=lambda found: len(compact_json(found[1])), default=None)


def _with(value: Any, changed: Mapping[_Path, Any]) -> Any:
    """`value` with others at some of its paths; what is not on the way there is shared."""
    if () in changed:
        return changed[()]
    by_key: dict[str | int, dict[_Path, Any]] = {}
    for path, new in changed.items():
        by_key.setdefault(path[0], {})[path[1:]] = new
    if not by_key:
        return value
    if is_object(value):
        return {key: _with(item, by_key.get(key, {})) for key, item in value.items()}
    return [_with(item, by_key.get(index, {})) for index, item in enumerate(value)]
