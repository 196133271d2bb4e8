"""State of one session that is known without reading the body of a record, and its storage.

It is built from the heads of the session's records. Several processes may write records, so `learn`
accepts them in any order.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from sys import intern
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from context_compaction.archive.contexts import StoredContexts
from context_compaction.archive.description import Description
from context_compaction.archive.histories import HistoryTree, MessageNode, MessageRun
from context_compaction.archive.records import Blobs, LoggedRecord, Record
from context_compaction.errors import NotFoundError
from context_compaction.messages.history_hash import ROOT, chain_hash

S = TypeVar("S", bound="TranscriptState")

CACHED_RECORDS = 28_000  # in all cached sessions together; about 1 KB each


@dataclass(slots=True)
class TranscriptState(Description):
    """State of one session. Not safe for several threads.

    Attributes:
        tree: The branches of the session.
        contexts: Contexts that compactions left.
        outputs: Records of outputs by output ID.
        receipts: Records of receipts by record number.
        next_number: Number of the next record.
        contents: Content hashes of messages that were archived unchanged, by `json_key`.
    """

    tree: HistoryTree = field(default_factory=HistoryTree)
    contexts: StoredContexts = field(init=False)
    outputs: dict[str, LoggedRecord] = field(default_factory=dict[str, LoggedRecord])
    receipts: dict[int, LoggedRecord] = field(default_factory=dict[int, LoggedRecord])
    # Numbers of the receipts by the heads of the lists that were compacted, or that they left.
    _receipts_at: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _earlier_receipts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    _newest: str = ROOT  # head of the branch to which the last message was added
    next_number: int = 0
    contents: dict[bytes, str] = field(default_factory=dict[bytes, str])

    def __post_init__(self) -> None:
        self.contexts = StoredContexts(self.tree)

    @property
    def messages(self) -> Mapping[int, MessageNode]:
        """Messages by number."""
        return self.tree.messages

    @property
    def exists(self) -> bool:
        """Whether the archive has any record of the session."""
        return self.next_number > 0

    def learn(self, record: LoggedRecord) -> None:
        """Add one record."""
        head = record.head
        number = int(head["n"])
        self.learn_head(head)
        self.next_number = max(self.next_number, number + 1)
        match head["kind"]:
            case "message":
                self._learn_message(record)
            case "output":
                self.outputs.setdefault(head["id"], record)
            case "receipt":
                self._learn_receipt(record, number)
            case "run":
                run = MessageRun(head["parent"], head["source"], head["count"], number)
                self.tree.add_run(head["head"], run)
            case "context":
                self.contexts.learn(record, number)
            case _:
                pass  # it only changes the description

    def _learn_receipt(self, record: LoggedRecord, number: int) -> None:
        if number < max(self.receipts, default=number):
            self._earlier_receipts.clear()  # this receipt may belong to one of the lists
        self.receipts[number] = record
        for name in {record.head["of"], record.head["left"]} - {ROOT}:
            self._receipts_at[name].append(number)

    def _learn_message(self, record: LoggedRecord) -> None:
        head = record.head
        # Messages usually follow each other; then the same string is kept only once.
        parent: str = self._newest if head["parent"] == self._newest else head["parent"]
        node = MessageNode(
            head["seq"],
            parent,
            head["hash"],
            head["n"],
            place=record.place,
            seconds=head["ts"],
            format=intern(head["format"]),
            role=intern(head["role"]),
        )
        self._newest = chain_hash(parent, node.content)
        self.tree.add_message(self._newest, node)

    def forget_other_contents(self, keys: Collection[bytes]) -> None:
        """Forget the content hashes of messages that a whole list does not contain.

        So memory grows with the list instead of the session. A thousand other hashes stay, because
        several agents may use one session.
        """
        if len(self.contents) > len(keys) + 1_000:
            self.contents = {key: self.contents[key] for key in keys if key in self.contents}

    def history(self, head: str) -> list[int]:
        """Return the numbers of the messages of a branch, oldest first; see `Archive.history`.

        Raises:
            NotFoundError: The session has no such branch.
            ArchiveDamagedError: A part of the branch cannot be read.
        """
        name = self.tree.find(head)
        if name is None:
            raise NotFoundError(
                f"Session {self.session_id} has no branch {head!r}. Use the 12 characters after "
                "the @ of a pointer, or remove the @ and what follows it to read all branches."
            )
        return self.tree.numbers(name)

    def receipts_of(self, heads: Iterable[str]) -> list[int]:
        """Return the numbers of the receipts of the compactions that a list went through.

        These are compactions of a list with which it starts, or that left such a list, and the
        compactions before them.

        Args:
            heads: Chain hashes of all histories with which the list starts.
        """
        waiting, found = self._receipts_among(heads), set[int]()
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self._receipts_before(number)
        return sorted(found)

    def _receipts_before(self, number: int) -> list[int]:
        """Return the numbers of the earlier receipts of the list that a receipt describes."""
        if number not in self._earlier_receipts:
            names = self.tree.names(self.receipts[number].head["of"])
            earlier = [other for other in self._receipts_among(names) if other < number]
            self._earlier_receipts[number] = earlier
        return self._earlier_receipts[number]

    def _receipts_among(self, names: Iterable[str]) -> list[int]:
        return [number for name in names for number in self._receipts_at.get(name, ())]


class Sessions(Protocol[S]):
    """The sessions of one tenant, and how their records are stored."""

    @property
    def blobs(self) -> Blobs:
        """Large contents that records refer to."""
        ...

    def state(self, session_id: str) -> S:
        """Return the current state of a session; an empty state if the session does not exist."""
        ...

    def writing(self, session_id: str, *, opens: bool = True) -> AbstractContextManager[S]:
        """Yield the current state of a session to which only this call can write in the block.

        With `opens` false, a session that does not exist is not created: the state is empty, and
        the block must not write.
        """
        ...

    def write(
        self, state: S, session_id: str, parent_session_id: str | None, records: Sequence[Record]
    ) -> None:
        """Add records, all or none of them, and let the state learn them."""
        ...

    def secure(self, state: S) -> None:
        """Make all known records of the session durable."""
        ...

    def bodies(self, state: S, records: Sequence[LoggedRecord | MessageNode]) -> list[Any]:
        """Return the bodies of records; raise `ArchiveDamagedError` if one cannot be read."""
        ...

    def all_records(self, state: S) -> list[LoggedRecord]:
        """Return all records of a session in order, without those that only name the session."""
        ...


def numbered(
    state: TranscriptState,
    session_id: str,
    parent_session_id: str | None,
    records: Sequence[Record],
    *,
    opens: bool,
) -> list[Record]:
    """Return `records` with their numbers, after a record that names the session if needed.

    Args:
        state: State of the session before the records.
        session_id: The session.
        parent_session_id: Session that started it; ignored if the session already has a parent.
        records: Records of one call.
        opens: Whether to name the session in any case, because the records start a new file.
    """
    parent = state.parent_session_id or parent_session_id
    if opens or parent != state.parent_session_id:
        head = {
            "kind": "session",
            # Not the current time, so that an imported old session stays old.
            "ts": min(record.head["ts"] for record in records),
            "session": session_id,
            "parent": parent,
        }
        records = [Record(head), *records]
    return [
        Record({"n": number} | record.head, record.body)
        for number, record in enumerate(records, state.next_number)
    ]


class StateCache(Generic[S]):
    """The states of sessions that a process keeps between calls; safe for several threads.

    A state is removed while a call uses it. The states used last are kept, up to 256 of them and
    `CACHED_RECORDS` records.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[Hashable, S] = OrderedDict()
        self._lock = Lock()

    def take(self, key: Hashable) -> S | None:
        """Remove and return the state of a session; None if it is unknown or in use."""
        with self._lock:
            return self._states.pop(key, None)

    def put(self, key: Hashable, state: S) -> None:
        """Keep a state for the next call."""
        with self._lock:
            self._states[key] = state
            self._states.move_to_end(key)  # another call may have put it there
            records = sum(known.next_number for known in self._states.values())
            while len(self._states) > 1 and (len(self._states) > 256 or records > CACHED_RECORDS):
                _, oldest = self._states.popitem(last=False)
                records -= oldest.next_number

    def states(self) -> list[S]:
        """Return all states that no call uses."""
        with self._lock:
            return [*self._states.values()]
