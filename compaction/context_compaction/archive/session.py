"""What is known of one session without reading a body: built from the heads of its log.

Every message and every position of a stored context is a node, named by the chain hash of the
history that ends there. A list of messages is walked along the nodes; where it leaves them, new
history begins. Records may be learnt in any order (several writers, read one after the other), so
nothing here depends on the order of `learn`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from context_compaction.archive.log import LoggedRecord, read_segment, segment_sizes
from context_compaction.archive.records import Place
from context_compaction.errors import ArchiveDamagedError
from context_compaction.history_hash import ROOT, chain_hash

NO_SEQ = -1


@dataclass(frozen=True, slots=True)
class Node:
    """The end of one known history.

    Attributes:
        seq: The message's number; of a context's entry its original's, or -1.
        parent: Chain hash of the history without its last message.
        place: Where the message's record stands; None for an entry of a context.
    """

    seq: int
    parent: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A context that a compaction left.

    Attributes:
        number: Its record's number.
        end: Chain hash after its last entry.
        record: Its record.
    """

    number: int
    end: str
    record: LoggedRecord


@dataclass(slots=True)
class SessionState:
    """The heads of one session, kept up to date by `refresh`. Not safe for several threads.

    Attributes:
        sizes: By segment, how large it was when last looked at.
        read_to: By segment, up to where it was read.
        synced_to: By segment, up to where this process knows it to be on the device.
        durable: Histories of which this process knows that all of them is on the device.
        nodes: Known histories by chain hash.
        messages: Message records by number.
        outputs: Output records by id.
        receipts: Receipt records by record number.
        newest_context: The last stored context.
        parent_session_id: The session that this one was started from.
        is_pinned: Whether retention must leave it.
        next_seq: Number of the next message.
        next_number: Number of the next record.
        first_seconds: Time of the earliest record; infinite where there is none.
        last_seconds: Time of the latest record.
        archived_seconds: When the latest record was written, by our own clock.
    """

    folder: Path
    session_id: str = ""
    parent_session_id: str | None = None
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    read_to: dict[str, int] = field(default_factory=dict[str, int])
    synced_to: dict[str, int] = field(default_factory=dict[str, int])
    durable: set[str] = field(default_factory=set[str])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    messages: dict[int, LoggedRecord] = field(default_factory=dict[int, LoggedRecord])
    outputs: dict[str, LoggedRecord] = field(default_factory=dict[str, LoggedRecord])
    receipts: dict[int, LoggedRecord] = field(default_factory=dict[int, LoggedRecord])
    newest_context: StoredContext | None = None
    is_pinned: bool = False
    pinned_at: int = -1  # number of the newest record that says so
    next_seq: int = 0
    next_number: int = 0
    first_seconds: float = inf
    last_seconds: float = 0.0
    archived_seconds: float = 0.0

    @property
    def exists(self) -> bool:
        """Whether the archive holds anything of this session."""
        return self.next_number > 0

    def match(self, chain: Sequence[str]) -> int:
        """How many leading histories of `chain` are known."""
        for count, name in enumerate(chain):
            if name not in self.nodes:
                return count
        return len(chain)

    def unsynced(self) -> set[str]:
        """The segments that hold what is not known to be on the device."""
        return {name for name, end in self.read_to.items() if self.synced_to.get(name, 0) < end}

    def unsynced_under(self, head: str) -> set[str]:
        """Those of the `unsynced` segments that hold a part of the history `head`."""
        found: set[str] = set()
        while head != ROOT and head not in self.durable:
            node = self.nodes.get(head)
            if node is None or node.place is None:  # a context names messages of any segment
                return self.unsynced()
            if self.synced_to.get(node.place.segment, 0) < node.place.offset + node.place.length:
                found.add(node.place.segment)
            head = node.parent
        return found

    def learn(self, record: LoggedRecord) -> None:
        """Take in one record."""
        head = record.head
        number: int = head["n"]
        self.next_number = max(self.next_number, number + 1)
        said: float = head["ts"]
        self.first_seconds = min(self.first_seconds, said)
        self.last_seconds = max(self.last_seconds, said)
        # What older versions wrote says only when it was said.
        archived: float = head.get("at") or said
        self.archived_seconds = max(self.archived_seconds, archived)
        match head["kind"]:
            case "session":
                self.session_id = head["session"]
                self.parent_session_id = self.parent_session_id or head["parent"]
            case "message":
                self._learn_message(record)
            case "output":
                self.outputs.setdefault(head["id"], record)
            case "receipt":
                self.receipts[number] = record
            case "pin":
                if number > self.pinned_at:
                    self.pinned_at, self.is_pinned = number, head["pinned"]
            case _:
                self._learn_context(record, number)

    def _learn_message(self, record: LoggedRecord) -> None:
        seq: int = record.head["seq"]
        parent: str = record.head["parent"]
        self.nodes[chain_hash(parent, record.head["hash"])] = Node(seq, parent, record.place)
        self.messages[seq] = record
        self.next_seq = max(self.next_seq, seq + 1)

    def _learn_context(self, record: LoggedRecord, number: int) -> None:
        entries: list[tuple[str, int, int]] = record.head["entries"]
        parent = ROOT
        for content, seq, source_seq in entries:
            chain = chain_hash(parent, content)
            known = self.nodes.get(chain)
            if known is None or known.seq == NO_SEQ:
                self.nodes[chain] = Node(seq if seq != NO_SEQ else source_seq, parent)
            parent = chain
        if self.newest_context is None or self.newest_context.number < number:
            self.newest_context = StoredContext(number, parent, record)

    def newest_history(self) -> list[int]:
        """Numbers of the messages from the beginning to the newest message.

        Raises:
            ArchiveDamagedError: A message or context between them cannot be read.
        """
        path: list[int] = []
        chain = self.messages[self.next_seq - 1].head["parent"] if self.messages else ROOT
        if self.messages:
            path.append(self.next_seq - 1)
        while chain != ROOT:
            node = self.nodes.get(chain)
            if node is None:
                raise ArchiveDamagedError(
                    f"Session {self.session_id}: what stood before message {path[-1]} is damaged. "
                    "Hand over the whole message list again, which stores it anew."
                )
            path.append(node.seq)
            chain = node.parent
        return path[::-1]

    def history_after(self, start: str) -> list[int]:
        """Numbers of the messages after history `start`, along its newest branch."""
        before = {start: (NO_SEQ, "")}  # by chain hash: the message, and the history before it
        newest = start
        for seq, record in sorted(self.messages.items()):
            parent: str = record.head["parent"]
            if parent in before:
                newest = chain_hash(parent, record.head["hash"])
                before[newest] = (seq, parent)
        path: list[int] = []
        while newest != start:
            seq, newest = before[newest]
            path.append(seq)
        return path[::-1]


def refresh(state: SessionState) -> SessionState:
    """`state` with what was logged since; a new one where a segment has shrunk or vanished.

    Raises:
        ArchiveError: The session's folder cannot be read.
    """
    sizes = segment_sizes(state.folder)
    if any(sizes.get(segment, 0) < read_to for segment, read_to in state.read_to.items()):
        state = SessionState(state.folder)
    state.sizes = sizes
    for segment, size in sizes.items():
        read_to = state.read_to.get(segment, 0)
        if size > read_to:
            part = read_segment(state.folder, segment, read_to)
            for record in part.records:
                state.learn(record)
            state.read_to[segment] = part.end
    return state
