"""Shorten messages that stay at a cut; the rest of them is archived.

A tool result shows its bought paragraphs in the marker that names the whole output. Long arguments
of a call are clipped. A request without room shows its bought paragraphs. Project rules, which a
host passes as a message, survive every cut unchanged if they fit into their share of the limit.
Otherwise they are archived like a large output, and an extract replaces them. It starts with the
binding sentences of each section.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from context_compaction.activity.background import started_line
from context_compaction.context import CompactionContext, EditedMessages
from context_compaction.layers.base import (
    Place,
    Replacement,
    clear_result,
    clip_call,
    is_protected,
    persist_result,
    replace_blocks,
    smaller,
)
from context_compaction.layers.cut_point import is_preserved, preserved_part
from context_compaction.layers.preview import extract
from context_compaction.messages import model, placeholders
from context_compaction.messages.speakers import author_of, rules_kind_of, with_author
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.summarizers.extractive.items import GROUP_CHARS, Item, Record
from context_compaction.summarizers.instructions.find import has_rule_sign, instructions_in
from context_compaction.tokens.counter import MessageCounter

_REQUEST_LAYER = "request"
# Items that repeat or name parts of a message: they do not decide whether the message stays.
DERIVED = ("action", "rule", "preference", "media", "replaced")
# Tool name of an archived text that a host passed in the user's name.
_HOST_TEXT_TOOL = "text in the user's name"
# A shorter note of the host stays in its message without being bought.
SHORT_NOTE_CHARS = 800


def is_of_request(edit: model.Edit) -> bool:
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
    message: model.Message,
    item: Item,
    calls: CallIndex,
    restored: Collection[str],
) -> Replacement | None:
    """Return the block of `item` with its bought pieces; None if it stays whole."""
    block, count = message.blocks[item.block], context.count
    if isinstance(block, model.ToolCall):
        is_unchanged = item.is_complete and item.in_file not in restored
        return (
            None if is_unchanged else clip_call(block, count, context.settings.clip_argument_chars)
        )
    is_short = sum(map(len, item.pieces)) <= GROUP_CHARS
    if item.is_complete or (is_short and item.in_file and item.in_file not in restored):
        return None
    if isinstance(block, model.ToolResult):
        name = calls.name_of(block)
        if is_protected(name, context.settings):
            return None
        return _shorter_result(block, item, name, count)
    if isinstance(block, model.Text):
        return _shorter_text(block, [item], is_typed=False, count=count)
    return None


def _shorter_result(
    result: model.ToolResult, item: Item, tool_name: str, count: MessageCounter
) -> Replacement | None:
    """Return the marker of a result with its bought pieces; None if it stays whole."""
    if placeholders.is_placeholder(result):
        return None
    if not item.bought:
        return clear_result(result, tool_name, count)
    shown = item.text
    if (line := started_line(model.result_text(result))) not in shown:
        shown = f"{line}\n{shown}"
    return persist_result(result, tool_name, count, lambda _: shown)


def _shorter_text(
    block: model.Text, items: Sequence[Item], *, is_typed: bool, count: MessageCounter
) -> Replacement | None:
    """Return the marker of a text with its bought pieces; None if it would not be smaller."""
    tool_name = placeholders.REQUEST_TOOL if is_typed else _HOST_TEXT_TOOL
    blob = model.make_blob(block.text, tool_name=tool_name)
    shown = "\n".join(item.text for item in items if item.bought)
    text = placeholders.persisted((blob,), shown, tool_name, len(block.text))
    marker = model.Text(text, author="user" if is_typed else "compaction")
    note = "the newest request" if is_typed else ""
    return smaller(block, marker, (blob,), count, "persisted", note=note)


def _shorter_request(
    request: model.Message, at: int, items: Sequence[Item], count: MessageCounter, *, is_typed: bool
) -> dict[Place, Replacement]:
    """Return the replacement of a request's longest text that was not bought whole.

    With `is_typed` of its texts with words of the user, else of its other texts. A note of the host
    in a text of its own does not make the user's words shorter. Only the user's words replace a
    text of the user, because all of its replacement counts as the user's.
    """
    texts = [
        (number, block)
        for number, block in enumerate(request.blocks)
        if isinstance(block, model.Text) and not model.is_rules(block)
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
    if is_typed:
        own = [item for item in own if item.kind == "user"]
        flat = " ".join(" ".join(item.text.split()) for item in own)
        rules = (item for item in items if item.kind in ("rule", "preference") and item.bought)
        own += [item for item in rules if item.text not in flat]
    shorter = _shorter_text(block, own, is_typed=is_typed, count=count)
    return _at(at, number, shorter)


def _at(at: int, number: int, shorter: Replacement | None) -> dict[Place, Replacement]:
    return {Place(at, number): shorter} if shorter else {}


_RULES_LAYER = "project_rules"
_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
# Share of the limit for project rules, after other preserved messages are subtracted.
_SHARE = 0.2
# With less room no extract is written, because its frame would take most of the tokens.
_MIN_EXTRACT_TOKENS = 120


def preserved_tokens(messages: model.Messages, limit_tokens: int, count: MessageCounter) -> int:
    """Return an upper limit for the tokens of the messages that survive every cut."""
    fixed_tokens = rules_tokens = 0
    for message in filter(is_preserved, messages):
        tokens = count.message(preserved_part(message) or message)
        if any(map(model.is_rules, message.blocks)):
            rules_tokens += tokens
        else:
            fixed_tokens += tokens
    return fixed_tokens + min(rules_tokens, _share_of(limit_tokens - fixed_tokens))


def fit_project_rules(
    context: CompactionContext, edited: EditedMessages, *, removes_all: bool
) -> EditedMessages:
    """Return `edited` with the project rules within their share of the limit.

    Rules that do not fit even as an extract become ordinary host text, which a summary replaces.
    With `removes_all`, all rules do. Rules in messages that are pinned as a whole stay complete.
    """
    messages, count = edited.messages, context.count
    places = [
        (Place(index, number), block)
        for index, message in enumerate(messages)
        for number, block in enumerate(message.blocks)
        if model.is_rules(block) and message.index not in context.pins.marked
    ]
    if not places:
        return edited
    other_messages = (
        m for m in messages if is_preserved(m) and not any(map(model.is_rules, m.blocks))
    )
    remaining_tokens = _share_of(
        context.budget.message_tokens - sum(map(count.message, other_messages))
    )
    shortened: dict[Place, Replacement] = {}
    removed: list[Place] = []
    for place, block in places:
        tokens = count.block(block)
        if tokens > remaining_tokens or removes_all:
            extract_of_rules = None if removes_all else _shortened(block, remaining_tokens, count)
            if extract_of_rules is None:
                removed.append(place)
                continue
            shortened[place] = extract_of_rules
            tokens -= extract_of_rules.saved_tokens
        remaining_tokens -= tokens
    step = replace_blocks(messages, shortened, layer=_RULES_LAYER)
    if removed:
        out = list(step.messages)
        for index, number in removed:
            out[index] = with_author("host", out[index], {number})
        step = replace(step, messages=tuple(out))
    return edited.then(_RULES_LAYER, step, count)


def _share_of(remaining_tokens: int) -> int:
    return int(max(0, remaining_tokens) * _SHARE)


def _shortened(block: model.Text, max_tokens: int, count: MessageCounter) -> Replacement | None:
    """Return an extract of `block`; None if it has no room or would not be smaller."""
    kind = rules_kind_of(block)
    if kind is None or max_tokens < _MIN_EXTRACT_TOKENS:
        return None
    blobs: tuple[model.Blob, ...] = ()
    archived_ids = placeholders.ids_in_placeholder(block.text)
    if archived_ids:
        text, marker = placeholders.preview_in(block.text), block.text
    else:
        tool_name = placeholders.RULES_TOOL + kind
        text, blobs = block.text, (model.make_blob(block.text, tool_name=tool_name),)
        marker = placeholders.persisted(blobs, " ", tool_name, len(text))
    frame = placeholders.with_preview(marker, "")
    shown = extract(
        "\n".join(line for line in text.split("\n") if line.strip()),
        max_tokens - count.text(frame),
        measure=count.text,
        first=(text.partition("\n")[0], *_binding_in(text)),
    )
    shorter = model.Text(placeholders.with_preview(marker, shown), author="project")
    return smaller(block, shorter, blobs, count, "persisted", note=kind, archived_ids=archived_ids)


def _binding_in(text: str) -> Iterator[str]:
    """Yield the binding sentences of rules, then other sentences that a person typed.

    Sections alternate, because one long section would leave no room for the next sections.
    """
    sections: list[tuple[str, list[str], list[str]]] = []
    for part in _SECTION.split(text):
        head, _, body = part.partition("\n")
        heading, body = (head, body) if _SECTION.match(head) else ("", part)
        items = sorted(instructions_in(body), key=lambda item: -item.rank)
        binding = [item.text for item in items if has_rule_sign(item)]
        typed = [item.text for item in items if not item.is_pasted]
        sections.append((heading, binding, typed))
    for number in (1, 2):
        rows = ([section[0], *section[number]] for section in sections if section[number])
        for row in zip_longest(*rows):
            yield from filter(None, row)
