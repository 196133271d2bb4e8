"""Which compaction removed which messages from the context."""

from collections.abc import Iterator
from dataclasses import dataclass

from context_compaction import Archive, JsonObject

from mcp_server_compaction.viewer.markup import POINTER

# Layers that replace whole messages; all other layers only shorten messages.
_REMOVING_LAYERS = frozenset({"waits", "snip", "collapse", "summarize"})


@dataclass(frozen=True, slots=True)
class Removal:
    """A range of messages that a compaction removed from the context.

    Attributes:
        first_seq: Number of the first message.
        last_seq: Number of the last message.
        number: Number of the compaction.
        timestamp_seconds: Unix time of the compaction.
    """

    first_seq: int
    last_seq: int
    number: int
    timestamp_seconds: float


def is_compaction(receipt: JsonObject) -> bool:
    """Whether a receipt reports a compaction, not only repairs."""
    return receipt.get("status") == "compacted"


async def read_removals(archive: Archive, session_id: str) -> list[Removal]:
    """Return the messages that the compactions of a session removed, oldest first."""
    return [
        Removal(first, last, number, stored.timestamp_seconds)
        for number, stored in enumerate(await archive.stored_receipts(session_id))
        if is_compaction(stored.receipt)
        for first, last in _removed_ranges(stored.receipt)
    ]


def _removed_ranges(receipt: JsonObject) -> Iterator[tuple[int, int]]:
    pointers = {
        pointer
        for edit in receipt["edits"]
        if edit["layer"] in _REMOVING_LAYERS
        for pointer in edit["pointers"]
    }
    for pointer in pointers:
        match = POINTER.match(pointer)
        if match is not None and match["start"]:
            yield int(match["start"]), int(match["stop"])


def removal_of(seq: int, removals: list[Removal]) -> Removal | None:
    """Return the first removal that covers a message, or None if it was not removed."""
    return next((r for r in removals if r.first_seq <= seq <= r.last_seq), None)
