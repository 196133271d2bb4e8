"""Layers that move large content to the archive: tool results, images and documents.

`persist` replaces a large result by a marker with a preview. Published designs call it "tool result
budget" or "large output demotion" (see policies.py). It runs before all layers that clear, so that
the whole text is archived before a placeholder replaces it.

`offload_media` archives the oldest images and documents if a request has too many bytes. An image
costs few tokens and many bytes, so a list can be far within its window and still be refused for its
size. The newest turn keeps its media.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from context_compaction.activity.calls import is_recalling
from context_compaction.layers.base import (
    LayerContext,
    Place,
    Replacement,
    persist_result,
    replace_blocks,
    result_chars,
)
from context_compaction.layers.preview import extract, preview, search_words
from context_compaction.messages import model, placeholders
from context_compaction.messages.speakers import newest_results, user_text
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.tokens.counter import MessageCounter, content_tokens

# Search words are taken from the first characters of the request, and of the agent's last text.
_SOUGHT_CHARS = 2_000


def persist(messages: model.Messages, context: LayerContext) -> model.Step:
    """Archive large results, and leave a marker with a preview of each.

    An old result is large above `persist_result_tokens`; with `newest_only` old results stay. A new
    result, which the model has not seen yet, is large above the larger of `persist_result_tokens`
    and `fresh_tokens`. If all new results together exceed both `fresh_tokens` and
    `persist_newest_chars`, the largest of them are archived until the rest is within one limit.

    All new results, whole or not, share `unread_tokens`; a large share lengthens a preview.
    A new result of this server's own tools stays if `keep_recent_results` is above 0, so that the
    model sees the text that it recalled.
    """
    settings, count = context.settings, context.count
    newest = newest_results(messages)
    sizes = {place: content_tokens(block, count) for place, block in _results(messages, newest)}
    places = _large_new_results(messages, newest, sizes, context)
    if not context.newest_only:
        places.update(
            place
            for place, block in _results(messages, range(newest.start))
            if content_tokens(block, count) > settings.persist_result_tokens
        )
    if not places:
        return model.Step(messages)
    index = index_calls(messages)
    room_tokens = _shares(sizes, context.unread_tokens)
    words = _search_words(messages) if places.intersection(sizes) else []
    chosen: dict[Place, Replacement] = {}
    for place, result in _results(messages, range(len(messages))):
        name = index.name_of(result)
        is_recalled = place in sizes and is_recalling(name) and settings.keep_recent_results > 0
        if place in places and not is_recalled:
            show = partial(_shown, result, context, room_tokens.get(place, 0), words)
            if replacement := persist_result(result, name, count, show):
                chosen[place] = replacement
    return replace_blocks(messages, chosen, layer="persist")


def _large_new_results(
    messages: model.Messages, newest: range, sizes: Mapping[Place, int], context: LayerContext
) -> set[Place]:
    """Return the new results that are too large, alone or together. `sizes` are in tokens."""
    settings, fresh_tokens = context.settings, context.fresh_tokens
    max_tokens = max(settings.persist_result_tokens, fresh_tokens)
    places = {place for place, size in sizes.items() if size > max_tokens}
    total_tokens = sum(sizes.values())
    if total_tokens > fresh_tokens:
        chars = {place: result_chars(block) for place, block in _results(messages, newest)}
        fresh_chars = int(sum(chars.values()) * (fresh_tokens / total_tokens))
        places |= _largest_over(chars, max(settings.persist_newest_chars, fresh_chars))
    return places


def _shown(
    result: model.ToolResult,
    context: LayerContext,
    room_tokens: int,
    words: Sequence[str],
    marker: str,
) -> str:
    """Return the preview in `marker`; a longer one if the whole marker fits into `room_tokens`."""
    text, measure = model.result_text(result), context.count.text
    shown = preview(text, max_chars=context.settings.preview_chars)
    left_tokens = room_tokens - measure(marker)
    if left_tokens <= measure(shown):
        return shown
    return extract(text, left_tokens, measure=measure, words=words)


def fresh_result_tokens(messages: model.Messages, count: MessageCounter) -> int:
    """Return the tokens of the newest results, which the model has not seen yet."""
    newest = _results(messages, newest_results(messages))
    return sum(content_tokens(block, count) for _, block in newest)


def _search_words(messages: model.Messages) -> list[str]:
    """Return words of the newest request and of the agent's last text."""
    request = next((m for m in reversed(messages) if placeholders.is_request(m)), None)
    agent = next((model.text_of(m.blocks) for m in reversed(messages) if m.role == "assistant"), "")
    asked = user_text(request)[:_SOUGHT_CHARS] if request else ""
    return search_words(f"{asked}\n{agent[:_SOUGHT_CHARS]}")


def _results(messages: model.Messages, indices: range) -> Iterator[tuple[Place, model.ToolResult]]:
    """Yield the results in the messages at `indices` that no layer has replaced yet."""
    for index in indices:
        for number, block in enumerate(messages[index].blocks):
            if isinstance(block, model.ToolResult) and not placeholders.is_placeholder(block):
                yield Place(index, number), block


def _largest_over(chars: Mapping[Place, int], allowed_chars: int) -> set[Place]:
    """Return the largest results, until the rest is within `allowed_chars`."""
    total = sum(chars.values())
    chosen: set[Place] = set()
    for place, size in sorted(chars.items(), key=lambda item: (-item[1], item[0])):
        if total <= allowed_chars:
            break
        chosen.add(place)
        total -= size
    return chosen


def _shares(sizes: Mapping[Place, int], tokens: int) -> dict[Place, int]:
    """Return the token limit of each result, so that all together stay within `tokens`.

    Each limit is an equal share of what smaller results leave over.
    """
    shares: dict[Place, int] = {}
    for place, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        shares[place] = tokens // (len(sizes) - len(shares))
        tokens -= min(size, shares[place])
    return shares


def offload_media(messages: model.Messages, context: LayerContext) -> model.Step:
    """Replace media by pointers, oldest first, until the messages are within `limit_bytes`."""
    count = context.count
    excess_bytes = count.request_bytes(messages) - context.limit_bytes
    chosen: dict[Place, Replacement] = {}
    for place, block in _old_blocks(messages) if excess_bytes > 0 else ():
        if excess_bytes <= 0:
            break
        blobs: list[model.Blob] = []
        new_block = _without_media(block, blobs)
        if not blobs:
            continue
        sizes = count.block(block), count.block(new_block)
        pointers = tuple(blob.output_id for blob in blobs)
        edit = model.Edit("", "offloaded", None, *sizes, pointers, note="media")
        chosen[place] = Replacement(new_block, blobs, edit)
        excess_bytes -= sum(len(blob.data) for blob in blobs)
    return replace_blocks(messages, chosen, layer="offload")


def _old_blocks(messages: model.Messages) -> Iterator[tuple[Place, model.Block]]:
    """Yield the blocks before the newest turn, oldest first."""
    newest_turn = max(
        (i for i, message in enumerate(messages) if model.starts_turn(message)), default=0
    )
    for index, message in enumerate(messages[:newest_turn]):
        for number, block in enumerate(message.blocks):
            yield Place(index, number), block


def _without_media(block: model.Block, blobs: list[model.Blob]) -> model.Block:
    """Return `block` with pointers in the place of media, and add the media to `blobs`."""
    if isinstance(block, model.ToolResult):
        parts = tuple(_offload(part, blobs) for part in block.content)
        return replace(block, content=parts, edited=True)
    return _offload(block, blobs) if isinstance(block, model.Image | model.Document) else block


def _offload(part: model.Part, blobs: list[model.Blob]) -> model.Part:
    if not isinstance(part, model.Image | model.Document):
        return part
    blob = model.make_blob(model.media_json(part), media_type=model.JSON_MEDIA_TYPE)
    blobs.append(blob)
    kind = type(part).__name__.lower()
    return model.Text(placeholders.offloaded(kind, part.media_type, blob), author="host")
