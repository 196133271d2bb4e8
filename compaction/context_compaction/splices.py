"""The difference between two message lists, as splices against the first.

A host that holds the list itself need not receive it again: it applies the splices. Messages that
no layer touched are the host's own objects, so they are found by identity, never by comparing
their content.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from context_compaction.messages.model import JsonObject


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace `delete_count` messages from `start` on by `insert`.

    Attributes:
        start: Position in the list that came in, from 0, whatever other splices do.
        delete_count: How many messages of that list are removed.
        insert: The messages that replace them.
    """

    start: int
    delete_count: int
    insert: tuple[JsonObject, ...]


def make_splices(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> tuple[Splice, ...]:
    """The splices that turn `before` into `after`, in rising order of `start`, none overlapping.

    A message counts as kept where `after` holds the very object of `before`, in the same order.
    """
    positions: dict[int, deque[int]] = {}
    for position, message in enumerate(before):
        positions.setdefault(id(message), deque()).append(position)
    splices: list[Splice] = []
    insert: list[JsonObject] = []
    next_before = 0
    for message in after:
        left = positions.get(id(message), deque())
        while left and left[0] < next_before:
            left.popleft()
        if not left:
            insert.append(message)
            continue
        position = left.popleft()
        if insert or position > next_before:
            splices.append(Splice(next_before, position - next_before, tuple(insert)))
            insert = []
        next_before = position + 1
    if insert or next_before < len(before):
        splices.append(Splice(next_before, len(before) - next_before, tuple(insert)))
    return tuple(splices)


def apply_splices(messages: Sequence[JsonObject], splices: Sequence[Splice]) -> list[JsonObject]:
    """The list that `splices` make of `messages`, which stay as they are."""
    result: list[JsonObject] = []
    next_index = 0
    for splice in splices:
        result += messages[next_index : splice.start]
        result += splice.insert
        next_index = splice.start + splice.delete_count
    result += messages[next_index:]
    return result
