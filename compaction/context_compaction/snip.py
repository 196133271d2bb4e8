"""Layer: drop the middle of a long list by message count. On where a policy says so."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from context_compaction import markers
from context_compaction.cut_point import kept_part, replaced_part
from context_compaction.edits import Edit, Step
from context_compaction.messages import Message, Messages, make_message
from context_compaction.pairing import safe_cuts
from context_compaction.pins import carried_by
from context_compaction.tokens import MessageCounter
from context_compaction.wire.rules import WireRules


def snip(
    messages: Messages,
    *,
    count: MessageCounter,
    rules: WireRules,
    span: markers.Span,
    max_messages: int = 50,
    head_messages: int = 3,
    pinned: Collection[int] = (),
) -> Step:
    """Keep the first `head_messages` and the newest ones, `max_messages` in all.

    Both cuts move outward, to where no call is parted from its result, so a few more may stay.
    System messages and the provider's own summaries stay too, and what is pinned: the messages that
    hold it, each call with its result.

    Args:
        messages: The list.
        count: The token counter.
        rules: The provider's rules.
        span: The archived originals of the whole list, for the pointer.
        max_messages: Does nothing up to this many messages.
        head_messages: How many stay at the beginning.
        pinned: Indices of messages that hold pinned text.
    """
    if len(messages) <= max_messages:
        return Step(messages)
    safe = safe_cuts(messages, rules)
    max_messages = max(1, max_messages)  # the newest stays, whatever the head would take
    head_messages = min(head_messages, max_messages - 1)
    head = head_messages
    while head < len(messages) and not safe[head]:
        head += 1
    tail = len(messages) - (max_messages - head_messages)
    while tail > head and not safe[tail]:
        tail -= 1
    stays = _pinned_places(messages, head, tail, safe, pinned)
    dropped: list[Message] = []
    kept: list[Message] = []
    for at, message in enumerate(messages[head:tail], head):
        if at in stays:
            kept.append(message)
            continue
        dropped += filter(None, [replaced_part(message)])
        kept += filter(None, [kept_part(message)])
    if not dropped or all(markers.is_made(message) for message in dropped):
        return Step(messages)
    note = make_message("user", markers.snipped(len(dropped), span.pointer))
    # An edit for each, so that a receipt names every message that left.
    edits = [
        Edit("snip", "dropped", message.index, count.message(message), 0, (span.pointer,))
        for message in dropped
    ]
    edits[0] = replace(edits[0], tokens_after=count.message(note))
    return Step((*messages[:head], note, *kept, *messages[tail:]), tuple(edits))


def _pinned_places(
    messages: Messages, head: int, tail: int, safe: list[bool], pinned: Collection[int]
) -> frozenset[int]:
    """Places between `head` and `tail` that stay: what is pinned, with the rest of its run."""

    def places() -> Iterator[int]:
        for at in range(head, tail):
            if messages[at].index in pinned or _carries_pins(messages[at]):
                start = next(cut for cut in range(at, -1, -1) if safe[cut])
                stop = next(cut for cut in range(at + 1, len(safe)) if safe[cut])
                yield from range(start, stop)

    return frozenset(places())


def _carries_pins(message: Message) -> bool:
    carried = carried_by(message)
    return carried is not None and bool(carried.pins)
