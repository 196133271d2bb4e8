"""OpenAI's Chat Completions: results are messages of the role "tool", calls are a field.

The fields of an assistant message become blocks in this order: `reasoning_content` (thinking, as
several providers write it), content, `refusal` and `audio` (opaque), calls. The older
`function_call` and the role "function" are parsed too; `base.link` gives them IDs.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from context_compaction.formats.base import (
    MessageFormat,
    Node,
    describe_media,
    document_from_data,
    dumps,
    image_from_url,
    is_generated,
    link,
    loads_or_text,
    media_file_name,
    media_url,
    name_of,
    object_or_none,
    render_block,
    string_or_list,
    text_or_none,
    weigh_content,
)
from context_compaction.messages import model
from context_compaction.messages.tool_pairs import ProviderRules

RULES = ProviderRules(
    results_follow_call=True,
    refuses_empty_messages=True,
    refuses_empty_lists=True,
    refuses_thinking_alone=True,
    roles_alternate="added",
)

_MessageBlock: TypeAlias = model.Part | model.Thinking | model.ToolCall

_ROLES: dict[str, model.Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
    "function": "user",
}
_OWN_ROLES = {"system", "developer", "tool", "function"}
_OWN_FIELDS = {"tool_calls", "function_call", "name"}
_THINKING_FIELD = "reasoning_content"
_OPAQUE_FIELDS = ("refusal", "audio")


def recognises(message: model.JsonObject) -> int:
    """Return how well a message fits; see `MessageFormat.recognises`."""
    role = text_or_none(message.get("role"))
    if role not in _ROLES or "parts" in message or "stopReason" in message:
        return 0
    content = message.get("content")
    # An assistant message with calls alone has null content.
    weight = 1 if content is None and role != "user" else weigh_content(content, "openai-chat")
    is_typical = role in _OWN_ROLES or not _OWN_FIELDS.isdisjoint(message)
    return 2 if weight and is_typical else weight


def parse(message: Node) -> model.Message:
    """Parse one message; raises `InvalidMessageError`."""
    raw = message.raw
    role = message.role(_ROLES, 'Give "system", "developer", "user", "assistant" or "tool".')
    if raw["role"] in {"tool", "function"}:
        blocks: tuple[model.Block, ...] = (_parse_result(message),)
    else:
        calls = tuple(_parse_calls(message))  # Repair removes calls that others make.
        has_no_content = raw.get("content") is None and (role == "assistant" or calls)
        content = () if has_no_content else message.content(_parse_part)
        blocks = (*content, *calls)
        if role == "assistant":
            blocks = (*_thinking_of(raw), *content, *_fields_of(raw), *calls)
    return model.Message(role, blocks, source=raw, index=message.index)


def _parse_result(message: Node) -> model.ToolResult:
    raw = message.raw
    if raw["role"] == "function":
        is_null = raw.get("content", "") is None  # OpenAI allows null in the older form.
        content = () if is_null else message.content(_parse_part)
        return model.ToolResult("", content, name=message.name("name"), source=raw)
    call_id = message.name("tool_call_id", "Give the id of the call that it answers.")
    name = text_or_none(raw.get("name"))
    return model.ToolResult(call_id, message.content(_parse_part), name=name, source=raw)


def _parse_part(part: Node) -> model.Part:
    raw = part.raw
    match kind := part.kind():
        case "text":
            return model.Text(part.text("text"), source=raw)
        case "image_url":
            remedy = 'Give {"url": "..."}.'
            return image_from_url(part.object(kind, remedy).text("url", remedy), raw)
        case "input_audio":
            remedy = 'Give {"data": "<base64>", "format": "wav"}.'
            holder = part.object(kind, remedy)
            media_type = f"audio/{holder.raw.get('format', 'wav')}"
            return model.Document(media_type, data=holder.text("data", remedy), source=raw)
        case "file":
            file_data: Any = (object_or_none(raw.get("file")) or {}).get("file_data")
            is_data = isinstance(file_data, str)
            return document_from_data(file_data, raw) if is_data else model.Opaque(kind, raw)
        case _:
            return model.Opaque(kind, raw)


def _thinking_of(raw: model.JsonObject) -> list[model.Thinking]:
    text = raw.get(_THINKING_FIELD)
    return [model.Thinking(text, source={_THINKING_FIELD: text})] if isinstance(text, str) else []


def _fields_of(raw: model.JsonObject) -> list[model.Opaque]:
    present = (name for name in _OPAQUE_FIELDS if raw.get(name) is not None)
    return [model.Opaque(name, {name: raw[name]}) for name in present]


def _parse_calls(message: Node) -> Iterator[model.ToolCall]:
    if message.raw.get("tool_calls") is not None:
        yield from map(_parse_call, message.objects("tool_calls", "Give an array of calls."))
    if message.raw.get("function_call") is not None:
        holder = message.object("function_call", _FUNCTION_REMEDY)
        yield _parse_function(holder.raw, "", holder)


_FUNCTION_REMEDY = 'Give {"name": "...", "arguments": "<JSON text>"}.'


def _parse_call(call: Node) -> model.ToolCall:
    remedy = 'Give {"id": "...", "type": "function", "function": {...}}.'
    call_id = call.name("id", remedy)
    if call.raw.get("type") == "custom":
        holder = call.object("custom", remedy)
        return model.ToolCall(call_id, holder.name("name"), holder.text("input"), source=call.raw)
    return _parse_function(call.raw, call_id, call.object("function", remedy))


def _parse_function(source: model.JsonObject, call_id: str, holder: Node) -> model.ToolCall:
    name = holder.name("name", _FUNCTION_REMEDY)
    arguments = holder.text("arguments", "Give the arguments as JSON text.")
    return model.ToolCall(call_id, name, loads_or_text(arguments), source=source)


def render_edited(message: model.Message) -> list[model.JsonObject]:
    """Render an edited copy, or new messages: a tool message for each result.

    Other blocks, and images that a tool message cannot contain, follow in a user message.
    """
    base = message.source or {"role": message.role}
    results: list[model.JsonObject] = []
    rest: list[_MessageBlock] = []
    for block in message.blocks:
        if not isinstance(block, model.ToolResult):
            rest.append(block)
            continue
        results.append(render_block(block, _result_changes))
        if block.source is None:
            rest += [
                part for part in block.content if isinstance(part, model.Image | model.Document)
            ]
    is_answer = base.get("role") in {"tool", "function"}
    if not rest and (results or is_answer):
        return results
    other = _fill(rest, {"role": "user"} if is_answer else base)
    return [*results, other] if message.role == "user" else [other, *results]


def _fill(blocks: Sequence[_MessageBlock], source: model.JsonObject) -> model.JsonObject:
    """Return a copy of `source` with `blocks` in its fields."""
    fields = (_THINKING_FIELD, *_OPAQUE_FIELDS, "tool_calls", "function_call")
    filled = {key: value for key, value in source.items() if key not in fields or value is None}
    calls: list[model.JsonObject] = []
    content: list[model.Part] = []
    for block in blocks:
        if isinstance(block, model.ToolCall):
            if _is_function_call(block):
                filled["function_call"] = render_block(block, _call_changes)
            else:
                calls.append(render_block(block, _call_changes))
        elif isinstance(block, model.Thinking):
            filled[_THINKING_FIELD] = block.text
        elif isinstance(block, model.Opaque) and "type" not in block.source:
            filled.update(block.source)  # The block is a field of the message.
        else:
            content.append(block)
    if calls:
        filled["tool_calls"] = calls
    original: Any = source.get("content")
    if content:
        filled["content"] = string_or_list(content, original, _part_changes)
    else:
        # OpenAI refuses an empty array, and accepts null only if another field has content.
        has_fields = any(filled.get(key) for key in fields)
        filled["content"] = None if has_fields and not isinstance(original, str) else ""
    return filled


def _is_function_call(call: model.ToolCall) -> bool:
    return is_generated(call.call_id) and "function" not in (call.source or {})


def _part_changes(block: model.Part) -> model.JsonObject:
    match block:
        case model.Text():
            return {"type": "text", "text": block.text}
        case model.Image():
            return {"type": "image_url", "image_url": {"url": media_url(block)}}
        case model.Document(text=str() as text):
            return {"type": "text", "text": text}
        case model.Document(url=str()):
            return {"type": "text", "text": describe_media(block)}
        case model.Document():
            family, _, subtype = block.media_type.partition("/")
            if family == "audio":
                audio = {"data": block.data, "format": subtype}
                return {"type": "input_audio", "input_audio": audio}
            file = {"filename": media_file_name(block), "file_data": media_url(block)}
            return {"type": "file", "file": file}
        case model.Opaque():
            return block.source


def _call_changes(call: model.ToolCall) -> model.JsonObject:
    source = call.source or {"type": "function"}
    function = {"name": call.name, "arguments": dumps(call.arguments)}
    if _is_function_call(call):
        return function
    if source.get("type") == "custom":
        custom = {**source["custom"], "name": call.name, "input": dumps(call.arguments)}
        return {"id": call.call_id, "custom": custom}
    function = {**source.get("function", {}), **function}
    return {"type": "function", "id": call.call_id, "function": function}


def _result_changes(result: model.ToolResult) -> model.JsonObject:
    source = result.source
    if source is not None:
        content = string_or_list(result.content, source.get("content"), _part_changes)
        changes = {"tool_call_id": result.call_id} if "tool_call_id" in source else {}
        return {**changes, "content": content}
    parts = [part for part in result.content if not isinstance(part, model.Image | model.Document)]
    content = string_or_list(parts, None, _part_changes)
    if is_generated(result.call_id):
        return {"role": "function", "name": name_of(result), "content": content}
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}


FORMAT = MessageFormat("openai-chat", RULES, recognises, parse, render_edited, "list", link)
