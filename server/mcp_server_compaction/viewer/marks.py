"""What became of each message and output: in the context now, or removed by which compaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from context_compaction import Archive, JsonObject, StoredReceipt

from mcp_server_compaction.viewer.markup import POINTER

# Layers that replace whole messages; all other layers only shorten messages.
_REMOVING_LAYERS = frozenset({"snip", "collapse", "summarize"})


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction of the session, as its marks name it.

    Attributes:
        number: Number of its receipt.
        timestamp_seconds: Unix time.
        receipt: The receipt.
        is_undone: Whether it was undone later.
        removed: First and last number of each range of messages that it removed.
        shortened: Numbers of the messages that it shortened.
        outputs: IDs of the outputs that it moved to the archive.
        restored: Numbers of messages, and IDs of outputs, that were put back later.
    """

    number: int
    timestamp_seconds: float
    receipt: JsonObject
    is_undone: bool
    removed: tuple[tuple[int, int], ...]
    shortened: frozenset[int]
    outputs: frozenset[str]
    restored: frozenset[int | str]

    @property
    def stop_seq(self) -> int:
        """The number of the newest message at that time; -1 if unknown."""
        state: JsonObject = self.receipt.get("state") or {}
        return int(state.get("stop_seq", -1))


@dataclass(frozen=True, slots=True)
class Mark:
    """What became of a message or an output.

    Attributes:
        state: "removed", "shortened", or "in context".
        compaction: The compaction that removed or shortened it; None if it is in the context.
    """

    state: str
    compaction: Compaction | None = None


def is_compaction(receipt: JsonObject) -> bool:
    """Whether a receipt reports a compaction, not only repairs."""
    return receipt.get("status") == "compacted"


async def newest_receipt(archive: Archive, session_id: str, status: str) -> JsonObject:
    """Return the newest receipt with a status; empty if there is none. Reads the newest first."""
    count = 1
    while True:
        receipts = await archive.receipts(session_id, after=-count)
        found = next((r for r in reversed(receipts) if r.get("status") == status), None)
        if found is not None or len(receipts) < count:
            return found or {}
        count *= 8


def undone_times(stored: Sequence[StoredReceipt]) -> dict[int, float]:
    """Return the numbers of undone receipts, each with the Unix time of the undo.

    An undo also concerns the later compactions of its list.
    """
    return {
        number: entry.timestamp_seconds
        for n, entry in enumerate(stored)
        if "undone" in entry.receipt
        for number in range(entry.receipt["undone"], n)
    }


async def read_compactions(archive: Archive, session_id: str) -> list[Compaction]:
    """Return the compactions of a session, oldest first."""
    stored = await archive.stored_receipts(session_id)
    shortened = await archive.shortened_messages(session_id)
    undone = undone_times(stored)
    return [
        Compaction(
            number,
            entry.timestamp_seconds,
            receipt,
            number in undone,
            tuple(_removed_ranges(receipt)),
            shortened.get(number, frozenset()),
            frozenset(p for edit in receipt["edits"] for p in edit["pointers"]),
            frozenset(
                name
                for later in stored[number + 1 :]
                if "restore" in later.receipt
                for name in (later.receipt["restore"], *later.receipt["restored_messages"])
            ),
        )
        for number, entry in enumerate(stored)
        for receipt in [entry.receipt]
        if is_compaction(receipt)
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


def mark_of(seq: int, compactions: Sequence[Compaction]) -> Mark:
    """Return what became of a message: the first compaction that removed it, else shortened it."""
    active = [c for c in compactions if not c.is_undone and seq not in c.restored]
    for compaction in active:
        if any(first <= seq <= last for first, last in compaction.removed):
            return Mark("removed", compaction)
    for compaction in active:
        if seq in compaction.shortened:
            return Mark("shortened", compaction)
    return Mark("in context")


def output_mark(output_id: str, compactions: Sequence[Compaction]) -> Mark | None:
    """Return the first compaction that moved an output to the archive, or None."""
    active = (c for c in compactions if not c.is_undone and output_id not in c.restored)
    found = next((c for c in active if output_id in c.outputs), None)
    return None if found is None else Mark("removed", found)
