"""The difference between two message lists, as splices of the first.

A host that holds its list applies the splices instead of receiving all messages again. Unedited
messages are the host's own objects, so they are matched by identity, not by content.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from context_compaction.messages.model import JsonObject


@dataclass(frozen=True, slots=True)
class Splice:
    """One replacement of consecutive messages.

    Attributes:
        start: Index in the original list, from 0; other splices do not shift it.
        delete_count: Number of messages that are removed from `start` on.
        insert: Messages that replace them.
    """

    start: int
    delete_count: int
    insert: tuple[JsonObject, ...]


def make_splices(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> tuple[Splice, ...]:
    """Return the splices that turn `before` into `after`, by rising `start`, without overlaps.

    A message is kept if `after` holds the same object as `before`, in the same order.
    """
    positions: dict[int, deque[int]] = {}
    for position, message in enumerate(before):
        positions.setdefault(id(message), deque()).append(position)
    splices: list[Splice] = []
    insert: list[JsonObject] = []
    next_before = 0
    for message in after:
        candidates = positions.get(id(message), deque())
        while candidates and candidates[0] < next_before:
            candidates.popleft()
        if not candidates:
            insert.append(message)
            continue
        position = candidates.popleft()
        if insert or position > next_before:
            splices.append(Splice(next_before, position - next_before, tuple(insert)))
            insert = []
        next_before = position + 1
    if insert or next_before < len(before):
        splices.append(Splice(next_before, len(before) - next_before, tuple(insert)))
    return tuple(splices)


def apply_splices(messages: Sequence[JsonObject], splices: Sequence[Splice]) -> list[JsonObject]:
    """Return a new list: `messages` with `splices` applied."""
    result: list[JsonObject] = []
    next_index = 0
    for splice in splices:
        result += messages[next_index : splice.start]
        result += splice.insert
        next_index = splice.start + splice.delete_count
    result += messages[next_index:]
    return result
