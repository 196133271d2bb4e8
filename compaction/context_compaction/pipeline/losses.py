"""Names that a compaction removed from the context, and that may be needed again.

A name is a URL, a path, an identifier, a number, or the line that reports a failure. Each can be
found by search, since the archive has everything. Texts are compared word by word, and only words
that are gone are looked at more closely. That is a third of what a compaction costs, and few
callers read the report: it is made when somebody asks for it, from the lists in the archive.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal, TypeAlias

from anyio import to_thread

from context_compaction import formats
from context_compaction.activity.outcome import error_line, is_failed
from context_compaction.archive import Archive, CompactedLists, ContextEntry
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

Kind: TypeAlias = NameKind | Literal["error"]

# So many of each kind are named: a receipt is read by people and models.
SHOWN: Mapping[Kind, int] = {"error": 6, "url": 6, "path": 12, "identifier": 12, "number": 6}
MAX_ERROR_CHARS = 160
# A word of this length is no word: only its two ends are looked at.
_MAX_WORD_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class DroppedNames:
    """The names that are gone.

    Attributes:
        totals: How many names of each kind; a part of a longer name that stays counts too.
        shown: Of each kind those that most texts contained.
    """

    totals: Mapping[Kind, int]
    shown: Mapping[Kind, tuple[str, ...]]

    @property
    def total(self) -> int:
        """All names that are gone."""
        return sum(self.totals.values())

    def as_json(self) -> JsonObject:
        """For a receipt; names beyond those shown are counted all the same."""
        return {
            "total": self.total,
            "kinds": {
                kind: {"total": total, "shown": list(self.shown[kind])}
                for kind, total in self.totals.items()
                if total
            },
            "find_with": "search_transcript",
        }


def dropped_names(before: Messages, after: Messages) -> DroppedNames:
    """The names in `before` that `after`, which shares messages with it, does not contain."""
    staying = set(map(id, after))
    left = [message for message in before if id(message) not in staying]
    kept_texts = [text for message in after for text in _texts(message)]
    kept_words = set(chain.from_iterable(map(str.split, kept_texts)))
    left_texts = [text for message in left for text in _texts(message)]
    times = Counter(chain.from_iterable(map(set, map(str.split, left_texts))))
    gone = sorted(filter(may_hold_name, times.keys() - kept_words))
    gone.sort(key=times.__getitem__, reverse=True)
    by_kind: dict[Kind, list[str]] = {kind: [] for kind in SHOWN}
    kept_names = set(_names(filter(may_hold_name, kept_words)))
    for name in dict.fromkeys(_names(gone)):
        kind = None if name in kept_names else kind_of(name)
        if kind is not None:
            by_kind[kind].append(name)
    kept_text = "\n".join(kept_texts)
    by_kind["error"] = [line for line in _errors(left) if line not in kept_text]
    return DroppedNames(
        {kind: len(names) for kind, names in by_kind.items()},
        {kind: _unseen(names, kept_text, SHOWN[kind]) for kind, names in by_kind.items()},
    )


def _unseen(names: Iterable[str], text: str, most: int) -> tuple[str, ...]:
    """The first `most` of `names` that are not even parts of longer names in `text`."""
    return tuple(islice((name for name in names if name not in text), most))


def _names(words: Iterable[str]) -> Iterator[str]:
    """The names in `words`, in their order."""
    return names_in("\n".join(word[:_MAX_WORD_CHARS] for word in words))


def _errors(messages: Iterable[Message]) -> list[str]:
    """The lines that report a failure, newest first, each once."""
    lines = [
        error_line(result_text(result))[:MAX_ERROR_CHARS].strip()
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
                yield from _strings(block.arguments)
            case ToolResult():
                yield from (part.text for part in block.content if isinstance(part, Text))
            case _:
                continue


def _strings(value: object) -> Iterator[str]:
    """Every string and number among the values of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    if isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _strings(item)  # pyright: ignore[reportUnknownArgumentType]
    elif value is not None and not isinstance(value, bool):
        yield str(value)


async def with_losses(result: CompactResult, archive: Archive) -> CompactResult:
    """`result`, with the names that left the context in its receipt if it is a compaction's."""
    if "head" not in result.receipt or "losses" in result.receipt:
        return result
    losses = await read_losses(archive, result.session_id)
    return replace(result, receipt=result.receipt | {"losses": losses})


async def read_losses(archive: Archive, session_id: str, number: int = -1) -> JsonObject | None:
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


async def _read(archive: Archive, session_id: str, seqs: Sequence[int]) -> dict[int, JsonObject]:
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
