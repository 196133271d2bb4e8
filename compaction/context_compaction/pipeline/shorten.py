"""Shorten messages after a cut to their bought pieces; the rest is archived.

A tool result shows its bought paragraphs in the marker that names the whole output. Long arguments
of a call are clipped. A request without room shows its bought paragraphs.
"""

from collections.abc import Collection, Sequence

from context_compaction.activity.background import started_line
from context_compaction.activity.calls import is_steering
from context_compaction.context import CompactionContext, EditedMessages
from context_compaction.layers.replace_blocks import (
    Place,
    Replacement,
    clear_result,
    clip_call,
    persist_result,
    protected_names,
    replace_blocks,
    smaller,
)
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, make_blob
from context_compaction.messages.model import (
    Message,
    Text,
    ToolCall,
    ToolResult,
    is_rules,
)
from context_compaction.messages.speakers import author_of
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.messages.tool_results import result_text
from context_compaction.summarizers.extractive.items import GROUP_CHARS, Item, Record
from context_compaction.tokens.counter import MessageCounter

_REQUEST_LAYER = "request"
# Items that repeat or name parts of a message: they do not decide whether the message stays.
DERIVED = ("action", "rule", "preference", "media", "replaced")
# Tool name of an archived text that a host passed in the user's name.
_HOST_TEXT_TOOL = "text in the user's name"
# A shorter note of the host stays in its message without being bought.
SHORT_NOTE_CHARS = 800


def is_of_request(edit: Edit) -> bool:
    """Whether `edit` replaced the newest request by an extract."""
    return edit.layer == _REQUEST_LAYER


def shorten_to_bought(
    context: CompactionContext,
    edited: EditedMessages,
    record: Record,
    retained: Sequence[int],
    request_at: int | None,
) -> EditedMessages:
    """Return `edited` with the messages at `retained` reduced to bought pieces."""
    messages, count = edited.messages, context.count
    calls = index_calls(messages)
    restored = {item.path for item in record.items if item.path and item.bought}
    editable = {at for at in retained if messages[at].index not in context.pins.marked}
    shortened = {
        Place(at, item.block): shorter
        for at in editable
        for item in record.by_position.get(at, ())
        if item.block >= 0
        if (shorter := _shorter(context, messages[at], item, calls, restored))
    }
    step = replace_blocks(messages, shortened, layer="persist")
    edited = edited.then("persist", step, count)
    if request_at is None or messages[request_at].index in context.pins.marked:
        return edited
    request_items = [item for item in record.by_position.get(request_at, ()) if item.block < 0]
    kept_at = sorted({*retained, request_at})
    for layer, is_typed in ((_REQUEST_LAYER, True), ("persist", False)):
        # A first text is shortened as it was bought, further ones only until the list fits.
        while not (
            placeholders.has_long_request(edited.messages[request_at])
            and context.fits(tuple(edited.messages[at] for at in kept_at))
        ):
            request = edited.messages[request_at]
            shortened = _shorter_request(
                request, request_at, request_items, count, is_typed=is_typed
            )
            if not shortened:
                break
            step = replace_blocks(edited.messages, shortened, layer=layer)
            edited = edited.then(layer, step, count)
    return edited


def _shorter(
    context: CompactionContext,
    message: Message,
    item: Item,
    calls: CallIndex,
    restored: Collection[str],
) -> Replacement | None:
    """Return the block of `item` with its bought pieces; None if it stays whole."""
    block, count = message.blocks[item.block], context.count
    if isinstance(block, ToolCall):
        is_unchanged = item.is_complete and item.in_file not in restored
        return (
            None if is_unchanged else clip_call(block, count, context.settings.clip_argument_chars)
        )
    is_short = sum(map(len, item.pieces)) <= GROUP_CHARS
    if item.is_complete or (is_short and item.in_file and item.in_file not in restored):
        return None
    if isinstance(block, ToolResult):
        name = calls.name_of(block)
        is_protected = is_steering(name) or name.lower() in protected_names(context.settings)
        return None if is_protected else _shorter_result(block, item, name, count)
    if isinstance(block, Text):
        return _shorter_text(block, [item], is_typed=False, count=count)
    return None


def _shorter_result(
    result: ToolResult, item: Item, tool_name: str, count: MessageCounter
) -> Replacement | None:
    """Return the marker of a result with its bought pieces; None if it stays whole."""
    if placeholders.is_placeholder(result):
        return None
    if not item.bought:
        return clear_result(result, tool_name, count)
    shown = item.text
    if (line := started_line(result_text(result))) not in shown:
        shown = f"{line}\n{shown}"
    return persist_result(result, tool_name, count, lambda _: shown)


def _shorter_text(
    block: Text, items: Sequence[Item], *, is_typed: bool, count: MessageCounter
) -> Replacement | None:
    """Return the marker of a text with its bought pieces; None if it would not be smaller."""
    tool_name = placeholders.REQUEST_TOOL if is_typed else _HOST_TEXT_TOOL
    blob = make_blob(block.text, tool_name=tool_name)
    shown = "\n".join(item.text for item in items if item.bought)
    text = placeholders.persisted((blob,), shown, tool_name, len(block.text))
    marker = Text(text, author="user" if is_typed else "compaction")
    note = "the newest request" if is_typed else ""
    return smaller(block, marker, (blob,), count, "persisted", note=note)


def _shorter_request(
    request: Message, at: int, items: Sequence[Item], count: MessageCounter, *, is_typed: bool
) -> dict[Place, Replacement]:
    """Return the replacement of a request's longest text that was not bought whole.

    With `is_typed` of its texts with words of the user, else of its other texts. A note of the host
    in a text of its own does not make the user's words shorter.
    """
    texts = [
        (number, block)
        for number, block in enumerate(request.blocks)
        if isinstance(block, Text) and not is_rules(block)
        if not placeholders.is_long_request(block.text)
    ]
    typed = [text for text in texts if author_of(request, text[1]) == "user"]
    notes = [text for text in texts if text not in typed and len(text[1].text) > SHORT_NOTE_CHARS]
    own = [
        item
        for item in items
        if item.kind not in DERIVED
        if (item.kind == "user") is is_typed or not notes
    ]
    candidates = typed if is_typed else notes
    if not candidates or all(item.is_complete for item in own):
        return {}
    number, block = max(candidates, key=lambda text: len(text[1].text))
    if placeholders.has_long_request(request):
        return _at(at, number, _shorter_text(block, (), is_typed=is_typed, count=count))
    flat = " ".join(" ".join(item.text.split()) for item in own)
    own += [
        item
        for item in items
        if is_typed
        and item.kind in ("rule", "preference")
        and item.bought
        and item.text not in flat
    ]
    shorter = _shorter_text(block, own, is_typed=is_typed, count=count)
    return _at(at, number, shorter)


def _at(at: int, number: int, shorter: Replacement | None) -> dict[Place, Replacement]:
    return {Place(at, number): shorter} if shorter else {}
