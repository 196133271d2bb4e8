"""Drop whole messages: the one way in which layers replace a part of the list by a line."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from context_compaction.layers.base import LayerContext
from context_compaction.layers.cut_point import is_preserved
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Message, Messages, make_message
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_pairs import safe_cuts

# Makes the line that replaces the dropped messages; their originals are at the span.
Line: TypeAlias = Callable[[Messages, Span], str]


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
