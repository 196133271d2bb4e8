"""Layer: a large tool result is archived; a marker with a preview replaces it.

This is the papers' "tool result budget" and "large output demotion". It runs before anything that
clears, so that the whole text is kept before a placeholder replaces it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeGuard

from context_compaction.activity.tool_kinds import is_recalling
from context_compaction.layers.preview import extract, preview, words_sought
from context_compaction.layers.recent_files import is_shown
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Step
from context_compaction.messages.model import (
    Block,
    Messages,
    Text,
    ToolResult,
    edit_result,
    text_of,
)
from context_compaction.messages.speakers import user_text
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.messages.tool_results import (
    newest_results,
    result_blobs,
    result_chars,
    result_text,
)
from context_compaction.tokens.counter import MessageCounter, content_tokens

# Of the request and of what the agent said so much is looked at for words to seek.
_ASKED_CHARS = 2_000
_TOKEN_CHARS = 4
# Before a line of a file stands its number, and before that, in what a search found, its file.
_FOUND_AT = re.compile(r"\A(?:(?:[A-Za-z]:)?[^\s:]{1,400}:)?\s*\d{1,9}(?:\t|→|:|-| ?\|)")


def persist(
    messages: Messages,
    *,
    count: MessageCounter,
    result_tokens: int = 40_000,
    newest_chars: int = 200_000,
    preview_chars: int = 2_000,
    only_newest: bool = False,
    fresh_tokens: int = 0,
    unread_tokens: int = 0,
    spares_recalled: bool = True,
) -> Step:
    """Replace every result above `result_tokens`, and of the newest results the largest ones.

    Args:
        messages: The list.
        count: The token counter.
        result_tokens: A single result above this is persisted, at any position.
        newest_chars: The results of the newest message together may have this many characters;
            above it they are persisted, largest first.
        preview_chars: Length of the preview that stays.
        only_newest: Leave everything but the newest results alone (they are not cached yet).
        fresh_tokens: The newest results, which the model has not seen, may count this many tokens,
            whatever the two limits above.
        unread_tokens: What stays of the newest results together may count this much: the preview of
            one is as long as that allows, and contains what matches the request; 0 is
            `preview_chars`, and so is that of one whose lines the others show.
        spares_recalled: Keep those of the newest results that our own tools returned, so that the
            model sees the recalled text.
    """
    newest = newest_results(messages)
    newest_tokens = fresh_result_tokens(messages, count)
    most_tokens = max(result_tokens, fresh_tokens)
    places: set[Place] = set()
    if newest_tokens > fresh_tokens:
        chars = _newest_chars(messages, newest)
        allowed_chars = int(sum(chars.values()) * fresh_tokens / newest_tokens)
        places = _over_chars(chars, max(newest_chars, allowed_chars))
    for position in newest if only_newest else range(len(messages)):
        limit_tokens = most_tokens if position in newest else result_tokens
        for at, block in enumerate(messages[position].blocks):
            if _is_open(block) and content_tokens(block, count) > limit_tokens:
                places.add(Place(position, at))
    sizes = _sizes(messages, newest, count)
    is_shared = bool(unread_tokens) and newest_tokens > max(unread_tokens, fresh_tokens)
    said = _said_by_others(messages, sizes) if is_shared else set[Place]()
    places |= said
    if not places:
        return Step(messages)
    index = index_calls(messages)
    left_tokens = unread_tokens - len(said) * preview_chars // _TOKEN_CHARS
    rooms = _shared({at: size for at, size in sizes.items() if at not in said}, left_tokens)
    sought = words_asked(messages) if places.intersection(rooms) else []
    chosen: dict[Place, Replacement] = {}
    for place in places:
        block = messages[place.message].blocks[place.block]
        if isinstance(block, ToolResult):
            is_spared = spares_recalled and place.message in newest
            if is_spared and is_recalling(index.name_of(block)):
                continue
            name, room_tokens = index.name_of(block), rooms.get(place, 0)
            marked = persist_result(block, name, count, preview_chars, room_tokens, sought)
            if marked is not None:
                chosen[place] = marked
    return replace_blocks(messages, chosen, count, layer="persist")


def persist_result(
    result: ToolResult,
    tool_name: str,
    count: MessageCounter,
    preview_chars: int,
    room_tokens: int,
    sought: Sequence[str],
) -> Replacement | None:
    """`result` with its texts replaced by one marker; pictures and the like stay beside it.

    The marker counts at most `room_tokens`, where these are more than `preview_chars` would be.
    None where it would not be smaller.
    """
    texts = tuple(part for part in result.content if isinstance(part, Text))
    others = tuple(part for part in result.content if not isinstance(part, Text))
    blobs = result_blobs(result, tool_name, texts)
    if not blobs:
        return None
    text, size_chars = result_text(result), sum(len(part.text) for part in texts)
    if room_tokens:
        frame = placeholders.persisted(blobs, "", tool_name, size_chars)
        left_tokens = max(room_tokens - count.text(frame), preview_chars // _TOKEN_CHARS)
        shown = extract(text, left_tokens, measure=count.text, sought=sought)
    else:
        shown = preview(text, max_chars=preview_chars)
    marker = Text(placeholders.persisted(blobs, shown, tool_name, size_chars), author="compaction")
    marked = edit_result(result, (marker, *others))
    saved_tokens = count.block(result) - count.block(marked)
    if saved_tokens <= 0:
        return None
    return Replacement(marked, blobs, saved_tokens, "persisted", tool_name)


def fresh_result_tokens(messages: Messages, count: MessageCounter) -> int:
    """The tokens of the newest results together, which the model has not seen yet."""
    return sum(_sizes(messages, newest_results(messages), count).values())


def _sizes(messages: Messages, newest: range, count: MessageCounter) -> dict[Place, int]:
    return {
        Place(position, at): content_tokens(block, count)
        for position in newest
        for at, block in enumerate(messages[position].blocks)
        if _is_open(block)
    }


def _shared(sizes: Mapping[Place, int], tokens: int) -> dict[Place, int]:
    """The room of each result: as much as it needs, and of what is left the same for all."""
    rooms: dict[Place, int] = {}
    for place, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        rooms[place] = max(0, tokens) // (len(sizes) - len(rooms))
        tokens -= min(size, rooms[place])
    return rooms


def _said_by_others(messages: Messages, sizes: Mapping[Place, int]) -> set[Place]:
    """Those of the results whose lines the others show: a search beside the files it found."""
    lines: dict[Place, list[str]] = {}
    for place in sorted(sizes, key=lambda place: (-sizes[place], place)):
        block = messages[place.message].blocks[place.block]
        rows = result_text(block).splitlines() if isinstance(block, ToolResult) else ()
        lines[place] = [_FOUND_AT.sub("", row).strip() for row in rows]
    times = Counter(chain.from_iterable(map(set, lines.values())))
    said: set[Place] = set()
    for place, rows in lines.items():
        if is_shown("\n".join(rows), {row for row in rows if times[row] > 1}):
            said.add(place)
            times.subtract(set(rows))
    return said


def words_asked(messages: Messages) -> list[str]:
    """Words of the newest request and of the agent's last text, which the newest results answer."""
    request = next((m for m in reversed(messages) if placeholders.is_request(m)), None)
    agent = next((text_of(m.blocks) for m in reversed(messages) if m.role == "assistant"), "")
    asked = user_text(request)[:_ASKED_CHARS] if request else ""
    return words_sought(f"{asked}\n{agent[:_ASKED_CHARS]}")


def _is_open(block: Block) -> TypeGuard[ToolResult]:
    return isinstance(block, ToolResult) and not placeholders.is_placeholder(block)


def _newest_chars(messages: Messages, newest: range) -> dict[Place, int]:
    return {
        Place(position, at): result_chars(block)
        for position in newest
        for at, block in enumerate(messages[position].blocks)
        if _is_open(block)
    }


def _over_chars(sizes: Mapping[Place, int], newest_chars: int) -> set[Place]:
    """The largest of `sizes`, as many as bring the rest within `newest_chars`."""
    total = sum(sizes.values())
    chosen: set[Place] = set()
    for place, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if total <= newest_chars:
            break
        chosen.add(place)
        total -= size
    return chosen
