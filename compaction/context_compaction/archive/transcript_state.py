"""State of one session that is known without reading the body of a record.

It is built from the heads of the session's records. Several processes may write records, so `learn`
accepts them in any order. The index of a local archive and the database keep the `Description`.
"""

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from sys import intern
from threading import Lock
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from context_compaction.archive.contexts import StoredContexts
from context_compaction.archive.histories import HistoryTree, MessageNode, MessageRun
from context_compaction.archive.records import LoggedRecord
from context_compaction.archive.values import SessionInfo, SessionUsage
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import JsonObject
from context_compaction.messages.raw import ROOT, chain_hash

S = TypeVar("S", bound="TranscriptState")

CACHED_RECORDS = 28_000  # in all cached sessions together; about 1 KB each


@dataclass(slots=True)
class Description:
    """What is known of one session without reading the body of a record.

    Attributes:
        session_id: ID of the session.
        parent_session_id: Session that started this one, if any.
        format: Format of the newest message; "" without messages.
        next_seq: Number of the next message.
        message_count: Number of messages, without the copies of damaged ones.
        copy_count: Number of messages that were stored again because their records are damaged.
        first_seconds: Time of the earliest record in Unix seconds; infinite without records.
        last_seconds: Time of the latest record in Unix seconds.
        title: Newest title from the host, or else the title of the first user message that has one.
        text_chars: Length of the messages in characters.
        saved_tokens: Tokens that compactions removed from the context.
        host: Name of the host that ran the session; "" if unknown.
        folder: Working folder of the host; "" if unknown.
        archived_seconds: When the latest record was written, by this machine's clock.
        is_retained: Whether the session is protected from pruning.
        ranks: For each attribute with one of several values, the rank of its value.
    """

    session_id: str = ""
    parent_session_id: str | None = None
    format: str = ""
    next_seq: int = 0
    message_count: int = 0
    copy_count: int = 0
    first_seconds: float = inf
    last_seconds: float = 0.0
    title: str = ""
    text_chars: int = 0
    saved_tokens: int = 0
    host: str = ""
    folder: str = ""
    archived_seconds: float = 0.0
    is_retained: bool = False
    ranks: dict[str, int] = field(default_factory=dict[str, int])

    def learn_head(self, head: JsonObject) -> None:
        """Add the head of one record."""
        seconds, number = float(head["ts"]), int(head["n"])
        self.first_seconds = min(self.first_seconds, seconds)
        self.last_seconds = max(self.last_seconds, seconds)
        self.archived_seconds = max(self.archived_seconds, head.get("at", seconds))
        match head["kind"]:
            case "session":
                self.session_id = head["session"]
                self.parent_session_id = self.parent_session_id or head["parent"]
            case "message":
                # Not the number of heads, because an index may have learned a damaged record.
                self.next_seq = max(self.next_seq, head["seq"] + 1)
                self.copy_count += head.get("copy", False)
                self.message_count = self.next_seq - self.copy_count
                self.text_chars += head["chars"]
                self._choose("format", head["format"], head["seq"])
                if "title" in head:
                    self._choose("title", head["title"], -1 - head["seq"])
            case "output":
                for name in {"title", "host", "folder"} & head.keys():
                    self._choose(name, head[name], number)
            case "receipt":
                self.saved_tokens += head.get("saved", 0)
            case "pin":
                self._choose("is_retained", head["pinned"], number)
            case _:
                pass

    def _choose(self, name: str, value: Any, rank: int) -> None:
        """Set an attribute unless it has a value of a higher rank."""
        if rank >= self.ranks.get(name, rank):
            self.ranks[name] = rank
            setattr(self, name, value)

    def info(self) -> SessionInfo:
        """Return the values that callers see."""
        return SessionInfo(**{item.name: getattr(self, item.name) for item in fields(SessionInfo)})

    def usage(self, log_bytes: int) -> SessionUsage:
        """Return the size of the session, given the size of its log."""
        return SessionUsage(
            self.session_id,
            self.parent_session_id,
            self.is_retained,
            self.message_count,
            self.archived_seconds,
            log_bytes,
            self.title,
        )

    def to_json(self) -> str:
        """Return the description as `from_json` reads it, without what a subclass adds."""
        return json.dumps({item.name: getattr(self, item.name) for item in fields(Description)})

    @classmethod
    def from_json(cls, text: str) -> "Description":
        """Return the description that `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class TranscriptState(Description):
    """State of one session. Not safe for several threads.

    Attributes:
        tree: The branches of the session.
        contexts: Contexts that compactions left.
        outputs: Records of outputs by output ID.
        receipts: Records of receipts by record number.
        next_number: Number of the next record.
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
        # Messages usually follow each other; then one string is kept for both.
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


class StateCache(Generic[S]):
    """The states of sessions that a process keeps between calls; safe for several threads.

    A state is removed while a call uses it. The states used last are kept, up to 256 of them and
    `CACHED_RECORDS` records. The last one is kept whatever its size.
    """

    def __init__(self) -> None:
        most = CACHED_RECORDS
        self._states: LRUCache[Hashable, S] = LRUCache(
            most, lambda state: min(max(state.next_number, most // 256), most)
        )
        self._lock = Lock()

    def take(self, key: Hashable) -> S | None:
        """Remove and return the state of a session; None if it is unknown or in use."""
        with self._lock:
            return self._states.pop(key, None)

    def put(self, key: Hashable, state: S) -> None:
        """Keep a state for the next call."""
        with self._lock:
            self._states[key] = state

    def states(self) -> list[S]:
        """Return all states that no call uses."""
        with self._lock:
            return [*self._states.values()]
