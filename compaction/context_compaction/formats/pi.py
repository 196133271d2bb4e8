"""Messages of pi's session files: roles user, assistant, toolResult, and some roles of pi's own.

A `bashExecution` (a command that the user ran) becomes two texts, the command and its output, so
that a long output can be edited alone. Summaries (`compactionSummary`, `branchSummary`) and texts
of extensions (`custom`, formerly `hookMessage`; in the fork Oh My Pi `developer`) become texts of
the host in a user message.
"""

from dataclasses import replace
from typing import TypeAlias

from context_compaction.formats.base import (
    MessageFormat,
    Node,
    describe_media,
    images_have,
    name_of,
    object_arguments,
    render_block,
    sane_seconds,
    string_or_list,
    text_or_none,
    weigh_content,
)
from context_compaction.messages import model
from context_compaction.messages.tool_pairs import ProviderRules

RULES = ProviderRules(first_role_user=True, results_follow_call=True)

_MessageBlock: TypeAlias = model.Part | model.Thinking | model.ToolCall

_HOST_ROLES = {"custom", "hookMessage", "developer"}
_SUMMARY_ROLES = {"compactionSummary", "branchSummary"}
_OWN_ROLES = {"toolResult", "bashExecution", "custom", "hookMessage", *_SUMMARY_ROLES}
_ROLES: dict[str, model.Role] = {
    **dict.fromkeys(("user", "developer", *_OWN_ROLES), "user"),
    "assistant": "assistant",
}


def recognises(message: model.JsonObject) -> int:
    """Return how well a message fits; see `MessageFormat.recognises`."""
    role = text_or_none(message.get("role"))
    content = message.get("content")
    if role in _OWN_ROLES:
        return 2
    if role not in _ROLES or "tool_calls" in message or not images_have("data", content):
        return 0
    if role == "developer" and "timestamp" not in message:
        return 0  # The role is OpenAI's.
    weight = weigh_content(content, "pi")
    return 2 if weight and "stopReason" in message else weight


def parse(message: Node) -> model.Message:
    """Parse one message; raises `InvalidMessageError`."""
    raw = message.raw
    role = message.role(_ROLES, 'Give "user", "assistant", "toolResult" or "bashExecution".')
    name = raw["role"]
    if name == "toolResult":
        blocks: tuple[model.Block, ...] = (_parse_result(message),)
    elif name == "bashExecution":
        command, output = message.text("command"), message.text("output")
        request = model.Text(f"Ran `{command}`", source={"command": command}, author="host")
        blocks = (request, model.Text(output, source={"output": output}, author="tool"))
    elif name in _SUMMARY_ROLES:
        text = message.text("summary")
        blocks = (model.Text(text, source={"summary": text}, author="host"),)
    else:
        blocks = message.content(_parse_block)
    if name in _HOST_ROLES:
        blocks = tuple(
            replace(b, author="host") if isinstance(b, model.Text) else b for b in blocks
        )
    seconds = sane_seconds(raw.get("timestamp"), per_second=1000)
    return model.Message(role, blocks, source=raw, index=message.index, timestamp_seconds=seconds)


def _parse_block(block: Node) -> _MessageBlock:
    raw = block.raw
    match kind := block.kind():
        case "toolCall":
            arguments = block.object("arguments", "Give an object, {} if none.").raw
            return model.ToolCall(block.name("id"), block.name("name"), arguments, source=raw)
        case "thinking":
            signature = text_or_none(raw.get("thinkingSignature"))
            return model.Thinking(block.text("thinking"), signature, source=raw)
        case _:
            return _parse_part(block, kind)


def _parse_part(block: Node, kind: str) -> model.Part:
    match kind:
        case "text":
            return model.Text(block.text("text"), source=block.raw)
        case "image":
            return model.Image(block.text("mimeType"), data=block.text("data"), source=block.raw)
        case _:
            return model.Opaque(kind, block.raw)


def _parse_result(message: Node) -> model.ToolResult:
    call_id = message.name("toolCallId", "Give the id of the toolCall that it answers.")
    name = message.text("toolName")
    parts = message.content(lambda part: _parse_part(part, part.kind()))
    is_error = bool(message.raw.get("isError"))
    return model.ToolResult(call_id, parts, is_error, name=name, source=message.raw)


def render_edited(message: model.Message) -> list[model.JsonObject]:
    """Render an edited copy, or new messages: one for each result."""
    source = message.source
    role = (source or {}).get("role")
    if role == "bashExecution":
        return [{**(source or {}), "output": _joined_texts(message, without="command")}]
    if role in _SUMMARY_ROLES:
        return [{**(source or {}), "summary": _joined_texts(message)}]
    return _render_new(message, None if role == "toolResult" else source)


def _joined_texts(message: model.Message, without: str = "") -> str:
    """Return the texts of a message for its one text field, except the text from a given field."""
    texts = [block for block in message.blocks if isinstance(block, model.Text)]
    return "\n".join(block.text for block in texts if without not in (block.source or {}))


def _render_new(message: model.Message, base: model.JsonObject | None) -> list[model.JsonObject]:
    stamp = message.timestamp_seconds
    stamped: model.JsonObject = {} if stamp is None else {"timestamp": round(stamp * 1000)}
    results = [
        render_block(result, lambda result: _result_changes(result, stamped))
        for result in model.tool_results(message)
    ]
    rest = [block for block in message.blocks if not isinstance(block, model.ToolResult)]
    if not rest and (results or (message.source is not None and base is None)):
        return results
    if base is None:
        role = "assistant" if message.role == "assistant" else "user"
        other = {
            "role": role,
            "content": [render_block(block, _changes) for block in rest],
            **stamped,
        }
    else:
        other = {**base, "content": string_or_list(rest, base.get("content"), _changes)}
    return [*results, other]


def _result_changes(result: model.ToolResult, stamped: model.JsonObject) -> model.JsonObject:
    original = (result.source or {}).get("content")
    content = string_or_list(result.content, [] if original is None else original, _changes)
    changes = {"toolCallId": result.call_id, "content": content, "isError": result.is_error}
    if result.source:
        return changes
    return {"role": "toolResult", "toolName": name_of(result), **changes, **stamped}


def _changes(block: _MessageBlock) -> model.JsonObject:
    match block:
        case model.Text():
            return {"type": "text", "text": block.text}
        case model.Thinking():
            signature = {} if block.signature is None else {"thinkingSignature": block.signature}
            return {"type": "thinking", "thinking": block.text, **signature}
        case model.Image(data=str() as data):
            return {"type": "image", "data": data, "mimeType": block.media_type}
        case model.Document(text=str() as text):
            return {"type": "text", "text": text}
        case model.Image() | model.Document():
            return {"type": "text", "text": describe_media(block)}
        case model.ToolCall():
            named = {"type": "toolCall", "id": block.call_id, "name": block.name}
            return {**named, "arguments": object_arguments(block)}
        case model.Opaque():
            return block.source


FORMAT = MessageFormat("pi", RULES, recognises, parse, render_edited, "nowhere")
