"""OpenAI's Responses API: a flat list of items, one `Message` each.

Calls and their outputs are items of their own; `_CALLS` and `_OUTPUTS` say where each kind keeps
what matters. Items of other kinds (hosted tools, `compaction`, `item_reference`...) are opaque.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from context_compaction.formats import data_urls
from context_compaction.formats.base import MessageFormat
from context_compaction.formats.detection import BLOCK_TYPES, weigh_content
from context_compaction.formats.parsing import (
    dumps,
    list_or_none,
    loads_or_text,
    object_or_none,
    refuse,
    require_block,
    require_list,
    require_name,
    require_object,
    require_text,
    string_or_list,
    text_or_none,
)
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from context_compaction.messages.provider_rules import ProviderRules

RULES = ProviderRules(
    groups_results=False,
    first_role_user=False,
    text_after_results=False,
    refuses_empty_text=False,
    thinking_is_bound=False,
    joins_assistant_messages=True,
    results_follow_call=False,
    refuses_empty_messages=False,
    refuses_trailing_thinking=True,
    refuses_trailing_space=False,
    unique_call_ids=True,
)

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# Kind of call item: the field with its arguments, and the tool's name where the item has none.
_CALLS: dict[str, tuple[str, str]] = {
    "function_call": ("arguments", ""),
    "custom_tool_call": ("input", ""),
    "local_shell_call": ("action", "local_shell"),
    "shell_call": ("action", "shell"),
    "apply_patch_call": ("operation", "apply_patch"),
    "computer_call": ("action", "computer"),
}
_OUTPUTS = {f"{kind}_output" for kind in _CALLS}
_KNOWN_KINDS = {*_CALLS, *_OUTPUTS, "reasoning", "item_reference", "compaction"}
_PART_TYPES = BLOCK_TYPES["openai-responses"]
_CHAT_FIELDS = {"tool_calls", "function_call", "tool_call_id", "stopReason"}
_TEXT_TYPES = {"input_text", "output_text", "text"}
_CONTENT_REMEDY = "Give a string or an array of parts."
# A computer's output must be a screenshot; this one (1 x 1, transparent) stands for a cleared one.
_BLANK_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAC"
    "hwGA60e6kgAAAABJRU5ErkJggg=="
)

_Spoken: TypeAlias = Text | Image | Document | Opaque


def recognises(item: JsonObject) -> int:
    """0 no, 1 could be, 2 speaks for it."""
    kind = text_or_none(item.get("type"))
    if kind in _KNOWN_KINDS:
        return 2
    if "role" not in item:
        # A kind that we do not know, or an item_reference, whose type may be left out. All kinds
        # of several words are written like "web_search_call"; other libraries' are not.
        named = kind is not None and "_" in kind and "message" not in item and "payload" not in item
        is_reference = kind is None and "id" in item and item.keys() <= {"type", "id"}
        return 1 if named or is_reference else 0
    if text_or_none(item["role"]) not in _ROLES or kind not in {None, "message"}:
        return 0
    if _CHAT_FIELDS & item.keys():
        return 0
    return weigh_content(item.get("content"), "openai-responses")


def parse_message(raw: JsonObject, index: int) -> Message:
    """One item; raises `InvalidMessageError`."""
    kind = raw.get("type")
    if kind is not None and not isinstance(kind, str):
        refuse(index, "the item's `type` is not a string", 'Give one such as "function_call".')
    if kind == "message" or (kind is None and "role" in raw):
        return _parse_spoken(raw, index)
    if kind is None and "id" not in raw:
        refuse(index, "the item has neither `type` nor `role`", 'Give {"type": "message", ...}.')
    role: Role = "assistant"
    if kind in _CALLS:
        block: Block = _parse_call(raw, kind, index)
    elif kind in _OUTPUTS:
        role, block = "user", _parse_output(raw, kind, index)
    elif kind == "reasoning":
        block = _parse_reasoning(raw, index)
    else:
        block = Opaque(kind or "item_reference", raw)
    return Message(role, (block,), source=raw, index=index)


def _parse_spoken(raw: JsonObject, index: int) -> Message:
    remedy = 'Give "user", "assistant", "system" or "developer".'
    name = require_name(raw, "role", index, "the message item", remedy)
    role = _ROLES.get(name)
    if role is None:
        refuse(index, f"the role {name!r} is unknown in the format openai-responses", remedy)
    if "content" not in raw:
        refuse(index, "`content` is missing", _CONTENT_REMEDY)
    blocks = _parse_content(raw["content"], index, "content")
    return Message(role, blocks, source=raw, index=index)


def _parse_content(content: object, index: int, where: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    values = require_list(content, index, f"`{where}`", _CONTENT_REMEDY)
    return tuple(_parse_part(value, index, f"{where}[{n}]") for n, value in enumerate(values))


def _parse_part(value: object, index: int, where: str) -> Part:
    part, kind = require_block(value, index, where)
    where = f"{where} ({kind})"
    if kind in _TEXT_TYPES:
        return Text(require_text(part, "text", index, where), source=part)
    url, data = part.get("image_url"), part.get("file_data")
    if kind in {"input_image", "computer_screenshot"} and isinstance(url, str):
        return data_urls.image_from_url(url, part)
    if kind == "input_file" and isinstance(data, str):
        return data_urls.document_from_data(data, part)
    if kind == "input_file" and isinstance(part.get("file_url"), str):
        return Document(data_urls.UNKNOWN_FILE, url=part["file_url"], source=part)
    return Opaque(kind, part)


def _call_id(raw: JsonObject, kind: str, index: int) -> str:
    """The id that joins call and output; older local shell items have it in `id` alone."""
    key = "id" if kind.startswith("local_shell") and "call_id" not in raw else "call_id"
    return require_name(raw, key, index, f"the {kind} item", "Give the id of the call.")


def _parse_call(raw: JsonObject, kind: str, index: int) -> ToolCall:
    key, tool = _CALLS[kind]
    where = f"the {kind} item"
    name = tool or require_name(raw, "name", index, where)
    arguments: Any
    if kind == "function_call":
        text = require_text(raw, key, index, where, "Give the arguments as JSON text.")
        arguments = loads_or_text(text)
    elif kind == "custom_tool_call":
        arguments = require_text(raw, key, index, where)
    else:
        arguments = raw.get(key)
    return ToolCall(_call_id(raw, kind, index), name, arguments, source=raw)


def _parse_output(raw: JsonObject, kind: str, index: int) -> ToolResult:
    call_id = _call_id(raw, kind, index)
    output = raw.get("output")
    parts: tuple[Part, ...]
    if kind == "computer_call_output":
        parts = (_parse_part(output, index, "output"),)
    elif kind == "shell_call_output" and not isinstance(output, str):
        parts = (Text(_shell_text(require_list(output, index, "`output`", _CONTENT_REMEDY))),)
    elif kind == "apply_patch_call_output" and output is None:
        parts = ()
    else:
        parts = _parse_content(output, index, "output")
    return ToolResult(call_id, parts, source=raw)


def _shell_text(chunks: Sequence[Any]) -> str:
    """What the commands of a shell call printed."""
    objects = [object_or_none(chunk) or {} for chunk in chunks]
    texts = [str(chunk.get(key) or "") for chunk in objects for key in ("stdout", "stderr")]
    return "\n".join(text for text in texts if text)


def _parse_reasoning(raw: JsonObject, index: int) -> Thinking:
    where = "the reasoning item"
    texts: list[str] = []
    for key in ("summary", "content"):
        for n, value in enumerate(list_or_none(raw.get(key)) or ()):
            part = require_object(value, index, f"{where}: {key}[{n}]", "Give an object.")
            texts.append(require_text(part, "text", index, f"{where}: {key}[{n}]"))
    signature = text_or_none(raw.get("encrypted_content"))
    return Thinking("\n".join(texts), signature, source=raw)


def render_message(message: Message) -> list[JsonObject]:
    """The host's own item, an edited copy, or new ones: an item for each call and result."""
    source = message.source
    if source is not None and not message.edited:
        return [source]
    is_spoken = source is not None and source.get("type") in {None, "message"} and "role" in source
    base = source if is_spoken else None
    items: list[JsonObject] = []
    spoken: list[_Spoken] = []
    for block in message.blocks:
        if isinstance(block, Text | Image | Document):
            spoken.append(block)
            continue
        if isinstance(block, Opaque) and (base is not None or block.kind in _PART_TYPES):
            spoken.append(block)
            continue
        if spoken:
            items.append(_spoken_item(spoken, message.role, base))
            spoken = []
        items.extend(_render_item(block))
    if spoken or (not items and (source is None or is_spoken)):
        items.append(_spoken_item(spoken, message.role, base))
    return items


def _spoken_item(blocks: Sequence[_Spoken], role: Role, base: JsonObject | None) -> JsonObject:
    def render(block: _Spoken) -> JsonObject:
        return _render_part(block, speaks=role == "assistant")

    if base is None:
        return {"type": "message", "role": role, "content": [render(block) for block in blocks]}
    return {**base, "content": string_or_list(blocks, base.get("content"), render)}


def _render_part(block: Part, *, speaks: bool) -> JsonObject:
    source = block.source
    if source is not None and not block.edited:
        return source
    text_type = "output_text" if speaks else "input_text"
    match block:
        case Text() | Document(text=str()):
            return {"type": text_type, **(source or {}), "text": block.text or ""}
        case Image():
            return {"type": "input_image", **(source or {}), "image_url": data_urls.url_of(block)}
        case Document(url=str() as url):
            return {"type": "input_file", **(source or {}), "file_url": url}
        case Document():
            file = {"filename": data_urls.file_name(block), "file_data": data_urls.url_of(block)}
            return {"type": "input_file", **(source or {}), **file}
        case Opaque():
            return block.source


def _render_item(block: ToolCall | ToolResult | Thinking | Opaque) -> list[JsonObject]:
    """The items of a block that is no part of a message."""
    if block.source is not None and not block.edited:
        return [block.source]
    match block:
        case ToolCall():
            return [_render_call(block)]
        case ToolResult():
            return _render_output(block)
        case Thinking():
            return [_render_reasoning(block)]
        case Opaque():
            return [block.source]


def _render_call(call: ToolCall) -> JsonObject:
    source = call.source or {"type": "function_call", "call_id": call.call_id}
    key, tool = _CALLS[source["type"]]
    changes: JsonObject = {"call_id": call.call_id} if "call_id" in source else {}
    if not tool:
        changes["name"] = call.name
    changes[key] = call.arguments if tool else dumps(call.arguments)
    rendered = {**source, **changes}
    if source.get("call_id", call.call_id) != call.call_id:
        # A renamed call is not the stored item any more: "Duplicate item found with id".
        rendered.pop("id", None)
    return rendered


def _render_output(result: ToolResult) -> list[JsonObject]:
    source = result.source or {"type": "function_call_output"}
    source = {**source, "call_id": result.call_id}
    original: Any = source.get("output")
    if source["type"] == "computer_call_output":
        return _render_computer_output(result, source)
    output: Any
    chunks = list_or_none(original)
    if source["type"] == "shell_call_output" and chunks is not None:
        last = object_or_none(chunks[-1]) if chunks else None
        ended = last or {"outcome": {"type": "exit", "exit_code": 0}}
        text = "\n".join(part.text for part in result.content if isinstance(part, Text))
        output = [{**ended, "stdout": text, "stderr": ""}]
    else:
        output = string_or_list(
            result.content, original, lambda part: _render_part(part, speaks=False)
        )
    return [{**source, "output": output}]


def _render_computer_output(result: ToolResult, source: JsonObject) -> list[JsonObject]:
    """A screenshot, or a blank one and what is in its place as a message after it."""
    images = [part for part in result.content if isinstance(part, Image)]
    rest = [part for part in result.content if not isinstance(part, Image)]
    url = data_urls.url_of(images[0]) if images else _BLANK_SCREENSHOT
    shown = {**source, "output": {"type": "computer_screenshot", "image_url": url}}
    return [shown, _spoken_item(rest, "user", None)] if rest else [shown]


def _render_reasoning(block: Thinking) -> JsonObject:
    source = block.source or {"type": "reasoning"}
    summary = [{"type": "summary_text", "text": block.text}] if block.text else []
    changes: JsonObject = {"summary": summary}
    if block.signature is not None:
        changes["encrypted_content"] = block.signature
    return {key: value for key, value in {**source, **changes}.items() if key != "content"}


FORMAT = MessageFormat("openai-responses", RULES, recognises, parse_message, render_message, "list")
