"""Gemini's contents: roles user and model, parts told apart by the field that they have.

Names are read in camelCase (REST) and snake_case (the Python SDK); an edited part keeps the
spelling that it had, a new one is in camelCase. A call without an id gets one by `linking`.
"""

from typing import Any

from context_compaction.formats import data_urls
from context_compaction.formats.base import MessageFormat
from context_compaction.formats.parsing import (
    dumps,
    list_or_none,
    object_or_none,
    objects_in,
    refuse,
    require_list,
    require_name,
    require_object,
    require_text,
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
    groups_results=True,
    first_role_user=True,
    text_after_results=False,
    refuses_empty_text=True,
    thinking_is_bound=False,
    joins_assistant_messages=True,
    results_follow_call=True,
    refuses_empty_messages=True,
    refuses_trailing_thinking=False,
    refuses_trailing_space=False,
    unique_call_ids=True,
    calls_follow_user=True,
    may_end_empty=False,
    joins_results=False,
    calls_have_ids=False,
)

_ROLES: dict[str | None, Role] = {
    None: "user",  # the API takes a content without a role as the user's
    "user": "user",
    "function": "user",
    "tool": "user",
    "system": "system",
    "model": "assistant",
}
_FIELDS = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "video_metadata": "videoMetadata",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
}
_KINDS = ("text", "functionCall", "functionResponse", "inlineData", "fileData")
_SIDE_FIELDS = {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}
_OUTPUT_KEYS = ("output", "result", "content", "error")


def recognises(message: JsonObject) -> int:
    """0 no, 1 could be, 2 speaks for it."""
    role = message.get("role")
    if (role is not None and text_or_none(role) not in _ROLES) or "content" in message:
        return 0
    if "parts" not in message:
        return 1 if role == "model" else 0
    # Without a role it takes a part that we know to say whose message this is.
    known = any(_kind_of(part) in _KINDS for part in objects_in(message["parts"]))
    return 2 if role is not None or known else 0


def parse_message(raw: JsonObject, index: int) -> Message:
    """One content; raises `InvalidMessageError`."""
    name = raw.get("role")
    role = _ROLES.get(name) if name is None or isinstance(name, str) else None
    if role is None:
        refuse(
            index, f"the role {name!r} is unknown in the format gemini", 'Give "user" or "model".'
        )
    parts = raw.get("parts")
    if parts is None and name == "model":
        # The SDK leaves `parts` out where a model answered nothing.
        return Message(role, (), source=raw, index=index)
    values = require_list(parts, index, "`parts`", 'Give an array such as [{"text": "..."}].')
    blocks = [_parse_part(value, index, f"parts[{n}]") for n, value in enumerate(values)]
    return Message(role, tuple(blocks), source=raw, index=index)


def _parse_part(value: object, index: int, where: str) -> Block:
    part = require_object(value, index, where, 'Give a part such as {"text": "..."}.')
    kind = _kind_of(part)
    if kind is None:
        refuse(index, f"{where} is an empty object", 'Give a part such as {"text": "..."}.')
    if kind not in _KINDS:
        return Opaque(kind, part)
    key = _spelling(part, kind)
    where = f"{where} ({key})"
    if kind == "text":
        text = require_text(part, "text", index, where)
        signature = text_or_none(part.get(_spelling(part, "thoughtSignature")))
        return Thinking(text, signature, source=part) if part.get("thought") else Text(text, part)
    holder = require_object(part[key], index, where, "Give an object.")
    match kind:
        case "functionCall":
            return _parse_call(part, holder, index, where)
        case "functionResponse":
            return _parse_response(part, holder, index, where)
        case "inlineData":
            return _parse_inline(part, holder, index, where)
        case _:
            return _parse_file(part, holder, index, where)


def _kind_of(part: JsonObject) -> str | None:
    """The field that says what the part is, in camelCase; None for an empty part."""
    keys = [_FIELDS.get(key, key) for key, value in part.items() if value is not None]
    for key in keys:
        if key not in _SIDE_FIELDS:
            return key
    return keys[0] if keys else None


def _spelling(holder: JsonObject, name: str) -> str:
    """The key under which `holder` has the field `name`: camelCase unless it uses snake_case."""
    if name in holder:
        return name
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return snake if snake in holder else name


def _parse_call(part: JsonObject, holder: JsonObject, index: int, where: str) -> ToolCall:
    name = require_name(holder, "name", index, where)
    arguments: Any = holder.get("args")
    if arguments is None:
        arguments = {}
    arguments = require_object(arguments, index, f"{where}: `args`", "Give an object, {} if none.")
    return ToolCall(_id_of(holder, index, where), name, arguments, source=part)


def _id_of(holder: JsonObject, index: int, where: str) -> str:
    return "" if holder.get("id") is None else require_text(holder, "id", index, where)


def _parse_response(part: JsonObject, holder: JsonObject, index: int, where: str) -> ToolResult:
    name = require_name(holder, "name", index, where, "Give the name of the function that ran.")
    response: Any = holder.get("response")
    if response is None:
        response = {}
    remedy = 'Give an object such as {"output": "..."}.'
    response = require_object(response, index, f"{where}: `response`", remedy)
    content: list[Part] = []
    key = _output_key(response)
    if response:
        content.append(Text(dumps(response) if key is None else response[key]))
    for n, value in enumerate(list_or_none(holder.get("parts")) or ()):
        block = _parse_part(value, index, f"{where}: parts[{n}]")
        if isinstance(block, Text | Image | Document | Opaque):
            content.append(block)
    is_error = list(response) == ["error"]
    return ToolResult(
        _id_of(holder, index, where), tuple(content), is_error, name=name, source=part
    )


def _output_key(response: JsonObject) -> str | None:
    """The key of a response that is one string under a usual name."""
    if len(response) != 1:
        return None
    key, value = next(iter(response.items()))
    return key if key in _OUTPUT_KEYS and isinstance(value, str) else None


def _parse_inline(part: JsonObject, holder: JsonObject, index: int, where: str) -> Image | Document:
    media_type = require_text(holder, _spelling(holder, "mimeType"), index, where)
    data = require_text(holder, "data", index, where)
    if media_type.startswith("image/"):
        return Image(media_type, data=data, source=part)
    return Document(media_type, data=data, source=part)


def _parse_file(part: JsonObject, holder: JsonObject, index: int, where: str) -> Image | Document:
    media_type = holder.get(_spelling(holder, "mimeType"))
    media_type = text_or_none(media_type) or data_urls.UNKNOWN_FILE
    url = require_text(holder, _spelling(holder, "fileUri"), index, where)
    if media_type.startswith("image/"):
        return Image(media_type, url=url, source=part)
    return Document(media_type, url=url, source=part)


def render_message(message: Message) -> list[JsonObject]:
    """The host's own object, an edited copy of it, or a new one."""
    source = message.source
    if source is not None and not message.edited:
        return [source]
    parts: list[JsonObject] = []
    for block in message.blocks:
        parts.append(_render_part(block))
        if isinstance(block, ToolResult) and block.source is None:
            parts.extend(_render_part(part) for part in _media_of(block))
    if source is None:
        return [{"role": "model" if message.role == "assistant" else "user", "parts": parts}]
    return [{**source, "parts": parts}]


def _media_of(result: ToolResult) -> list[Part]:
    """What a new response cannot hold as text, and goes beside it."""
    return [part for part in result.content if isinstance(part, Image | Document)]


def _render_part(block: Block) -> JsonObject:
    source = block.source
    if source is not None and not block.edited:
        return source
    match block:
        case Text():
            return {**(source or {}), "text": block.text}
        case Thinking():
            return _render_thinking(block)
        case Image() | Document():
            return _render_media(block)
        case ToolCall():
            return _render_call(block)
        case ToolResult():
            return _render_response(block)
        case Opaque():
            return block.source


def _render_thinking(block: Thinking) -> JsonObject:
    fresh: JsonObject = {"text": block.text, "thought": True}
    if block.source is None and block.signature:
        fresh["thoughtSignature"] = block.signature
    return {**(block.source or {}), **fresh}


def _render_media(block: Image | Document) -> JsonObject:
    if isinstance(block, Document) and block.text is not None:
        return {"text": block.text}
    side = {key: value for key, value in (block.source or {}).items() if key in _SIDE_FIELDS}
    if block.url is not None:
        return {**side, "fileData": {"mimeType": block.media_type, "fileUri": block.url}}
    return {**side, "inlineData": {"mimeType": block.media_type, "data": block.data or ""}}


def _render_call(call: ToolCall) -> JsonObject:
    source = call.source or {}
    key = _spelling(source, "functionCall")
    arguments = object_or_none(call.arguments)
    changes: JsonObject = {"name": call.name}
    changes["args"] = {"input": call.arguments} if arguments is None else arguments
    if not is_made_up(call.call_id):
        changes["id"] = call.call_id
    return {**source, key: {**source.get(key, {}), **changes}}


def _render_response(result: ToolResult) -> JsonObject:
    source = result.source or {}
    key = _spelling(source, "functionResponse")
    holder: JsonObject = source.get(key, {})
    before = object_or_none(holder.get("response")) or {}
    output_key = _output_key(before) or ("error" if result.is_error else "output")
    text = "\n".join(
        part.text if isinstance(part, Text) else dumps(part.source)
        for part in result.content
        if isinstance(part, Text | Opaque)
    )
    changed: JsonObject = {"name": name_of(result), **holder, "response": {output_key: text}}
    if result.source is None and not is_made_up(result.call_id):
        changed["id"] = result.call_id
    if changed.pop("parts", None) is not None:
        kept = [part.source for part in result.content if _is_media_part(part)]
        if kept:
            changed["parts"] = kept
    return {**source, key: changed}


def _is_media_part(part: Part) -> bool:
    return isinstance(part, Image | Document) and part.source is not None


FORMAT = MessageFormat("gemini", RULES, recognises, parse_message, render_message, "beside", link)
