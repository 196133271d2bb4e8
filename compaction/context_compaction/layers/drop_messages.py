"""Layers that drop whole messages, and leave a line with a pointer in their place.

`drop_messages` is the one way to do that. `snip` drops the middle of a long list by message count,
and the messages that the caller names (Claude Code's SnipTool). `drop_waits` drops calls that were
made again and again with the same short answer: an agent that waits for a long command asks for its
state a hundred times, and the last answer says it all.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from context_compaction.layers.base import LayerContext
from context_compaction.layers.cut_point import is_preserved
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    make_message,
    text_of,
    tool_calls,
    tool_results,
)
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_pairs import safe_cuts
from context_compaction.messages.tool_results import result_text

# Makes the line that replaces the dropped messages; their originals are at the span.
Line: TypeAlias = Callable[[Messages, Span], str]

_NUMBER = re.compile(r"(?<![0-9a-f])(?=[a-f]*[0-9])[0-9a-f]+")
_KINDS = (ToolCall, ToolResult, Text, Thinking)


def drop_messages(
    messages: Messages,
    context: LayerContext,
    parts: Iterable[tuple[Collection[int], Line]],
    *,
    layer: str,
    action: str = "dropped",
) -> Step:
    """Replace the messages of each part by a line with a pointer.

    A part is a set of positions, and the function that writes its line. A call and its result go
    only together, so a run of messages between two safe cuts goes only if all of it is in the part
    and none of it must stay. What must stay inside a part splits it: each piece gets a line. A
    piece stays if its line is not smaller, or if a compaction wrote all of it.
    """
    units = units_of(messages, context)
    dropped: dict[int, tuple[range, Message, Span]] = {}
    for positions, line in parts:
        for piece in _pieces(messages, units, positions, context.pins.pinned_indices):
            part = messages[piece.start : piece.stop]
            span = context.span_of(part)
            note = make_message("user", line(part, span))
            is_smaller = context.count.message(note) < context.count.total(part)
            if is_smaller and not all(map(placeholders.is_synthetic, part)):
                dropped[piece.start] = piece, note, span
    if not dropped:
        return Step(messages)
    out: list[Message] = []
    edits: list[Edit] = []
    end = 0
    for start, (piece, note, span) in sorted(dropped.items()):
        out += [*messages[end:start], note]
        end = piece.stop
        gone = [
            Edit(layer, action, message.index, context.count.message(message), 0, (span.pointer,))
            for message in messages[start:end]
        ]
        edits += [replace(gone[0], tokens_after=context.count.message(note)), *gone[1:]]
    return Step((*out, *messages[end:]), tuple(edits))


def units_of(messages: Messages, context: LayerContext) -> list[range]:
    """The smallest runs of messages that split no call from its result, in order.

    Messages behind the last safe cut, such as a call without its result yet, are in none.
    """
    safe = [at for at, is_safe in enumerate(safe_cuts(messages, context.rules)) if is_safe]
    return [range(start, stop) for start, stop in pairwise(safe)]


def _pieces(
    messages: Messages,
    units: Sequence[range],
    positions: Collection[int],
    pinned: Collection[int],
) -> Iterator[range]:
    """The longest runs of adjacent units that may be dropped."""
    start: int | None = None
    stop = 0
    for unit in units:
        goes = all(at in positions and not _stays(messages[at], pinned) for at in unit)
        if start is not None and not (goes and unit.start == stop):
            yield range(start, stop)
            start = None
        if goes:
            start = unit.start if start is None else start
            stop = unit.stop
    if start is not None:
        yield range(start, stop)


def _stays(message: Message, pinned: Collection[int]) -> bool:
    """Whether a message may never be dropped: it is pinned, carries pins, or binds the model."""
    if message.index in pinned or is_preserved(message):
        return True
    carried = carried_by(message)
    return carried is not None and bool(carried.pins)


def snip(messages: Messages, context: LayerContext) -> Step:
    """Keep the first three messages and the newest ones, `snip_max_messages` in all.

    Both cuts move outward, to where no call is split from its result, so a few more may stay.
    """
    max_messages = max(1, context.settings.snip_max_messages)
    if len(messages) <= max_messages:
        return Step(messages)
    safe = safe_cuts(messages, context.rules)
    head_messages = min(3, max_messages - 1)  # as in paper S3
    head = head_messages
    while head < len(messages) and not safe[head]:
        head += 1
    tail = len(messages) - (max_messages - head_messages)
    while tail > head and not safe[tail]:
        tail -= 1
    return drop_messages(messages, context, [(range(head, tail), _line)], layer="snip")


def snip_chosen(messages: Messages, context: LayerContext, chosen: Collection[int]) -> Step:
    """Drop the messages with the indices `chosen`, each call with its result, and the reverse.

    The newest request, the newest message, and every message with a pin or a rule always stay.
    """
    bound = {pin.index for pin in context.pins.candidates}
    request = max((at for at, m in enumerate(messages) if placeholders.is_request(m)), default=-1)
    positions = {
        at
        for unit in units_of(messages, context)
        if any(messages[at].index in chosen for at in unit)
        if not any(messages[at].index in bound for at in unit)
        if request not in unit and unit.stop < len(messages)
        for at in unit
    }
    return drop_messages(messages, context, [(positions, _line)], layer="snip")


def drop_waits(messages: Messages, context: LayerContext) -> Step:
    """Drop the waits before the last one of each series, and what the agent said to them."""
    series = [(positions, _line) for positions in _series(messages, units_of(messages, context))]
    return drop_messages(messages, context, series, layer="waits")


def _series(messages: Messages, units: list[range]) -> Iterator[range]:
    """For each series of waits, the positions before its last wait."""
    waits: list[range] = []
    asked_before: object = None
    for unit in units:
        part = messages[unit.start : unit.stop]
        asked = _asked(part)
        if asked is None and all(map(_is_short_remark, part)):
            continue
        if asked is None or asked != asked_before:
            yield from _before_last(waits)
            waits, asked_before = [], asked
        waits.append(unit)
    yield from _before_last(waits)


def _before_last(waits: list[range]) -> Iterator[range]:
    # Fewer equal calls in a row may be a test.
    if len(waits) >= 3:
        yield range(waits[0].start, waits[-1].start)


def _asked(part: Messages) -> object:
    """What the calls in `part` ask and are answered, but for numbers; None if it is no wait."""
    if not all(map(_is_brief, part)):
        return None
    calls = [(call.name, call.arguments) for message in part for call in tool_calls(message)]
    results = [result for message in part for result in tool_results(message)]
    texts = [result_text(result) for result in results]
    if not calls or any(len(text) > 400 for text in texts):
        return None
    return calls, [result.is_error for result in results], [_NUMBER.sub("#", t) for t in texts]


def _is_short_remark(message: Message) -> bool:
    return message.role == "assistant" and _is_brief(message) and not tool_calls(message)


def _is_brief(message: Message) -> bool:
    """Whether `message` has only calls, results, and at most a short text of the agent."""
    text = text_of(message.blocks)
    if message.role != "assistant" and (message.role == "system" or text):
        return False
    return len(text) <= 200 and all(isinstance(b, _KINDS) for b in message.blocks)


def _line(dropped: Messages, span: Span) -> str:
    return placeholders.snipped(len(dropped), span.pointer)
