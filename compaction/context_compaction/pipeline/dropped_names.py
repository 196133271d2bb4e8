"""Names that a compaction removed from the context, and that the model may need again.

A name is a URL, a path, an identifier or a number. Search finds each of them, because the archive
has everything. The report costs a third of a compaction and few callers read it, so it is made on
request, from the lists in the archive.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import CompactedLists, ContextEntry
from context_compaction.messages import model
from context_compaction.messages.names import NameKind, kind_of, may_hold_name, names_in
from context_compaction.result import CompactResult

# Names shown of each kind, because people and models read receipts.
_SHOWN: Mapping[NameKind, int] = {"url": 6, "path": 12, "identifier": 12, "number": 6}


def dropped_names(before: model.Messages, after: model.Messages) -> model.JsonObject:
    """Return the names in `before` that `after` does not contain, for a receipt.

    `total` counts all of them, and `kinds` has for each kind its `total` and the most frequent
    names that are `shown`. Parts of longer names that stay are counted as well.
    """
    present_texts = list(_texts(after))
    present_words = {word for text in present_texts for word in text.split()}
    # Comparing words is fast, and only missing words are examined for names.
    counts = Counter(word for text in _texts(before) for word in set(text.split()))
    missing = sorted(filter(may_hold_name, counts.keys() - present_words))
    missing.sort(key=counts.__getitem__, reverse=True)
    present_names = set(_names(filter(may_hold_name, present_words)))
    by_kind: dict[NameKind, list[str]] = {kind: [] for kind in _SHOWN}
    for name in dict.fromkeys(_names(missing)):
        kind = None if name in present_names else kind_of(name)
        if kind is not None:
            by_kind[kind].append(name)
    present_text = "\n".join(present_texts)
    kinds = {
        kind: {
            "total": len(names),
            "shown": [*islice((name for name in names if name not in present_text), _SHOWN[kind])],
        }
        for kind, names in by_kind.items()
        if names
    }
    total = sum(map(len, by_kind.values()))
    return {"total": total, "kinds": kinds, "find_with": "search_transcript"}


def _names(words: Iterable[str]) -> Iterator[str]:
    return names_in("\n".join(word[: model.SEARCHED_CHARS] for word in words))


def _texts(messages: model.Messages) -> Iterator[str]:
    for block in (block for message in messages for block in message.blocks):
        match block:
            case model.Text():
                yield block.text
            case model.ToolCall():
                yield from model.strings_in(block.arguments)
            case model.ToolResult():
                yield model.result_text(block)
            case _:
                continue


async def with_dropped_names(result: CompactResult, archive: Archive) -> CompactResult:
    """Return `result` with the dropped names in its receipt, if a compaction is archived."""
    if "head" not in result.receipt or "losses" in result.receipt:
        return result
    names = await read_dropped_names(archive, result.session_id)
    return replace(result, receipt=result.receipt | {"losses": names})


async def read_dropped_names(
    archive: Archive, session_id: str, number: int = -1
) -> model.JsonObject | None:
    """Return the names that a compaction removed from the context, as its receipt reports them.

    Args:
        archive: The archive that holds the session.
        session_id: The session.
        number: Number of the receipt: from 0, the oldest, or from -1, the newest.

    Returns:
        `total`, and for each kind its `total` and the names `shown`; None if the list did not
        change.

    Raises:
        NotFoundError: There is no such session or receipt.
        ArchiveError: The lists cannot be read.
    """
    receipts = await archive.receipts(session_id, after=number, limit=1)
    receipt = receipts[0] if receipts else model.JsonObject()
    losses: model.JsonObject | None = receipt.get("losses")
    if losses is not None:
        return losses
    lists = await archive.compacted_lists(session_id, number)
    if lists.after is None:
        return None
    seqs = {entry.seq for entry in (*lists.before, *lists.after) if not entry.raw}
    raws = await _read(archive, session_id, sorted(seqs))
    return await to_thread.run_sync(_between, lists, raws, receipt["format"])


async def _read(
    archive: Archive, session_id: str, seqs: Sequence[int]
) -> dict[int, model.JsonObject]:
    """Read messages by number, consecutive ones together."""
    raws: dict[int, model.JsonObject] = {}
    start = 0
    for stop in range(1, len(seqs) + 1):
        if stop == len(seqs) or seqs[stop] != seqs[stop - 1] + 1:
            messages = await archive.read_messages(session_id, seqs[start], seqs[stop - 1])
            raws |= {message.seq: message.raw for message in messages}
            start = stop
    return raws


def _between(
    lists: CompactedLists, raws: Mapping[int, model.JsonObject], format: str
) -> model.JsonObject:
    def parsed(entries: Iterable[ContextEntry]) -> model.Messages:
        found = (entry.raw or raws.get(entry.seq) for entry in entries)
        return formats.parse([raw for raw in found if raw is not None], format=format)

    return dropped_names(parsed(lists.before), parsed(lists.after or ()))
