"""OpenAI's Responses API: a flat list of items, one `Message` each.

Calls and their outputs are items of their own; `_CALLS` and `_OUTPUTS` list their types and fields.
Items of other types (hosted tools, `compaction`, `item_reference` and others) are opaque.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from context_compaction.formats.base import (
    BLOCK_TYPES,
    UNKNOWN_FILE,
    MessageFormat,
    Node,
    document_from_data,
    dumps,
    image_from_url,
    list_or_none,
    loads_or_text,
    media_file_name,
    media_url,
    object_or_none,
    string_or_list,
    text_or_none,
    weigh_content,
)
from context_compaction.messages import model
from context_compaction.messages.tool_pairs import ProviderRules

_ROLES: dict[str, model.Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# By type of a call: the field with its arguments, and the tool's name if the item has none.
_CALLS: dict[str, tuple[str, str]] = {
    "function_call": ("arguments", ""),
    "custom_tool_call": ("input", ""),
    "local_shell_call": ("action", "local_shell"),
    "shell_call": ("action", "shell"),
    "apply_patch_call": ("operation", "apply_patch"),
    "computer_call": ("action", "computer"),
}
_OUTPUTS = {kind: f"{kind}_output" for kind in _CALLS}
_KNOWN_KINDS = {*_CALLS, *_OUTPUTS.values(), "reasoning", "item_reference", "compaction"}
RULES = ProviderRules(
    joins_assistant_messages=True,
    refuses_trailing_thinking=True,
    unique_call_ids=True,
    unique_item_ids=True,
    outputs=_OUTPUTS,
)

_PART_TYPES = BLOCK_TYPES["openai-responses"]
_CHAT_FIELDS = {"tool_calls", "function_call", "tool_call_id", "stopReason"}
_TEXT_TYPES = {"input_text", "output_text", "text"}
# The output of a computer must be a screenshot. This transparent pixel replaces a cleared one.
_BLANK_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAC"
    "hwGA60e6kgAAAABJRU5ErkJggg=="
)


def recognises(item: model.JsonObject) -> int:
    """Return how well an item fits; see `MessageFormat.recognises`."""
    kind = text_or_none(item.get("type"))
    if kind in _KNOWN_KINDS:
        return 2
    if "role" not in item:
        # An unknown type, or an item_reference, whose type is optional. OpenAI writes types of
        # several words like "web_search_call", and other libraries do not.
        has_type = kind is not None and "_" in kind and not {"message", "payload"} & item.keys()
        is_reference = kind is None and "id" in item and item.keys() <= {"type", "id"}
        return 1 if has_type or is_reference else 0
    if text_or_none(item["role"]) not in _ROLES or kind not in {None, "message"}:
        return 0
    if _CHAT_FIELDS & item.keys():
        return 0
    return weigh_content(item.get("content"), "openai-responses")


def parse(item: Node) -> model.Message:
    """Parse one item; raises `InvalidMessageError`."""
    raw, kind = item.raw, item.raw.get("type")
    if kind is not None and not isinstance(kind, str):
        item.refuse("the item's `type` is not a string", 'Give one such as "function_call".')
    role: model.Role = "assistant"
    if kind == "message" or (kind is None and "role" in raw):
        role = item.role(_ROLES, 'Give "user", "assistant", "system" or "developer".')
        blocks: tuple[model.Block, ...] = item.content(_parse_part)
    elif kind in _CALLS:
        blocks = (_parse_call(item, kind),)
    elif kind is not None and kind in _OUTPUTS.values():
        role, blocks = "user", (_parse_output(item, kind),)
    elif kind == "reasoning":
        blocks = (_parse_reasoning(item),)
    elif kind is None and "id" not in raw:
        item.refuse("the item has neither `type` nor `role`", 'Give {"type": "message", ...}.')
    else:
        blocks = (model.Opaque(kind or "item_reference", raw),)
    return model.Message(role, blocks, source=raw, index=item.index)


def _parse_part(part: Node) -> model.Part:
    kind, raw = part.kind(), part.raw
    if kind in _TEXT_TYPES:
        return model.Text(part.text("text"), source=raw)
    url, data = raw.get("image_url"), raw.get("file_data")
    if kind in {"input_image", "computer_screenshot"} and isinstance(url, str):
        return image_from_url(url, raw)
    if kind == "input_file" and isinstance(data, str):
        return document_from_data(data, raw)
    if kind == "input_file" and isinstance(raw.get("file_url"), str):
        return model.Document(UNKNOWN_FILE, url=raw["file_url"], source=raw)
    return model.Opaque(kind, raw)


def _call_id(item: Node, kind: str) -> str:
    """Return the ID that joins call and output; older local shell items only have `id`."""
    is_older = kind.startswith("local_shell") and "call_id" not in item.raw
    return item.name("id" if is_older else "call_id", "Give the id of the call.")


def _parse_call(item: Node, kind: str) -> model.ToolCall:
    key, tool = _CALLS[kind]
    arguments: Any = item.raw.get(key)
    if kind == "function_call":
        arguments = loads_or_text(item.text(key, "Give the arguments as JSON text."))
    elif kind == "custom_tool_call":
        arguments = item.text(key)
    return model.ToolCall(
        _call_id(item, kind), tool or item.name("name"), arguments, source=item.raw
    )


def _parse_output(item: Node, kind: str) -> model.ToolResult:
    output = item.raw.get("output")
    parts: tuple[model.Part, ...] = ()
    if kind == "computer_call_output":
        parts = (_parse_part(item.object("output")),)
    elif kind == "shell_call_output" and not isinstance(output, str):
        chunks = [chunk.raw for chunk in item.objects("output", "Give a string or an array.")]
        texts = [str(chunk.get(key) or "") for chunk in chunks for key in ("stdout", "stderr")]
        parts = (model.Text("\n".join(filter(None, texts))),)
    elif kind != "apply_patch_call_output" or output is not None:
        parts = item.content(_parse_part, "output")
    return model.ToolResult(_call_id(item, kind), parts, source=item.raw)


def _parse_reasoning(item: Node) -> model.Thinking:
    keys = [key for key in ("summary", "content") if isinstance(item.raw.get(key), list)]
    texts = [part.text("text") for key in keys for part in item.objects(key, "")]
    signature = text_or_none(item.raw.get("encrypted_content"))
    return model.Thinking("\n".join(texts), signature, source=item.raw)


def render_edited(message: model.Message) -> list[model.JsonObject]:
    """Render an edited copy, or new items: one for each call and result."""
    source = message.source
    is_message = source is not None and source.get("type") in {None, "message"} and "role" in source
    base = source if is_message else None
    items: list[model.JsonObject] = []
    parts: list[model.Part] = []
    for block in message.blocks:
        is_part = isinstance(block, model.Opaque) and (
            base is not None or block.kind in _PART_TYPES
        )
        if isinstance(block, model.Text | model.Image | model.Document) or (
            isinstance(block, model.Opaque) and is_part
        ):
            parts.append(block)
            continue
        if parts:
            items.append(_message_item(parts, message.role, base))
            parts = []
        items.extend(_render_item(block))
    if parts or (not items and (source is None or is_message)):
        items.append(_message_item(parts, message.role, base))
    return items


def _message_item(
    blocks: Sequence[model.Part], role: model.Role, base: model.JsonObject | None
) -> model.JsonObject:
    changes = partial(_part_changes, is_output=role == "assistant")
    base = base or {"type": "message", "role": role, "content": []}
    return {**base, "content": string_or_list(blocks, base.get("content"), changes)}


def _part_changes(block: model.Part, *, is_output: bool) -> model.JsonObject:
    changes: model.JsonObject
    match block:
        case model.Text() | model.Document(text=str()):
            kind, changes = "output_text" if is_output else "input_text", {"text": block.text or ""}
        case model.Image():
            kind, changes = "input_image", {"image_url": media_url(block)}
        case model.Document(url=str() as url):
            kind, changes = "input_file", {"file_url": url}
        case model.Document():
            kind = "input_file"
            changes = {"filename": media_file_name(block), "file_data": media_url(block)}
        case model.Opaque():
            return block.source
    return changes if block.source else {"type": kind, **changes}


def _render_item(
    block: model.ToolCall | model.ToolResult | model.Thinking | model.Opaque,
) -> list[model.JsonObject]:
    """Render a block that is an item of its own."""
    if isinstance(block, model.Opaque) or (block.source is not None and not block.edited):
        return [block.source or {}]
    if isinstance(block, model.ToolResult):
        return _render_output(block)
    return [_render_call(block) if isinstance(block, model.ToolCall) else _render_reasoning(block)]


def _render_call(call: model.ToolCall) -> model.JsonObject:
    source = call.source or {"type": "function_call", "call_id": call.call_id}
    key, tool = _CALLS[source["type"]]
    changes: model.JsonObject = {"call_id": call.call_id} if "call_id" in source else {}
    if not tool:
        changes["name"] = call.name
    changes[key] = call.arguments if tool else dumps(call.arguments)
    rendered = {**source, **changes}
    if source.get("call_id", call.call_id) != call.call_id:
        # OpenAI would take a renamed call for the stored item: "Duplicate item found with id".
        rendered.pop("id", None)
    return rendered


def _render_output(result: model.ToolResult) -> list[model.JsonObject]:
    source = result.source or {"type": "function_call_output"}
    source = {**source, "call_id": result.call_id}
    original: Any = source.get("output")
    if source["type"] == "computer_call_output":
        return _render_computer_output(result, source)
    output: Any
    chunks = list_or_none(original if "output" in source else [])
    if source["type"] == "apply_patch_call_output":
        source.setdefault("status", "failed")
    if source["type"] == "shell_call_output" and chunks is not None:
        last = object_or_none(chunks[-1]) if chunks else None
        chunk = last or {"outcome": {"type": "exit", "exit_code": 0}}
        output = [{**chunk, "stdout": model.text_of(result.content), "stderr": ""}]
    else:
        changes = partial(_part_changes, is_output=False)
        output = string_or_list(result.content, original, changes)
    return [{**source, "output": output}]


def _render_computer_output(
    result: model.ToolResult, source: model.JsonObject
) -> list[model.JsonObject]:
    """Render a screenshot; other parts, such as a placeholder, follow as a message."""
    images = [part for part in result.content if isinstance(part, model.Image)]
    rest = [part for part in result.content if not isinstance(part, model.Image)]
    url = media_url(images[0]) if images else _BLANK_SCREENSHOT
    item = {**source, "output": {"type": "computer_screenshot", "image_url": url}}
    return [item, _message_item(rest, "user", None)] if rest else [item]


def _render_reasoning(block: model.Thinking) -> model.JsonObject:
    source = block.source or {"type": "reasoning"}
    summary = [{"type": "summary_text", "text": block.text}] if block.text else []
    changes: model.JsonObject = {"summary": summary}
    if block.signature is not None:
        changes["encrypted_content"] = block.signature
    return {key: value for key, value in {**source, **changes}.items() if key != "content"}


FORMAT = MessageFormat("openai-responses", RULES, recognises, parse, render_edited, "list")
