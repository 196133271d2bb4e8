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
    object_arguments,
    objects_in,
    render_block,
    sane_seconds,
    string_or_list,
    text_or_none,
)
from context_compaction.formats.detection import weigh_content
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
from context_compaction.messages.tool_pairs import ProviderRules

RULES = ProviderRules(first_role_user=True, results_follow_call=True)

_MessageBlock: TypeAlias = Part | Thinking | ToolCall

_HOST_ROLES = {"custom", "hookMessage", "developer"}
_SUMMARY_ROLES = {"compactionSummary", "branchSummary"}
_OWN_ROLES = {"toolResult", "bashExecution", "custom", "hookMessage", *_SUMMARY_ROLES}
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "developer", *_OWN_ROLES), "user"),
    "assistant": "assistant",
}


def recognises(message: JsonObject) -> int:
    """Return how well a message fits; see `MessageFormat.recognises`."""
    role = text_or_none(message.get("role"))
    content = message.get("content")
    if role in _OWN_ROLES:
        return 2
    if role not in _ROLES or "tool_calls" in message or not _images_have_data(content):
        return 0
    if role == "developer" and "timestamp" not in message:
        return 0  # The role is OpenAI's.
    weight = weigh_content(content, "pi")
    return 2 if weight and "stopReason" in message else weight


def _images_have_data(content: object) -> bool:
    return all("data" in b for b in objects_in(content) if b.get("type") == "image")


def parse(message: Node) -> Message:
    """Parse one message; raises `InvalidMessageError`."""
    raw = message.raw
    role = message.role(_ROLES, 'Give "user", "assistant", "toolResult" or "bashExecution".')
    name = raw["role"]
    if name == "toolResult":
        blocks: tuple[Block, ...] = (_parse_result(message),)
    elif name == "bashExecution":
        command, output = message.text("command"), message.text("output")
        request = Text(f"Ran `{command}`", source={"command": command}, author="host")
        blocks = (request, Text(output, source={"output": output}, author="tool"))
    elif name in _SUMMARY_ROLES:
        text = message.text("summary")
        blocks = (Text(text, source={"summary": text}, author="host"),)
    else:
        blocks = message.content(_parse_block)
    if name in _HOST_ROLES:
        blocks = tuple(replace(b, author="host") if isinstance(b, Text) else b for b in blocks)
    seconds = sane_seconds(raw.get("timestamp"), per_second=1000)
    return Message(role, blocks, source=raw, index=message.index, timestamp_seconds=seconds)


def _parse_block(block: Node) -> _MessageBlock:
    raw = block.raw
    match kind := block.kind():
        case "toolCall":
            arguments = block.object("arguments", "Give an object, {} if none.").raw
            return ToolCall(block.name("id"), block.name("name"), arguments, source=raw)
        case "thinking":
            signature = text_or_none(raw.get("thinkingSignature"))
            return Thinking(block.text("thinking"), signature, source=raw)
        case _:
            return _parse_part(block, kind)


def _parse_part(block: Node, kind: str) -> Part:
    match kind:
        case "text":
            return Text(block.text("text"), source=block.raw)
        case "image":
            return Image(block.text("mimeType"), data=block.text("data"), source=block.raw)
        case _:
            return Opaque(kind, block.raw)


def _parse_result(message: Node) -> ToolResult:
    call_id = message.name("toolCallId", "Give the id of the toolCall that it answers.")
    name = message.text("toolName")
    parts = message.content(lambda part: _parse_part(part, part.kind()))
    is_error = bool(message.raw.get("isError"))
    return ToolResult(call_id, parts, is_error, name=name, source=message.raw)


def render_edited(message: Message) -> list[JsonObject]:
    """Render an edited copy, or new messages: one for each result."""
    source = message.source
    role = (source or {}).get("role")
    if role == "bashExecution":
        return [{**(source or {}), "output": _joined_texts(message, without="command")}]
    if role in _SUMMARY_ROLES:
        return [{**(source or {}), "summary": _joined_texts(message)}]
    return _render_new(message, None if role == "toolResult" else source)


def _joined_texts(message: Message, without: str = "") -> str:
    """Return the texts of a message for its one text field, except the text from a given field."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    return "\n".join(block.text for block in texts if without not in (block.source or {}))


def _render_new(message: Message, base: JsonObject | None) -> list[JsonObject]:
    stamp = message.timestamp_seconds
    stamped: JsonObject = {} if stamp is None else {"timestamp": round(stamp * 1000)}
    results = [_render_result(result, stamped) for result in tool_results(message)]
    rest = [block for block in message.blocks if not isinstance(block, ToolResult)]
    if not rest and (results or (message.source is not None and base is None)):
        return results
    if base is None:
        role = "assistant" if message.role == "assistant" else "user"
        other = {"role": role, "content": [_render_block(block) for block in rest], **stamped}
    else:
        other = {**base, "content": string_or_list(rest, base.get("content"), _render_block)}
    return [*results, other]


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


def _render_block(block: _MessageBlock) -> JsonObject:
    return render_block(block, _changes)


def _changes(block: _MessageBlock) -> JsonObject:
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
            return {"type": "text", "text": describe_media(block)}
        case ToolCall():
            named = {"type": "toolCall", "id": block.call_id, "name": block.name}
            return {**named, "arguments": object_arguments(block)}
        case Opaque():
            return block.source


FORMAT = MessageFormat("pi", RULES, recognises, parse, render_edited, "nowhere")
