"""Layer: archive the oldest images and documents if a request has too many bytes.

An image costs few tokens and many bytes, so a list can be far within its window and still be
refused for its size. The newest turn keeps its media.
"""

from collections.abc import Iterator
from dataclasses import replace

from context_compaction.layers.base import LayerContext, Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    JSON_MEDIA_TYPE,
    Blob,
    Block,
    Document,
    Edit,
    Image,
    Messages,
    Part,
    Step,
    Text,
    ToolResult,
    make_blob,
    media_json,
    starts_turn,
)


def offload_media(messages: Messages, context: LayerContext) -> Step:
    """Replace media by pointers, oldest first, until the messages are within `limit_bytes`."""
    count = context.count
    excess_bytes = count.request_bytes(messages) - context.limit_bytes
    chosen: dict[Place, Replacement] = {}
    for place, block in _old_blocks(messages) if excess_bytes > 0 else ():
        if excess_bytes <= 0:
            break
        blobs: list[Blob] = []
        new_block = _without_media(block, blobs)
        if not blobs:
            continue
        sizes = count.block(block), count.block(new_block)
        pointers = tuple(blob.output_id for blob in blobs)
        edit = Edit("", "offloaded", None, *sizes, pointers, note="media")
        chosen[place] = Replacement(new_block, blobs, edit)
        excess_bytes -= sum(len(blob.data) for blob in blobs)
    return replace_blocks(messages, chosen, layer="offload")


def _old_blocks(messages: Messages) -> Iterator[tuple[Place, Block]]:
    """Yield the blocks before the newest turn, oldest first."""
    newest_turn = max((i for i, message in enumerate(messages) if starts_turn(message)), default=0)
    for index, message in enumerate(messages[:newest_turn]):
        for number, block in enumerate(message.blocks):
            yield Place(index, number), block


def _without_media(block: Block, blobs: list[Blob]) -> Block:
    """Return `block` with pointers in the place of media, and add the media to `blobs`."""
    if isinstance(block, ToolResult):
        parts = tuple(_offload(part, blobs) for part in block.content)
        return replace(block, content=parts, edited=True)
    return _offload(block, blobs) if isinstance(block, Image | Document) else block


def _offload(part: Part, blobs: list[Blob]) -> Part:
    if not isinstance(part, Image | Document):
        return part
    blob = make_blob(media_json(part), media_type=JSON_MEDIA_TYPE)
    blobs.append(blob)
    kind = type(part).__name__.lower()
    return Text(placeholders.offloaded(kind, part.media_type, blob), author="host")
