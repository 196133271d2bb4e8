"""Messages of pi's session files: roles user, assistant, toolResult, and some of pi's own.

What pi itself tells the model of a `bashExecution` (a command that the person ran) are two texts
here, the command and its output, so that a long output can be edited alone. Summaries of pi's
(`compactionSummary`, `branchSummary`) and what its extensions say (`custom`, once `hookMessage`; in
its fork Oh My Pi `developer`) are texts of the host in a message of the user's.
"""

from dataclasses import replace
from typing import TypeAlias

from context_compaction.formats import data_urls
from context_compaction.formats.base import MessageFormat
from context_compaction.formats.detection import weigh_content
from context_compaction.formats.parsing import (
    object_or_none,
    objects_in,
    refuse,
    require_block,
    require_list,
    require_name,
    require_object,
    require_text,
    sane_seconds,
    string_or_list,
    text_or_none,
)
from context_compaction.formats.tool_call_ids import name_of
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
    tool_results,
)
from context_compaction.messages.provider_rules import ProviderRules

RULES = ProviderRules(
    groups_results=False,
    first_role_user=True,
    text_after_results=False,
    refuses_empty_text=False,
    thinking_is_bound=False,
    joins_assistant_messages=False,
    results_follow_call=True,
    refuses_empty_messages=False,
    refuses_trailing_thinking=False,
    refuses_trailing_space=False,
    unique_call_ids=False,
)

_Spoken: TypeAlias = Part | Thinking | ToolCall

_HOST_ROLES = {"custom", "hookMessage", "developer"}
_SPEAKERS: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    **dict.fromkeys(_HOST_ROLES, "user"),
}
_SUMMARY_ROLES = {"compactionSummary", "branchSummary"}
_OWN_ROLES = {"toolResult", "bashExecution", "custom", "hookMessage", *_SUMMARY_ROLES}
_ROLES_REMEDY = 'Give "user", "assistant", "toolResult" or "bashExecution".'
_ARGUMENTS_REMEDY = "Give an object, {} if none."
_CONTENT_REMEDY = "Give a string or an array of blocks."


def recognises(message: JsonObject) -> int:
    """0 no, 1 could be, 2 speaks for it."""
    role = text_or_none(message.get("role"))
    content = message.get("content")
    if role in _OWN_ROLES:
        return 2
    if role not in _SPEAKERS or "tool_calls" in message or not _images_have_data(content):
        return 0
    if role == "developer" and "timestamp" not in message:
        return 0  # OpenAI's
    weight = weigh_content(content, "pi")
    return 2 if weight and "stopReason" in message else weight


def _images_have_data(content: object) -> bool:
    return all("data" in b for b in objects_in(content) if b.get("type") == "image")


def parse_message(raw: JsonObject, index: int) -> Message:
    """One message; raises `InvalidMessageError`."""
    name = require_name(raw, "role", index, "the message", _ROLES_REMEDY)
    role = _SPEAKERS.get(name, "user")
    if name in _SPEAKERS:
        blocks: tuple[Block, ...] = _parse_content(raw, index)
        if name in _HOST_ROLES:
            blocks = tuple(map(_by_host, blocks))
    elif name == "toolResult":
        blocks = (_parse_result(raw, index),)
    elif name == "bashExecution":
        blocks = _parse_bash(raw, index)
    elif name in _SUMMARY_ROLES:
        text = require_text(raw, "summary", index, f"the {name} message")
        blocks = (Text(text, source={"summary": text}, author="host"),)
    else:
        refuse(index, f"the role {name!r} is unknown in the format pi", _ROLES_REMEDY)
    seconds = sane_seconds(raw.get("timestamp"), per_second=1000)
    return Message(role, blocks, source=raw, index=index, timestamp_seconds=seconds)


def _by_host(block: Block) -> Block:
    return replace(block, author="host") if isinstance(block, Text) else block


def _parse_content(raw: JsonObject, index: int) -> tuple[Block, ...]:
    content = raw.get("content")
    if isinstance(content, str):
        return (Text(content),)
    if "content" not in raw:
        refuse(index, "`content` is missing", _CONTENT_REMEDY)
    values = require_list(content, index, "`content`", _CONTENT_REMEDY)
    return tuple(_parse_block(value, index, f"content[{n}]") for n, value in enumerate(values))


def _parse_block(value: object, index: int, where: str) -> Block:
    block, kind = require_block(value, index, where)
    where = f"{where} ({kind})"
    match kind:
        case "toolCall":
            call_id = require_name(block, "id", index, where)
            name = require_name(block, "name", index, where)
            arguments = require_object(
                block.get("arguments"),
                index,
                f"{where}: `arguments`",
                _ARGUMENTS_REMEDY,
            )
            return ToolCall(call_id, name, arguments, source=block)
        case "thinking":
            signature = text_or_none(block.get("thinkingSignature"))
            return Thinking(require_text(block, "thinking", index, where), signature, source=block)
        case _:
            return _parse_part(block, kind, index, where)


def _parse_part(block: JsonObject, kind: str, index: int, where: str) -> Part:
    match kind:
        case "text":
            return Text(require_text(block, "text", index, where), source=block)
        case "image":
            data = require_text(block, "data", index, where)
            return Image(require_text(block, "mimeType", index, where), data=data, source=block)
        case _:
            return Opaque(kind, block)


def _parse_result(raw: JsonObject, index: int) -> ToolResult:
    where = "the toolResult message"
    call_id = require_name(
        raw, "toolCallId", index, where, "Give the id of the toolCall that it answers."
    )
    name = require_text(raw, "toolName", index, where)
    content = raw.get("content")
    if isinstance(content, str):
        parts: tuple[Part, ...] = (Text(content),)
    else:
        values = require_list(content, index, f"{where}: `content`", _CONTENT_REMEDY)
        parts = tuple(
            _parse_part(*require_block(value, index, f"content[{n}]"), index, f"content[{n}]")
            for n, value in enumerate(values)
        )
    return ToolResult(call_id, parts, bool(raw.get("isError")), name=name, source=raw)


def _parse_bash(raw: JsonObject, index: int) -> tuple[Text, Text]:
    where = "the bashExecution message"
    command = require_text(raw, "command", index, where)
    output = require_text(raw, "output", index, where)
    return (
        Text(f"Ran `{command}`", source={"command": command}, author="host"),
        Text(output, source={"output": output}, author="tool"),
    )


def render_message(message: Message) -> list[JsonObject]:
    """The host's own object, an edited copy, or new ones: a message for each result."""
    source = message.source
    if source is not None and not message.edited:
        return [source]
    role = (source or {}).get("role")
    if role == "bashExecution":
        return [{**(source or {}), "output": _joined(message, "command")}]
    if role in _SUMMARY_ROLES:
        return [{**(source or {}), "summary": _joined(message, "")}]
    return _render_new(message, source if role in _SPEAKERS else None)


def _joined(message: Message, left_out: str) -> str:
    """The texts of a message whose one field holds them all."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    return "\n".join(block.text for block in texts if left_out not in (block.source or {}))


def _render_new(message: Message, base: JsonObject | None) -> list[JsonObject]:
    stamp = message.timestamp_seconds
    stamped: JsonObject = {} if stamp is None else {"timestamp": round(stamp * 1000)}
    results = [_render_result(result, stamped) for result in tool_results(message)]
    rest = [block for block in message.blocks if not isinstance(block, ToolResult)]
    if not rest and (results or (message.source is not None and base is None)):
        return results
    if base is None:
        role = "assistant" if message.role == "assistant" else "user"
        spoken = {"role": role, "content": [_render_block(block) for block in rest], **stamped}
    else:
        spoken = {**base, "content": string_or_list(rest, base.get("content"), _render_block)}
    return [*results, spoken]


def _render_result(result: ToolResult, stamped: JsonObject) -> JsonObject:
    source = result.source or {}
    if result.source is not None and not result.edited:
        return source
    original = source.get("content")
    content = string_or_list(result.content, [] if original is None else original, _render_block)
    changes = {"toolCallId": result.call_id, "content": content, "isError": result.is_error}
    if source:
        return {**source, **changes}
    return {"role": "toolResult", "toolName": name_of(result), **changes, **stamped}


def _render_block(block: _Spoken) -> JsonObject:
    if block.source is not None and not block.edited:
        return block.source
    return {**(block.source or {}), **_changes(block)}


def _changes(block: _Spoken) -> JsonObject:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            signature = {} if block.signature is None else {"thinkingSignature": block.signature}
            return {"type": "thinking", "thinking": block.text, **signature}
        case Image(data=str() as data):
            return {"type": "image", "data": data, "mimeType": block.media_type}
        case Document(text=str() as text):
            return {"type": "text", "text": text}
        case Image() | Document():
            return {"type": "text", "text": data_urls.describe(block)}
        case ToolCall():
            arguments = object_or_none(block.arguments)
            given = {"input": block.arguments} if arguments is None else arguments
            return {"type": "toolCall", "id": block.call_id, "name": block.name, "arguments": given}
        case Opaque():
            return block.source


FORMAT = MessageFormat("pi", RULES, recognises, parse_message, render_message, "nowhere")
