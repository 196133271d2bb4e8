"""Layer: a large tool result is archived; a marker with a preview replaces it.

This is the papers' "tool result budget" and "large output demotion". It runs before anything that
clears, so that the whole text is kept before a placeholder replaces it.
"""

from collections.abc import Iterator, Mapping, Sequence

from context_compaction.activity.calls import is_recalling
from context_compaction.layers.base import LayerContext
from context_compaction.layers.preview import extract, preview, search_words
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Messages, Text, ToolResult, edit_result, text_of
from context_compaction.messages.speakers import user_text
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.messages.tool_results import (
    newest_results,
    result_blobs,
    result_chars,
    result_text,
)
from context_compaction.tokens.counter import MessageCounter, content_tokens


def persist(messages: Messages, context: LayerContext) -> Step:
    """Replace every result above `persist_result_tokens`, and the largest of the newest results.

    All results of the newest message together may have `persist_newest_chars`. Larger limits for
    the newest results, which the model has not seen, are `fresh_tokens` of them all; if any of them
    is replaced, their previews share `unread_tokens`. A result of our own tools stays while
    it is the newest, so that the model sees the text that it recalled.
    """
    settings, count = context.settings, context.count
    newest = newest_results(messages)
    sizes = {at: content_tokens(block, count) for at, block in _results(messages, newest)}
    fresh_tokens = context.fresh_tokens
    most_tokens = max(settings.persist_result_tokens, fresh_tokens)
    places = {at for at, size in sizes.items() if size > most_tokens}
    if sum(sizes.values()) > fresh_tokens:
        fresh_share = fresh_tokens / sum(sizes.values())
        chars = {at: result_chars(block) for at, block in _results(messages, newest)}
        allowed_chars = max(settings.persist_newest_chars, int(sum(chars.values()) * fresh_share))
        places |= _largest_over(chars, allowed_chars)
    if not context.newest_only:
        places.update(
            at
            for at, block in _results(messages, range(newest.start))
            if content_tokens(block, count) > settings.persist_result_tokens
        )
    if not places:
        return Step(messages)
    index = index_calls(messages)
    rooms = _shares_of(sizes, context.unread_tokens)
    sought = _words_asked(messages) if places.intersection(sizes) else []
    chosen: dict[Place, Replacement] = {}
    for place, result in _results(messages, range(len(messages))):
        name = index.name_of(result)
        is_recalled = place in sizes and is_recalling(name) and settings.keep_recent_results > 0
        if place in places and not is_recalled:
            marked = _persisted(
                result, name, count, settings.preview_chars, rooms.get(place, 0), sought
            )
            if marked is not None:
                chosen[place] = marked
    return replace_blocks(messages, chosen, count, layer="persist")


def _persisted(
    result: ToolResult,
    tool_name: str,
    count: MessageCounter,
    preview_chars: int,
    room_tokens: int,
    sought: Sequence[str],
) -> Replacement | None:
    """`result` with its texts replaced by one marker; pictures and the like stay beside it.

    The marker has a preview of `preview_chars`, or counts `room_tokens` if that is more. None where
    it would not be smaller than the result.
    """
    texts = tuple(part for part in result.content if isinstance(part, Text))
    others = tuple(part for part in result.content if not isinstance(part, Text))
    blobs = result_blobs(result, tool_name, texts)
    if not blobs:
        return None
    text, size_chars = result_text(result), sum(len(part.text) for part in texts)
    shown = preview(text, max_chars=preview_chars)
    frame_tokens = count.text(placeholders.persisted(blobs, "", tool_name, size_chars))
    if room_tokens > frame_tokens + count.text(shown):
        shown = extract(text, room_tokens - frame_tokens, measure=count.text, sought=sought)
    marker = Text(placeholders.persisted(blobs, shown, tool_name, size_chars), author="compaction")
    marked = edit_result(result, (marker, *others))
    saved_tokens = count.block(result) - count.block(marked)
    if saved_tokens <= 0:
        return None
    return Replacement(marked, blobs, saved_tokens, "persisted", tool_name)


def fresh_result_tokens(messages: Messages, count: MessageCounter) -> int:
    """The tokens of the newest results together, which the model has not seen yet."""
    newest = _results(messages, newest_results(messages))
    return sum(content_tokens(block, count) for _, block in newest)


def _words_asked(messages: Messages) -> list[str]:
    """Words of the newest request and of the agent's last text, which the newest results answer."""
    request = next((m for m in reversed(messages) if placeholders.is_request(m)), None)
    agent = next((text_of(m.blocks) for m in reversed(messages) if m.role == "assistant"), "")
    # So much of each is searched for words.
    asked = user_text(request)[:2_000] if request else ""
    return search_words(f"{asked}\n{agent[:2_000]}")


def _results(messages: Messages, positions: range) -> Iterator[tuple[Place, ToolResult]]:
    """The results at `positions` that no layer has replaced yet."""
    for position in positions:
        for at, block in enumerate(messages[position].blocks):
            if isinstance(block, ToolResult) and not placeholders.is_placeholder(block):
                yield Place(position, at), block


def _largest_over(chars: Mapping[Place, int], allowed_chars: int) -> set[Place]:
    """The largest results, as many as bring the rest within `allowed_chars`."""
    total = sum(chars.values())
    chosen: set[Place] = set()
    for place, size in sorted(chars.items(), key=lambda item: (-item[1], item[0])):
        if total <= allowed_chars:
            break
        chosen.add(place)
        total -= size
    return chosen


def _shares_of(sizes: Mapping[Place, int], tokens: int) -> dict[Place, int]:
    """The room of each result: as much as it needs, and of what is left the same for all."""
    rooms: dict[Place, int] = {}
    for place, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        rooms[place] = tokens // (len(sizes) - len(rooms))
        tokens -= min(size, rooms[place])
    return rooms
