"""How many bytes a message adds to a request, for the provider's limit on its size."""

from typing import Any, cast

from context_compaction.messages import (
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

# Keys, braces and type names around a block or message of our own making, in the longest format.
BLOCK_FRAME_BYTES = 200
MESSAGE_FRAME_BYTES = 100

_RARE_CONTROLS = bytes(code for code in range(32) if code not in b"\b\t\n\f\r")


def message_bytes(message: Message) -> int:
    """Bytes of the JSON that `message` adds to a request: an upper estimate, close to the truth.

    Exact up to white space for a message that nobody edited, as the SDKs of the providers write it
    (UTF-8; a client that escapes every non-ASCII character sends more). Media data is included.
    """
    if message.source is not None and not message.edited:
        return json_bytes(message.source)
    return MESSAGE_FRAME_BYTES + sum(_block_bytes(block) for block in message.blocks)


def json_bytes(value: Any) -> int:
    """Bytes of a JSON value as `json.dumps(value, ensure_ascii=False)` writes it, or a few more."""
    if isinstance(value, str):
        return _string_bytes(value)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return 2 + sum(json_bytes(key) + json_bytes(item) + 4 for key, item in fields.items())
    if isinstance(value, list):
        items = cast("list[object]", value)
        return 2 + sum(json_bytes(item) + 2 for item in items)
    return max(5, len(repr(value)))  # a number, true, false or null


def _string_bytes(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    escaped = sum(map(data.count, (b'"', b"\\", b"\n", b"\r", b"\t", b"\b", b"\f")))
    controls = len(data) - len(data.translate(None, _RARE_CONTROLS))
    return 2 + len(data) + escaped + 5 * controls


def _block_bytes(block: Block) -> int:
    if block.source is not None and not block.edited:
        return json_bytes(block.source)
    match block:
        case Text():
            content = _string_bytes(block.text)
        case Thinking():
            content = _string_bytes(block.text) + _string_bytes(block.signature or "")
        case ToolCall():
            # Some formats write the arguments as JSON inside a JSON string: every quote twice.
            content = 2 * json_bytes(block.arguments) + len(block.name) + len(block.call_id)
        case ToolResult():
            content = len(block.call_id) + sum(_block_bytes(part) for part in block.content)
        case Image():
            content = len(block.data or "") + len(block.url or "")
        case Document():
            content = len(block.data or "") + len(block.url or "")
            content += _string_bytes(block.text or "")
        case Opaque():
            content = json_bytes(block.source)
    return BLOCK_FRAME_BYTES + content
