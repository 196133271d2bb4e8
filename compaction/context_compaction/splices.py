"""The difference between two message lists, as splices against the first.

A host that holds the list itself need not receive it again: it applies the splices. Messages that
no layer touched are the host's own objects, so they are found by identity, never by comparing
their content.
"""

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
    splices: list[Splice] = []
    next_before = 0
    insert: list[JsonObject] = []
    for position, message in _kept_positions(before, after):
        if position is None:
            insert.append(message)
            continue
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


def _kept_positions(
    before: Sequence[JsonObject], after: Sequence[JsonObject]
) -> list[tuple[int | None, JsonObject]]:
    """Each message of `after` with its position in `before`, None where it is not kept."""
    positions: dict[int, list[int]] = {}
    for position in range(len(before) - 1, -1, -1):
        positions.setdefault(id(before[position]), []).append(position)
    placed: list[tuple[int | None, JsonObject]] = []
    cursor = 0
    for message in after:
        candidates = positions.get(id(message), [])  # falling order: the earliest stands last
        while candidates and candidates[-1] < cursor:
            candidates.pop()
        if candidates:
            position = candidates.pop()
            placed.append((position, message))
            cursor = position + 1
        else:
            placed.append((None, message))
    return placed
