"""How many bytes a message adds to a request, for the provider's limit on its size."""

from typing import Any

from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    compact_json,
    utf8_json,
)

# Keys, braces and type names around a block or message of our own making, in the longest format.
BLOCK_FRAME_BYTES = 200
MESSAGE_FRAME_BYTES = 100


def message_bytes(message: Message) -> int:
    """Bytes of the JSON that `message` adds to a request.

    Exact for a message that nobody edited, as the providers' SDKs write it: UTF-8, no white space
    (a client that escapes every non-ASCII character sends more). Else a close upper estimate.
    Media data is included.
    """
    if message.source is not None and not message.edited:
        return json_bytes(message.source)
    return MESSAGE_FRAME_BYTES + sum(_block_bytes(block) for block in message.blocks)


def json_bytes(value: Any) -> int:
    """Bytes of a JSON value as UTF-8 without white space."""
    return len(utf8_json(value))


def _block_bytes(block: Block) -> int:
    if block.source is not None and not block.edited:
        return json_bytes(block.source)
    match block:
        case Text():
            content = json_bytes(block.text)
        case Thinking():
            content = json_bytes([block.text, block.signature])
        case ToolCall():
            # Some formats write the arguments as JSON inside a JSON string.
            content = json_bytes([block.call_id, block.name, compact_json(block.arguments)])
        case ToolResult():
            content = json_bytes([block.call_id, block.name])
            content += sum(_block_bytes(part) for part in block.content)
        case Image():
            content = json_bytes([block.data, block.url])
        case Document():
            content = json_bytes([block.data, block.text, block.url])
        case Opaque():
            content = json_bytes(block.source)
    return BLOCK_FRAME_BYTES + content
