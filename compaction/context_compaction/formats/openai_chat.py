"""OpenAI's Chat Completions: results are messages of the role "tool", calls a field beside content.

The parts of an assistant message that are in fields of their own become blocks in this order:
`reasoning_content` (thinking, as several providers write it), content, `refusal` and `audio`
(opaque), calls. The older `function_call` and the role "function" are read too; see `linking`.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from context_compaction.formats import data_urls
from context_compaction.formats.base import MessageFormat
from context_compaction.formats.detection import weigh_content
from context_compaction.formats.parsing import (
    dumps,
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
from context_compaction.formats.tool_call_ids import is_made_up, link, name_of
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
    joins_assistant_messages=False,
    results_follow_call=True,
    refuses_empty_messages=True,
    refuses_trailing_thinking=False,
    refuses_trailing_space=False,
    unique_call_ids=False,
    refuses_empty_lists=True,
)

_Spoken: TypeAlias = Part | Thinking | ToolCall

_ROLES: dict[str, Role] = {
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
_CONTENT_REMEDY = "Give a string or an array of parts."


def recognises(message: JsonObject) -> int:
    """0 no, 1 could be, 2 speaks for it."""
    role = text_or_none(message.get("role"))
    if role not in _ROLES or "parts" in message or "stopReason" in message:
        return 0
    content = message.get("content")
    # Null content is an assistant's that only calls.
    weight = 1 if content is None and role != "user" else weigh_content(content, "openai-chat")
    speaks = role in _OWN_ROLES or not _OWN_FIELDS.isdisjoint(message)
    return 2 if weight and speaks else weight


def parse_message(raw: JsonObject, index: int) -> Message:
    """One message; raises `InvalidMessageError`."""
    remedy = 'Give "system", "developer", "user", "assistant" or "tool".'
    name = require_name(raw, "role", index, "the message", remedy)
    role = _ROLES.get(name)
    if role is None:
        refuse(index, f"the role {name!r} is unknown in the format openai-chat", remedy)
    if name in {"tool", "function"}:
        blocks: tuple[Block, ...] = (_parse_result(raw, name, index),)
    elif name == "assistant":
        blocks = _parse_assistant(raw, index)
    else:
        calls = _parse_calls(raw, index)  # which nobody but an assistant may make
        says_nothing = bool(calls) and raw.get("content") is None
        blocks = calls if says_nothing else (*_parse_content(raw, index), *calls)
    return Message(role, blocks, source=raw, index=index)


def _parse_result(raw: JsonObject, role: str, index: int) -> ToolResult:
    if role == "function":
        name = require_name(raw, "name", index, "the function message")
        return ToolResult("", _parse_function_content(raw, index), name=name, source=raw)
    call_id = require_name(
        raw, "tool_call_id", index, "the tool message", "Give the id of the call that it answers."
    )
    tool = text_or_none(raw.get("name"))
    return ToolResult(call_id, _parse_content(raw, index), name=tool, source=raw)


def _parse_function_content(raw: JsonObject, index: int) -> tuple[Part, ...]:
    """Content of the older "function" message, which OpenAI lets be null."""
    return () if raw.get("content", "") is None else _parse_content(raw, index)


def _parse_content(raw: JsonObject, index: int) -> tuple[Part, ...]:
    content = raw.get("content")
    if isinstance(content, str):
        return (Text(content),)
    if "content" not in raw:
        refuse(index, "`content` is missing", _CONTENT_REMEDY)
    values = require_list(content, index, "`content`", _CONTENT_REMEDY)
    return tuple(_parse_part(value, index, f"content[{n}]") for n, value in enumerate(values))


def _parse_part(value: object, index: int, where: str) -> Part:
    part, kind = require_block(value, index, where)
    where = f"{where} ({kind})"
    match kind:
        case "text":
            return Text(require_text(part, "text", index, where), source=part)
        case "image_url":
            remedy = 'Give {"url": "..."}.'
            holder = require_object(part.get(kind), index, f"{where}: `image_url`", remedy)
            return data_urls.image_from_url(require_text(holder, "url", index, where, remedy), part)
        case "input_audio":
            remedy = 'Give {"data": "<base64>", "format": "wav"}.'
            holder = require_object(part.get(kind), index, f"{where}: `input_audio`", remedy)
            data = require_text(holder, "data", index, where, remedy)
            return Document(f"audio/{holder.get('format', 'wav')}", data=data, source=part)
        case "file":
            file_data: Any = (object_or_none(part.get("file")) or {}).get("file_data")
            if not isinstance(file_data, str):
                return Opaque(kind, part)
            return data_urls.document_from_data(file_data, part)
        case _:
            return Opaque(kind, part)


def _parse_assistant(raw: JsonObject, index: int) -> tuple[Block, ...]:
    blocks: list[Block] = []
    thinking = raw.get(_THINKING_FIELD)
    if isinstance(thinking, str):
        blocks.append(Thinking(thinking, source={_THINKING_FIELD: thinking}))
    if raw.get("content") is not None:
        blocks.extend(_parse_content(raw, index))
    present = (name for name in _OPAQUE_FIELDS if raw.get(name) is not None)
    blocks.extend(Opaque(name, {name: raw[name]}) for name in present)
    return (*blocks, *_parse_calls(raw, index))


def _parse_calls(raw: JsonObject, index: int) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if raw.get("tool_calls") is not None:
        calls = require_list(raw["tool_calls"], index, "`tool_calls`", "Give an array of calls.")
        blocks.extend(
            _parse_call(value, index, f"tool_calls[{n}]") for n, value in enumerate(calls)
        )
    if raw.get("function_call") is not None:
        holder = require_object(raw["function_call"], index, "`function_call`", _FUNCTION_REMEDY)
        blocks.append(_parse_function(holder, "", holder, index, "`function_call`"))
    return tuple(blocks)


_FUNCTION_REMEDY = 'Give {"name": "...", "arguments": "<JSON text>"}.'


def _parse_call(value: object, index: int, where: str) -> ToolCall | Opaque:
    remedy = 'Give {"id": "...", "type": "function", "function": {...}}.'
    call = require_object(value, index, where, remedy)
    call_id = require_name(call, "id", index, where, remedy)
    kind = call.get("type", "function")
    if kind == "custom":
        holder = require_object(call.get("custom"), index, f"{where}: `custom`", remedy)
        name = require_name(holder, "name", index, where)
        return ToolCall(call_id, name, require_text(holder, "input", index, where), source=call)
    holder = require_object(call.get("function"), index, f"{where}: `function`", remedy)
    return _parse_function(call, call_id, holder, index, where)


def _parse_function(
    source: JsonObject, call_id: str, holder: JsonObject, index: int, where: str
) -> ToolCall:
    name = require_name(holder, "name", index, where, _FUNCTION_REMEDY)
    text = require_text(holder, "arguments", index, where, "Give the arguments as JSON text.")
    return ToolCall(call_id, name, loads_or_text(text), source=source)


def render_message(message: Message) -> list[JsonObject]:
    """The host's own object, an edited copy, or new ones: a tool message for each result.

    What is beside the results, and pictures that a tool message cannot carry, follow in a
    user message.
    """
    if message.source is not None and not message.edited:
        return [message.source]
    base = message.source or {"role": message.role}
    results: list[JsonObject] = []
    rest: list[_Spoken] = []
    for block in message.blocks:
        if isinstance(block, ToolResult):
            results.append(_render_result(block))
            rest.extend(_media_of(block))
        else:
            rest.append(block)
    answers = base.get("role") in {"tool", "function"}
    if not rest and (results or answers):
        return results
    spoken = _fill(rest, {"role": "user"} if answers else base)
    return [*results, spoken] if message.role == "user" else [spoken, *results]


def _media_of(result: ToolResult) -> Sequence[Image | Document]:
    """What a tool message cannot carry and a user message can; a host's own result keeps all."""
    if result.source is not None:
        return ()
    return [part for part in result.content if isinstance(part, Image | Document)]


def _fill(blocks: Sequence[_Spoken], source: JsonObject) -> JsonObject:
    """A copy of `source` whose fields that hold blocks say what `blocks` say."""
    fields = (_THINKING_FIELD, *_OPAQUE_FIELDS, "tool_calls", "function_call")
    filled = {key: value for key, value in source.items() if key not in fields or value is None}
    calls: list[JsonObject] = []
    content: list[Part] = []
    for block in blocks:
        if isinstance(block, ToolCall):
            if _is_function_call(block):
                filled["function_call"] = _render_call(block)
            else:
                calls.append(_render_call(block))
        elif isinstance(block, Thinking):
            filled[_THINKING_FIELD] = block.text
        elif isinstance(block, Opaque) and block.kind in _OPAQUE_FIELDS and _is_field(block):
            filled.update(block.source)
        else:
            content.append(block)
    if calls:
        filled["tool_calls"] = calls
    original: Any = source.get("content")
    if content:
        filled["content"] = string_or_list(content, original, _render_part)
    else:
        # An empty array is refused, and null is for an assistant that says something elsewhere.
        speaks = any(filled.get(key) for key in fields)
        filled["content"] = None if speaks and not isinstance(original, str) else ""
    return filled


def _is_field(block: Opaque) -> bool:
    """Whether the block was a field of the message, rather than a part of its content."""
    return "type" not in block.source


def _is_function_call(call: ToolCall) -> bool:
    return is_made_up(call.call_id) and "function" not in (call.source or {})


def _render_part(block: Part) -> JsonObject:
    if block.source is not None and not block.edited:
        return block.source
    return {**(block.source or {}), **_part_changes(block)}


def _part_changes(block: Part) -> JsonObject:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Image():
            return {"type": "image_url", "image_url": {"url": data_urls.url_of(block)}}
        case Document(text=str() as text):
            return {"type": "text", "text": text}
        case Document(url=str()):
            return {"type": "text", "text": data_urls.describe(block)}
        case Document():
            return _file_part(block)
        case Opaque():
            return block.source


def _file_part(block: Document) -> JsonObject:
    family, _, subtype = block.media_type.partition("/")
    if family == "audio":
        return {"type": "input_audio", "input_audio": {"data": block.data, "format": subtype}}
    file = {"filename": data_urls.file_name(block), "file_data": data_urls.url_of(block)}
    return {"type": "file", "file": file}


def _render_call(call: ToolCall) -> JsonObject:
    source = call.source or {}
    if call.source is not None and not call.edited:
        return source
    if _is_function_call(call):
        return {**source, "name": call.name, "arguments": dumps(call.arguments)}
    if source.get("type") == "custom":
        custom = {**source["custom"], "name": call.name, "input": dumps(call.arguments)}
        return {**source, "id": call.call_id, "custom": custom}
    function = {"name": call.name, "arguments": dumps(call.arguments)}
    known = source.get("function", {})
    named = {"id": call.call_id, "function": {**known, **function}}
    return {"type": "function", **source, **named}


def _render_result(result: ToolResult) -> JsonObject:
    source = result.source
    if source is not None and not result.edited:
        return source
    if source is not None:
        content = string_or_list(result.content, source.get("content"), _render_part)
        named = {"tool_call_id": result.call_id} if "tool_call_id" in source else {}
        return {**source, **named, "content": content}
    parts = [part for part in result.content if not isinstance(part, Image | Document)]
    content = string_or_list(parts, None, _render_part)
    if is_made_up(result.call_id):
        return {"role": "function", "name": name_of(result), "content": content}
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}


FORMAT = MessageFormat(
    "openai-chat", RULES, recognises, parse_message, render_message, "list", link
)
