"""Anthropic's Messages API: roles user and assistant, content as a string or a list of blocks.

Blocks of server-side tools (`server_tool_use` and its results, `mcp_tool_use`, `compaction`,
`container_upload`...), and every type that we do not know, are `Opaque`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

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
    string_or_list,
    text_or_none,
)
from context_compaction.messages.model import (
    Author,
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
    text_after_results=True,
    refuses_empty_text=True,
    thinking_is_bound=True,
    joins_assistant_messages=True,
    results_follow_call=True,
    refuses_empty_messages=True,
    refuses_trailing_thinking=True,
    refuses_trailing_space=True,
    unique_call_ids=True,
    system_follows_user=True,
)

# Marks of rows in Claude Code's files, which `session_files/hosts.py` hands on with their messages.
HOST_MARKS = ("isMeta", "isCompactSummary")
# The model that answers of Claude Code's own making name.
SYNTHETIC_MODEL = "<synthetic>"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_FOREIGN_FIELDS = {"tool_calls", "tool_call_id", "function_call", "parts", "stopReason"}

_Reader: TypeAlias = Callable[[JsonObject, int, str], Block]


def recognises(message: JsonObject) -> int:
    """0 no, 1 could be, 2 speaks for it."""
    if text_or_none(message.get("role")) not in _ROLES or not _FOREIGN_FIELDS.isdisjoint(message):
        return 0
    content = message.get("content")
    return weigh_content(content, "anthropic") if _images_have_sources(content) else 0


def _images_have_sources(content: object) -> bool:
    return all("source" in b for b in objects_in(content) if b.get("type") == "image")


def parse_message(raw: JsonObject, index: int) -> Message:
    """One message; raises `InvalidMessageError`."""
    name = require_name(raw, "role", index, "the message", 'Give "user" or "assistant".')
    role = _ROLES.get(name)
    if role is None:
        refuse(
            index,
            f"the role {name!r} is unknown in the format anthropic",
            'Give "user" or "assistant"; tool results are blocks of a user message.',
        )
    content = raw.get("content")
    author = _author(raw)
    if isinstance(content, str):
        return Message(role, (Text(content, author=author),), source=raw, index=index)
    if "content" not in raw:
        refuse(index, "`content` is missing", "Give a string or an array of blocks.")
    values = require_list(content, index, "`content`", "Give a string or an array of blocks.")
    blocks = [_parse_block(value, index, f"content[{n}]") for n, value in enumerate(values)]
    if author is not None:
        blocks = [replace(b, author=author) if isinstance(b, Text) else b for b in blocks]
    return Message(role, tuple(blocks), source=raw, index=index)


def _author(raw: JsonObject) -> Author | None:
    """The host, for what Claude Code says in another's name; its session files mark that.

    In the agent's it tells of limits, failed requests, and that no response was asked for.
    """
    is_told = raw.get("role") == "user" and any(raw.get(mark) is True for mark in HOST_MARKS)
    is_synthetic = raw.get("role") == "assistant" and raw.get("model") == SYNTHETIC_MODEL
    return "host" if is_told or is_synthetic else None


def _parse_block(value: object, index: int, where: str) -> Block:
    block, kind = require_block(value, index, where)
    read = _READERS.get(kind)
    return Opaque(kind, block) if read is None else read(block, index, f"{where} ({kind})")


def _parse_text(block: JsonObject, index: int, where: str) -> Text:
    return Text(require_text(block, "text", index, where), source=block)


def _parse_thinking(block: JsonObject, index: int, where: str) -> Thinking:
    text = require_text(block, "thinking", index, where)
    signature = block.get("signature")
    if signature is not None and not isinstance(signature, str):
        refuse(index, f"{where}: `signature` is not a string", "Give it as the API sent it.")
    return Thinking(text, signature, source=block)


def _parse_redacted(block: JsonObject, index: int, where: str) -> Thinking:
    return Thinking("", require_text(block, "data", index, where), source=block)


def _parse_image(block: JsonObject, index: int, where: str) -> Image | Opaque:
    origin = require_object(block.get("source"), index, f"{where}: `source`", _SOURCE_REMEDY)
    match origin.get("type"):
        case "base64":
            media_type = require_text(origin, "media_type", index, where)
            return Image(media_type, require_text(origin, "data", index, where), source=block)
        case "url":
            return Image("image/*", url=require_text(origin, "url", index, where), source=block)
        case _:
            return Opaque("image", block)


def _parse_document(block: JsonObject, index: int, where: str) -> Document | Opaque:
    origin = require_object(block.get("source"), index, f"{where}: `source`", _SOURCE_REMEDY)
    media_type = origin.get("media_type")
    media_type = media_type if isinstance(media_type, str) else "application/pdf"
    match origin.get("type"):
        case "base64":
            data = require_text(origin, "data", index, where)
            return Document(media_type, data=data, source=block)
        case "text":
            text = require_text(origin, "data", index, where)
            return Document(media_type, text=text, source=block)
        case "url":
            return Document(media_type, url=require_text(origin, "url", index, where), source=block)
        case _:
            return Opaque("document", block)


_SOURCE_REMEDY = 'Give {"type": "base64", "media_type": "...", "data": "..."} or a url.'


def _parse_call(block: JsonObject, index: int, where: str) -> ToolCall:
    call_id = require_name(block, "id", index, where)
    name = require_name(block, "name", index, where)
    arguments = require_object(
        block.get("input"),
        index,
        f"{where}: `input`",
        "Give the arguments as an object, {} if none.",
    )
    return ToolCall(call_id, name, arguments, source=block)


def _parse_result(block: JsonObject, index: int, where: str) -> ToolResult:
    call_id = require_name(
        block, "tool_use_id", index, where, "Give the id of the tool_use block that it answers."
    )
    is_error = block.get("is_error")
    if is_error is not None and not isinstance(is_error, bool):
        refuse(index, f"{where}: `is_error` is not a boolean", "Give true or false.")
    parts = _parse_result_content(block.get("content"), index, f"{where}: `content`")
    return ToolResult(call_id, parts, bool(is_error), source=block)


def _parse_result_content(content: object, index: int, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    values = require_list(content, index, where, "Give a string or an array of blocks.")
    return tuple(_parse_part(value, index, f"{where}[{n}]") for n, value in enumerate(values))


def _parse_part(value: object, index: int, where: str) -> Part:
    block, kind = require_block(value, index, where)
    match kind:
        case "text":
            return _parse_text(block, index, where)
        case "image":
            return _parse_image(block, index, where)
        case "document":
            return _parse_document(block, index, where)
        case _:
            return Opaque(kind, block)


_READERS: dict[str, _Reader] = {
    "text": _parse_text,
    "thinking": _parse_thinking,
    "redacted_thinking": _parse_redacted,
    "image": _parse_image,
    "document": _parse_document,
    "tool_use": _parse_call,
    "tool_result": _parse_result,
}


def render_message(message: Message) -> list[JsonObject]:
    """The host's own object, an edited copy of it, or a new one."""
    source = message.source
    if source is None:
        role = "assistant" if message.role == "assistant" else "user"
        return [{"role": role, "content": string_or_list(message.blocks, None, _render_block)}]
    if not message.edited:
        return [source]
    content = string_or_list(message.blocks, source.get("content"), _render_block)
    return [{**source, "content": content}]


def _render_block(block: Block) -> JsonObject:
    if block.source is not None and not block.edited:
        return block.source
    return {**(block.source or {}), **_changes(block)}


def _changes(block: Block) -> JsonObject:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            return _thinking_changes(block)
        case Image():
            return {"type": "image", "source": _media_source(block)}
        case Document(text=str() as text):
            origin = {"type": "text", "media_type": block.media_type, "data": text}
            return {"type": "document", "source": origin}
        case Document():
            return {"type": "document", "source": _media_source(block)}
        case ToolCall():
            arguments = object_or_none(block.arguments)
            given = {"input": block.arguments} if arguments is None else arguments
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": given}
        case ToolResult():
            return _result_changes(block)
        case Opaque():
            return block.source


def _thinking_changes(block: Thinking) -> JsonObject:
    known = (block.source or {}).get("type")
    if known == "redacted_thinking" or (known is None and not block.text):
        return {"type": "redacted_thinking", "data": block.signature or ""}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}


def _media_source(block: Image | Document) -> JsonObject:
    if block.url is not None:
        return {"type": "url", "url": block.url}
    return {"type": "base64", "media_type": block.media_type, "data": block.data or ""}


def _result_changes(block: ToolResult) -> JsonObject:
    source = block.source or {}
    changes: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.call_id}
    changes["content"] = string_or_list(block.content, source.get("content"), _render_block)
    if block.is_error or "is_error" in source:
        changes["is_error"] = block.is_error
    return changes


FORMAT = MessageFormat("anthropic", RULES, recognises, parse_message, render_message, "beside")
