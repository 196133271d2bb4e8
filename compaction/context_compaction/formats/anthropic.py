"""Anthropic's Messages API: roles user and assistant, content as a string or a list of blocks.

Blocks of server-side tools (`server_tool_use` and its results, `mcp_tool_use`, `compaction`,
`container_upload` and others) and of unknown types are `Opaque`.
"""

from dataclasses import replace
from typing import Any

from context_compaction.formats import base
from context_compaction.messages import model
from context_compaction.messages.tool_pairs import ProviderRules

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

# Marks of rows in Claude Code's files. `session_files/claude_code.py` copies them to the messages.
HOST_MARKS = ("isMeta", "isCompactSummary")
# The model in answers that Claude Code wrote itself.
SYNTHETIC_MODEL = "<synthetic>"
_ROLES: dict[str, model.Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_FOREIGN_FIELDS = {"tool_calls", "tool_call_id", "function_call", "parts", "stopReason"}


def recognises(message: model.JsonObject) -> int:
    """Return how well a message fits; see `MessageFormat.recognises`."""
    if base.text_or_none(message.get("role")) not in _ROLES or not _FOREIGN_FIELDS.isdisjoint(
        message
    ):
        return 0
    content = message.get("content")
    return base.weigh_content(content, "anthropic") if base.images_have("source", content) else 0


def parse(message: base.Node) -> model.Message:
    """Parse one message; raises `InvalidMessageError`."""
    remedy = 'Give "user" or "assistant"; tool results are blocks of a user message.'
    role = message.role(_ROLES, remedy)
    blocks = message.content(_parse_block)
    author = _author(message.raw)
    if author is not None:
        blocks = tuple(
            replace(b, author=author) if isinstance(b, model.Text) else b for b in blocks
        )
    return model.Message(role, blocks, source=message.raw, index=message.index)


def _author(raw: model.JsonObject) -> model.Author | None:
    """Return "host" for text that Claude Code wrote in another's name, else None.

    Its session files mark such messages. In the assistant's name it reports limits and failed
    requests.
    """
    is_marked = raw.get("role") == "user" and any(raw.get(mark) is True for mark in HOST_MARKS)
    is_synthetic = raw.get("role") == "assistant" and raw.get("model") == SYNTHETIC_MODEL
    return "host" if is_marked or is_synthetic else None


def _parse_block(block: base.Node) -> model.Block:
    match kind := block.kind():
        case "thinking":
            signature = base.text_or_none(block.raw.get("signature"))
            return model.Thinking(block.text("thinking"), signature, source=block.raw)
        case "redacted_thinking":
            return model.Thinking("", block.text("data"), source=block.raw)
        case "tool_use":
            arguments = block.object("input", "Give the arguments as an object, {} if none.").raw
            return model.ToolCall(block.name("id"), block.name("name"), arguments, source=block.raw)
        case "tool_result":
            return _parse_result(block)
        case _:
            return _parse_part(block, kind)


def _parse_result(block: base.Node) -> model.ToolResult:
    call_id = block.name("tool_use_id", "Give the id of the tool_use block that it answers.")
    is_error = block.raw.get("is_error")
    if is_error is not None and not isinstance(is_error, bool):
        block.refuse("`is_error` is not a boolean", "Give true or false.")
    has_content = block.raw.get("content") is not None
    parts = block.content(lambda part: _parse_part(part, part.kind())) if has_content else ()
    return model.ToolResult(call_id, parts, bool(is_error), source=block.raw)


def _parse_part(block: base.Node, kind: str) -> model.Part:
    if kind == "text":
        return model.Text(block.text("text"), source=block.raw)
    if kind not in {"image", "document"}:
        return model.Opaque(kind, block.raw)
    remedy = 'Give {"type": "base64", "media_type": "...", "data": "..."} or a url.'
    origin = block.object("source", remedy)
    media_type = base.text_or_none(origin.raw.get("media_type")) or "application/pdf"
    match kind, origin.raw.get("type"):
        case "image", "base64":
            media_type = origin.text("media_type")
            return model.Image(media_type, data=origin.text("data"), source=block.raw)
        case "image", "url":
            return model.Image("image/*", url=origin.text("url"), source=block.raw)
        case "document", "base64":
            return model.Document(media_type, data=origin.text("data"), source=block.raw)
        case "document", "text":
            return model.Document(media_type, text=origin.text("data"), source=block.raw)
        case "document", "url":
            return model.Document(media_type, url=origin.text("url"), source=block.raw)
        case _:
            return model.Opaque(kind, block.raw)


def render_edited(message: model.Message) -> list[model.JsonObject]:
    """Render a copy of the host's object with the edits, or a new object."""
    role = "assistant" if message.role == "assistant" else "user"
    source = message.source or {"role": role}
    content = base.string_or_list(message.blocks, source.get("content"), _changes)
    return [{**source, "content": content}]


def _changes(block: model.Block) -> model.JsonObject:
    match block:
        case model.Text():
            return {"type": "text", "text": block.text}
        case model.Thinking():
            return _thinking_changes(block)
        case model.Document(text=str() as text):
            origin = {"type": "text", "media_type": block.media_type, "data": text}
            return {"type": "document", "source": origin}
        case model.Image() | model.Document():
            kind = "image" if isinstance(block, model.Image) else "document"
            return {"type": kind, "source": _media_source(block)}
        case model.ToolCall():
            named = {"type": "tool_use", "id": block.call_id, "name": block.name}
            return {**named, "input": base.object_arguments(block)}
        case model.ToolResult():
            return _result_changes(block)
        case model.Opaque():
            return block.source


def _thinking_changes(block: model.Thinking) -> model.JsonObject:
    kind = (block.source or {}).get("type")
    if kind == "redacted_thinking" or (kind is None and not block.text):
        return {"type": "redacted_thinking", "data": block.signature or ""}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}


def _media_source(block: model.Image | model.Document) -> model.JsonObject:
    if block.url is not None:
        return {"type": "url", "url": block.url}
    return {"type": "base64", "media_type": block.media_type, "data": block.data or ""}


def _result_changes(block: model.ToolResult) -> model.JsonObject:
    source = block.source or {}
    changes: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.call_id}
    changes["content"] = base.string_or_list(block.content, source.get("content"), _changes)
    if block.is_error or "is_error" in source:
        changes["is_error"] = block.is_error
    return changes


FORMAT = base.MessageFormat("anthropic", RULES, recognises, parse, render_edited, "beside")
