"""Names that a compaction removed from the context, and that the model may need again.

A name is a URL, a path, an identifier, a number, or a line that reports a failure. Search finds
each of them, because the archive has everything. The report costs a third of a compaction and few
callers read it, so it is made on request, from the lists in the archive.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal, TypeAlias

from anyio import to_thread

from context_compaction import formats
from context_compaction.activity.outcome import error_line, is_failed
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import CompactedLists, ContextEntry
from context_compaction.messages.model import (
    JsonObject,
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    compact_json,
    tool_results,
)
from context_compaction.messages.names import NameKind, kind_of, may_hold_name, names_in
from context_compaction.messages.tool_results import result_text
from context_compaction.result import CompactResult
from context_compaction.summarizers.extractive.collect import strings_in

Kind: TypeAlias = NameKind | Literal["error"]

# Names shown of each kind, because people and models read receipts.
_SHOWN: Mapping[Kind, int] = {"error": 6, "url": 6, "path": 12, "identifier": 12, "number": 6}
_MAX_ERROR_CHARS = 160
# A longer string without spaces is data, of which only this much is searched for names.
_MAX_WORD_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class DroppedNames:
    """Names that the context no longer contains.

    Attributes:
        totals: Number of names by kind; parts of longer names that stay are counted as well.
        shown: The most frequent names by kind.
    """

    totals: Mapping[Kind, int]
    shown: Mapping[Kind, tuple[str, ...]]

    def as_json(self) -> JsonObject:
        """Return the names for a receipt."""
        return {
            "total": sum(self.totals.values()),
            "kinds": {
                kind: {"total": total, "shown": list(self.shown[kind])}
                for kind, total in self.totals.items()
                if total
            },
            "find_with": "search_transcript",
        }


def dropped_names(before: Messages, after: Messages) -> DroppedNames:
    """Return the names in `before` that `after` does not contain; both may share messages."""
    staying = set(map(id, after))
    removed = [message for message in before if id(message) not in staying]
    present_texts = [text for message in after for text in _texts(message)]
    present_words = set(chain.from_iterable(map(str.split, present_texts)))
    removed_texts = [text for message in removed for text in _texts(message)]
    # Comparing words is fast, and only missing words are examined for names.
    counts = Counter(chain.from_iterable(map(set, map(str.split, removed_texts))))
    missing = sorted(filter(may_hold_name, counts.keys() - present_words))
    missing.sort(key=counts.__getitem__, reverse=True)
    by_kind: dict[Kind, list[str]] = {kind: [] for kind in _SHOWN}
    present_names = set(_names(filter(may_hold_name, present_words)))
    for name in dict.fromkeys(_names(missing)):
        kind = None if name in present_names else kind_of(name)
        if kind is not None:
            by_kind[kind].append(name)
    present_text = "\n".join(present_texts)
    by_kind["error"] = [line for line in _errors(removed) if line not in present_text]
    return DroppedNames(
        {kind: len(names) for kind, names in by_kind.items()},
        {
            kind: tuple(islice((name for name in names if name not in present_text), _SHOWN[kind]))
            for kind, names in by_kind.items()
        },
    )


def _names(words: Iterable[str]) -> Iterator[str]:
    return names_in("\n".join(word[:_MAX_WORD_CHARS] for word in words))


def _errors(messages: Iterable[Message]) -> list[str]:
    """Return the lines that report a failure, newest first, each once."""
    lines = [
        error_line(result_text(result))[:_MAX_ERROR_CHARS].strip()
        for message in messages
        for result in tool_results(message)
        if is_failed(result)
    ]
    return [line for line in dict.fromkeys(reversed(lines)) if line]


def _texts(message: Message) -> Iterator[str]:
    for block in message.blocks:
        match block:
            case Text():
                yield block.text
            case ToolCall():
                yield from strings_in(block.arguments)
            case ToolResult():
                yield from (part.text for part in block.content if isinstance(part, Text))
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
) -> JsonObject | None:
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
    receipt = receipts[0] if receipts else JsonObject()
    losses: JsonObject | None = receipt.get("losses")
    if losses is not None:
        return losses
    lists = await archive.compacted_lists(session_id, number)
    if lists.after is None:
        return None
    seqs = {entry.seq for entry in (*lists.before, *lists.after) if not entry.raw}
    raws = await _read(archive, session_id, sorted(seqs))
    names = await to_thread.run_sync(_between, lists, raws, receipt["format"])
    return names.as_json()


async def _read(archive: Archive, session_id: str, seqs: Sequence[int]) -> dict[int, JsonObject]:
    """Read messages by number, consecutive ones together."""
    raws: dict[int, JsonObject] = {}
    start = 0
    for stop in range(1, len(seqs) + 1):
        if stop == len(seqs) or seqs[stop] != seqs[stop - 1] + 1:
            messages = await archive.read_messages(session_id, seqs[start], seqs[stop - 1])
            raws |= {message.seq: message.raw for message in messages}
            start = stop
    return raws


def _between(lists: CompactedLists, raws: Mapping[int, JsonObject], format: str) -> DroppedNames:
    def messages_of(entries: Iterable[ContextEntry]) -> dict[int | str, Message]:
        available = [entry for entry in entries if entry.raw or entry.seq in raws]
        messages = formats.parse(
            [entry.raw or raws[entry.seq] for entry in available], format=format
        )
        return dict(zip(map(_key, available), messages, strict=True))

    before, after = messages_of(lists.before), messages_of(lists.after or ())
    common = tuple(before.get(key, message) for key, message in after.items())
    return dropped_names(tuple(before.values()), common)


def _key(entry: ContextEntry) -> int | str:
    """Return what entries of the same message share: its number, or the text of a new message."""
    return compact_json(entry.raw) if entry.raw else entry.seq
