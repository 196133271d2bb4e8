"""The names that a compaction removed, read from what the archive holds of it.

To compare both lists is a third of what a compaction costs, and few callers read the report: it is
made when somebody asks for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive import CompactedLists, ContextEntry, Store
from context_compaction.messages.model import JsonObject, Message, compact_json
from context_compaction.pipeline.dropped_names import DroppedNames, dropped_names
from context_compaction.result import CompactResult


async def with_losses(result: CompactResult, archive: Store) -> CompactResult:
    """`result`, with the names that left the context in its receipt if it is a compaction's."""
    if "head" not in result.receipt or "losses" in result.receipt:
        return result
    losses = await read_losses(archive, result.session_id)
    return replace(result, receipt=result.receipt | {"losses": losses})


async def read_losses(archive: Store, session_id: str, number: int = -1) -> JsonObject | None:
    """The names that a compaction removed from the context, as its receipt reports them.

    Args:
        archive: The archive that holds the session.
        session_id: The session.
        number: Of the receipt, from 0, the oldest, or from -1, the newest.

    Returns:
        `total`, and by kind its `total` and the names `shown`; None where the list did not change.

    Raises:
        NotFoundError: There is no such session or receipt.
        ArchiveError: The lists cannot be read.
    """
    lists = await archive.compacted_lists(session_id, number)
    [receipt] = await archive.receipts(session_id, after=number, limit=1)
    if lists.after is None or "losses" in receipt:
        return receipt.get("losses")
    seqs = {entry.seq for entry in (*lists.before, *lists.after) if not entry.raw}
    raws = await _read(archive, session_id, sorted(seqs))
    found = await to_thread.run_sync(_between, lists, raws, receipt["format"])
    return found.as_json()


async def _read(archive: Store, session_id: str, seqs: Sequence[int]) -> dict[int, JsonObject]:
    """Messages by number, neighbours in one read."""
    found: dict[int, JsonObject] = {}
    start = 0
    for at in range(1, len(seqs) + 1):
        if at == len(seqs) or seqs[at] != seqs[at - 1] + 1:
            run = await archive.read_messages(session_id, seqs[start], seqs[at - 1])
            found |= {message.seq: message.raw for message in run}
            start = at
    return found


def _between(lists: CompactedLists, raws: Mapping[int, JsonObject], format: str) -> DroppedNames:
    def messages_of(entries: Iterable[ContextEntry]) -> dict[int | str, Message]:
        held = [entry for entry in entries if entry.raw or entry.seq in raws]
        parsed = formats.parse([entry.raw or raws[entry.seq] for entry in held], format=format)
        return dict(zip(map(_key, held), parsed, strict=True))

    before, after = messages_of(lists.before), messages_of(lists.after or ())
    kept = tuple(before.get(key, message) for key, message in after.items())
    return dropped_names(tuple(before.values()), kept)


def _key(entry: ContextEntry) -> int | str:
    """What the entries of one message have in common: its number, or the text of ours."""
    return compact_json(entry.raw) if entry.raw else entry.seq
