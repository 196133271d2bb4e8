"""Layer: when a request is too many bytes, its oldest pictures and documents are archived.

A picture costs few tokens and many bytes, so a list can be far within its window and still be
refused for its size. The newest turn keeps its media.
"""

from collections.abc import Iterator
from dataclasses import replace

from context_compaction.layers.base import LayerContext
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, Step, make_blob
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    Messages,
    Text,
    ToolResult,
    starts_turn,
)
from context_compaction.messages.tool_results import JSON_MEDIA_TYPE, media_json


def offload_media(messages: Messages, context: LayerContext) -> Step:
    """Replace media by pointers, oldest first, until the messages are within `limit_bytes`."""
    count = context.count
    excess_bytes = count.request_bytes(messages) - context.limit_bytes
    chosen: dict[Place, Replacement] = {}
    for place, block in _old_media(messages) if excess_bytes > 0 else ():
        if excess_bytes <= 0:
            break
        replaced, blobs = _without_media(block)
        saved_tokens = count.block(block) - count.block(replaced)
        chosen[place] = Replacement(replaced, blobs, saved_tokens, "offloaded", note="media")
        excess_bytes -= sum(len(blob.data) for blob in blobs)
    return replace_blocks(messages, chosen, count, layer="offload")


def _old_media(messages: Messages) -> Iterator[tuple[Place, Block]]:
    newest_turn = max((at for at, m in enumerate(messages) if starts_turn(m)), default=0)
    for position, message in enumerate(messages[:newest_turn]):
        for at, block in enumerate(message.blocks):
            parts = block.content if isinstance(block, ToolResult) else (block,)
            if any(isinstance(part, Image | Document) for part in parts):
                yield Place(position, at), block


def _without_media(block: Block) -> tuple[Block, tuple[Blob, ...]]:
    if isinstance(block, Image | Document):
        text, blob = _pointer(block)
        return text, (blob,)
    if not isinstance(block, ToolResult):
        return block, ()
    blobs: list[Blob] = []
    parts = list(block.content)
    for at, part in enumerate(parts):
        if isinstance(part, Image | Document):
            parts[at], blob = _pointer(part)
            blobs.append(blob)
    return replace(block, content=tuple(parts), edited=True), tuple(blobs)


def _pointer(part: Image | Document) -> tuple[Text, Blob]:
    blob = make_blob(media_json(part), media_type=JSON_MEDIA_TYPE)
    kind = type(part).__name__.lower()
    return Text(placeholders.offloaded(kind, part.media_type, blob), author="host"), blob
