"""Messages that stay after a cut, with what was not bought of them in the archive. Pure.

A result shows what was bought of it, in the marker that names the whole; long arguments of a call
are clipped; a request that has no room shows its bought paragraphs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from context_compaction.activity.calls import is_steering
from context_compaction.context import CompactionContext, EditedMessages
from context_compaction.layers.replace_blocks import (
    Place,
    Replacement,
    clear_result,
    clip_call,
    protected_names,
    replace_blocks,
)
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, make_blob
from context_compaction.messages.model import (
    Message,
    Text,
    ToolCall,
    ToolResult,
    edit_result,
    is_rules,
)
from context_compaction.messages.speakers import author_of
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.messages.tool_results import result_blobs
from context_compaction.summarizers.extractive.collect import Item, Record
from context_compaction.summarizers.extractive.paragraphs import GROUP_CHARS
from context_compaction.tokens.counter import MessageCounter

REQUEST_LAYER = "request"
# Items that repeat or name what a message has: they do not keep it from staying.
DERIVED = ("deed", "rule", "wish", "media", "replaced")
# For a text that its host hands over in the user's name.
_POSED_TOOL = "text in the user's name"


def is_of_request(edit: Edit) -> bool:
    """Whether `edit` replaced the newest request by an extract."""
    return edit.layer == REQUEST_LAYER


def with_bought(
    context: CompactionContext,
    edited: EditedMessages,
    record: Record,
    kept: Iterable[int],
    request_at: int | None,
) -> EditedMessages:
    """`edited` with the messages at `kept` showing what was bought of them."""
    messages, count = edited.messages, context.count
    names = index_calls(messages)
    said: dict[int, list[Item]] = {}
    chosen: dict[Place, Replacement] = {}
    restored = {item.path for item in record.items if item.path and item.bought}
    open_places = {at for at in kept if messages[at].index not in context.pins.marked}
    for item in record.items:
        at = record.position_of(item)
        if at < 0 or item.path:
            continue
        if item.block < 0:
            said.setdefault(at, []).append(item)
        elif at in open_places and (done := _shorter(context, messages[at], item, names, restored)):
            chosen[Place(at, item.block)] = done
    step = replace_blocks(messages, chosen, count, layer="persist")
    edited = edited.then("persist", step, count)
    if request_at is None or messages[request_at].index in context.pins.marked:
        return edited
    chosen = _shorter_request(edited.messages[request_at], request_at, said, count)
    step = replace_blocks(edited.messages, chosen, count, layer=REQUEST_LAYER)
    return edited.then(REQUEST_LAYER, step, count)


def _shorter(
    context: CompactionContext,
    message: Message,
    item: Item,
    names: CallIndex,
    restored: Collection[str],
) -> Replacement | None:
    """The block of `item` with what was bought of it; None where it stays as it is."""
    block, count = message.blocks[item.block], context.count
    if isinstance(block, ToolCall):
        stays = item.is_whole and item.in_file not in restored
        return None if stays else clip_call(block, count, context.settings.clip_argument_chars)
    is_short = sum(map(len, item.pieces)) <= GROUP_CHARS
    if item.is_whole or (is_short and item.in_file and item.in_file not in restored):
        return None
    if isinstance(block, ToolResult):
        name = names.name_of(block)
        is_protected = is_steering(name) or name.lower() in protected_names(context.settings)
        return None if is_protected else _result(block, item, name, count)
    return _text(block, [item], is_typed=False, count=count) if isinstance(block, Text) else None


def _result(
    result: ToolResult, item: Item, tool_name: str, count: MessageCounter
) -> Replacement | None:
    """The marker for a result with what was bought of it; None where it stays as it is."""
    if placeholders.is_placeholder(result):
        return None
    if not item.bought:
        return clear_result(result, tool_name, count)
    texts = tuple(part for part in result.content if isinstance(part, Text))
    others = tuple(part for part in result.content if not isinstance(part, Text))
    blobs = result_blobs(result, tool_name, texts)
    if not blobs:
        return None
    size_chars = sum(len(part.text) for part in texts)
    text = placeholders.persisted(blobs, item.text, tool_name, size_chars)
    marked = edit_result(result, (Text(text, author="compaction"), *others))
    saved_tokens = count.block(result) - count.block(marked)
    if saved_tokens <= 0:
        return None
    return Replacement(marked, blobs, saved_tokens, "persisted", tool_name)


def _text(
    block: Text, items: Sequence[Item], *, is_typed: bool, count: MessageCounter
) -> Replacement | None:
    """The marker for a text with what was bought of it; None where it would not be smaller."""
    tool_name = placeholders.REQUEST_TOOL if is_typed else _POSED_TOOL
    blob = make_blob(block.text, tool_name=tool_name)
    shown = "\n".join(item.text for item in items if item.bought)
    text = placeholders.persisted((blob,), shown, tool_name, len(block.text))
    marker = Text(text, author="user" if is_typed else "compaction")
    saved_tokens = count.block(block) - count.block(marker)
    if saved_tokens <= 0:
        return None
    return Replacement(marker, (blob,), saved_tokens, "persisted", note="the newest request")


def _shorter_request(
    request: Message, at: int, said: Mapping[int, Sequence[Item]], count: MessageCounter
) -> dict[Place, Replacement]:
    """The longest text of a request that was not bought whole, with what was."""
    items = [one for one in said.get(at, ()) if one.kind not in DERIVED]
    texts = [
        (n, block)
        for n, block in enumerate(request.blocks)
        if isinstance(block, Text) and not is_rules(block)
    ]
    if not texts or all(item.is_whole for item in items):
        return {}
    number, block = max(texts, key=lambda text: len(text[1].text))
    flat = " ".join(" ".join(item.text.split()) for item in items)
    items += [
        one
        for one in said.get(at, ())
        if one.kind in ("rule", "wish") and one.bought and one.text not in flat
    ]
    if placeholders.is_long_request(block.text):
        return {}
    is_typed = author_of(request, block) == "user"
    done = _text(block, items, is_typed=is_typed, count=count)
    return {Place(at, number): done} if done else {}
