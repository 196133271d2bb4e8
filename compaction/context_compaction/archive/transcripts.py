"""Transcripts: reading and copying the records of sessions; `writing.py` adds message lists.

All functions block. The archive ensures that only one thread at a time works on a session.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from context_compaction import errors
from context_compaction.archive.contexts import ContextMatch, StoredContext
from context_compaction.archive.histories import MessageNode, Node
from context_compaction.archive.records import (
    Blobs,
    LinePlace,
    LoggedRecord,
    Record,
    StoredOutput,
    ascii_json,
    encode_content,
    externalise,
    info_of,
)
from context_compaction.archive.transcript_state import S, TranscriptState
from context_compaction.archive.values import (
    NO_SEQ,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    CopiedRecord,
    History,
    OutputInfo,
    SessionInfo,
    StoredReceipt,
)
from context_compaction.formats import FORMATS
from context_compaction.messages.model import JsonObject, Message
from context_compaction.messages.raw import HEAD_CHARS, ROOT, chain_hashes
from context_compaction.request import check_session_id

T = TypeVar("T")

_COPY_BYTES = 16 * 1024 * 1024  # of records that one call of `records` returns


class TranscriptStore(ABC, Generic[S]):
    """All transcripts of one tenant. `Archive` offers the public methods that name a session.

    Attributes:
        blobs: Large contents that records refer to.
        redacts: Whether secrets are removed from everything that is written.
    """

    blobs: Blobs
    redacts: bool

    @abstractmethod
    def state(self, session_id: str) -> S:
        """Return the current state of a session; an empty state if the session does not exist."""

    @abstractmethod
    def writing(self, session_id: str) -> AbstractContextManager[S]:
        """Yield the current state of a session to which only this call can write in the block.

        All known records are durable, because new records refer to them.
        """

    @abstractmethod
    def write(
        self, state: S, session_id: str, parent_session_id: str | None, records: Sequence[Record]
    ) -> None:
        """Add records, all or none of them, and let the state learn them."""

    def secure(self, state: S) -> None:
        """Make all known records of the session durable; by default they are."""

    @abstractmethod
    def bodies(self, state: S, places: Sequence[LinePlace]) -> list[Any]:
        """Return the bodies of records; raise `ArchiveDamagedError` if one cannot be read."""

    @abstractmethod
    def all_records(self, state: S) -> list[LoggedRecord]:
        """Return all records of a session in order, except records that only name the session."""

    def existing(self, session_id: str) -> S:
        """Return the state of a session that must exist.

        Raises:
            SettingsError: The session ID is invalid.
            NotFoundError: The archive has no such session.
        """
        state = self.state(check_session_id(session_id))
        if not state.exists:
            raise errors.NotFoundError.of_session(session_id)
        return state

    def context(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[str, list[JsonObject]]:
        """Return the format and the messages of the session's current context.

        That is the newest context of `commit`, or else the transcript, with the messages that were
        appended after it.

        Args:
            session_id: ID of the session.
            after: Number of first messages to skip; if negative, return only the last messages.
            limit: Maximum number of messages.
        """
        state = self.existing(session_id)
        nodes, match = state.contexts.current(partial(self.parsed, state))
        start, stop = (match.lead, match.message_count) if match else (0, 0)
        entries = self._entries(state, [*nodes[:start], *nodes[stop:]])
        if match is not None:
            entries[start:start] = self.entries_of_match(state, match)
        entries = self._with_raws(state, _part_of(entries, after, limit))
        return state.format, [entry.raw for entry in entries]

    def context_name(self, session_id: str) -> str:
        """Return the `history_hash` of all messages that `context` returns.

        No message is read. With redaction it is the hash of the list before redaction.
        """
        state = self.existing(session_id)
        nodes, match = state.contexts.current(partial(self.parsed, state))
        contents = [node.content for _, node in nodes]
        if match is not None:
            entries = match.stored.entries[match.stored_lead : match.entry_count]
            contents[match.lead : match.message_count] = [entry.content for entry in entries]
        return (ROOT, *chain_hashes(contents))[-1]

    def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        """Return the messages with numbers from `start` to `stop`, inclusive, in order.

        Damaged messages are left out; `health` reports them.

        Args:
            session_id: ID of the session.
            start: First number.
            stop: Last number.
            head: Return only messages of this branch; None for messages of all branches.

        Raises:
            NotFoundError: The archive has no such session, or the session no such branch.
            ArchiveDamagedError: A part of the branch cannot be read.
        """
        if not 0 <= start <= stop:
            raise errors.QueryError(
                f"Invalid message range {start} to {stop}. Use a start from 0 and a stop that is "
                "not smaller, such as 3 to 7."
            )
        state = self.existing(session_id)
        within: Sequence[int] = range(start, min(stop + 1, state.next_seq))
        if head is not None:
            within = [seq for seq in state.history(head) if start <= seq <= stop]
        nodes = [node for node in map(state.messages.get, within) if node is not None]
        bodies = self.bodies(state, [node.place for node in nodes])
        return [
            ArchivedMessage(session_id, node.seq, node.format, raw, float(node.seconds))
            for node, raw in zip(nodes, bodies, strict=True)
        ]

    def history(self, session_id: str, head: str) -> History:
        """Return the branch with a head, given at least 12 characters of the head."""
        state = self.existing(session_id)
        seqs = tuple(state.history(head))
        name = state.tree.find(head) or head
        receipts = state.receipts_of(state.tree.names(name))
        outputs = (o for number in receipts for o in state.receipts[number].head["outputs"])
        return History(name[:HEAD_CHARS], seqs, frozenset(outputs))

    def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """Return the newest branches, newest first, and the number of all branches."""
        names = self.existing(session_id).tree.branches()
        branches: list[History] = []
        for name in names:
            if len(branches) == limit:
                break
            try:
                branches.append(self.history(session_id, name))
            except errors.ArchiveDamagedError:
                continue  # `health` reports the damage
        return branches, len(names)

    def receipts(
        self,
        session_id: str,
        *,
        heads: Collection[str] | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """Return receipts of the session's compactions, oldest first.

        Args:
            session_id: ID of the session.
            heads: Return only receipts of compactions that the list with these `heads` of `append`
                went through; None for receipts of all branches.
            after: Number of first receipts to skip; if negative, return only the last receipts.
            limit: Maximum number of receipts.
        """
        state = self.existing(session_id)
        numbers = sorted(state.receipts) if heads is None else state.receipts_of(heads)
        places = [state.receipts[number].place for number in _part_of(numbers, after, limit)]
        return self.bodies(state, places)

    def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """Return all receipts of the session with their times, oldest first."""
        records = sorted(self.existing(session_id).receipts.items())
        times = [float(record.head["ts"]) for _, record in records]
        return [*map(StoredReceipt, times, self.receipts(session_id))]

    def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """Return the lists before and after a compaction.

        Args:
            session_id: ID of the session.
            number: Number of its receipt, from 0 for the oldest, or from -1 for the newest.
        """
        state = self.existing(session_id)
        numbers = sorted(state.receipts)
        if not -len(numbers) <= number < len(numbers):
            raise errors.NotFoundError(
                f"Session {session_id} has no receipt {number}. It has {len(numbers)} receipts, "
                "numbered from 0, or from -1 backwards."
            )
        number = numbers[number]
        # One call writes the receipt and then its context.
        context = state.contexts.all.get(number + 1)
        if context is None:
            nodes = state.tree.path(state.receipts[number].head["of"])
            return CompactedLists(tuple(self._entries(state, nodes)), None)
        nodes = self._nodes_before(state, context)
        after = tuple(self._entries_of(state, context))
        return CompactedLists(tuple(self._entries(state, nodes)), after)

    def shortened_messages(self, session_id: str) -> dict[int, frozenset[int]]:
        """Return, by the number of each receipt, the messages that its compaction shortened.

        Messages are named by the numbers of their originals.
        """
        state = self.existing(session_id)
        stored = (state.contexts.all.get(number + 1) for number in sorted(state.receipts))
        edited = ((e.source_seq for e in c.entries if e.seq == NO_SEQ) if c else () for c in stored)
        return {index: frozenset(seqs) - {NO_SEQ} for index, seqs in enumerate(edited)}

    def list_before(
        self, session_id: str, number: int | None, heads: Sequence[str]
    ) -> tuple[int, list[ContextEntry]]:
        """Return the list that a compaction replaced, followed by everything since.

        Args:
            session_id: ID of the session.
            number: Number of the compaction's receipt, from 0; None for the newest of the list.
            heads: Chain hashes of all histories with which the current list starts.

        Returns:
            The number of the receipt, and the messages.

        Raises:
            NotFoundError: The list did not go through that compaction.
            ArchiveDamagedError: A message cannot be read.
        """
        state = self.existing(session_id)
        contexts, receipts = state.contexts, sorted(state.receipts)
        nodes = [next(state.tree.walk(name)) for name in heads]
        # Each context is tried once, the newest first, because a later list contains earlier ones.
        for stored in contexts.newest_first():
            if stored.is_undo:
                continue
            index = max((i for i, (name, _) in enumerate(nodes) if name == stored.end), default=-1)
            if index < 0:
                continue
            nodes = [*self._nodes_before(state, stored), *nodes[index + 1 :]]
            undone = receipts.index(stored.number - 1)
            # Repairs, also without progress, are undone with an earlier compaction.
            status = self.body(state, state.receipts[stored.number - 1].place)["status"]
            if undone == number or (number is None and status == "compacted"):
                break
        else:
            what = "no compaction" if number is None else f"no compaction {number}"
            raise errors.NotFoundError(
                f"This list of session {session_id} went through {what} that can be undone. See "
                "the compactions with: mcp-server-compaction view, or read "
                f"transcript://{session_id}/receipts"
            )
        return undone, self._with_raws(state, self._entries(state, nodes))

    def list_now(self, session_id: str, heads: Sequence[str]) -> list[ContextEntry]:
        """Return the messages of a list, given the chain hashes of all histories it starts with."""
        state = self.existing(session_id)
        nodes = [next(state.tree.walk(name)) for name in heads]
        return self._with_raws(state, self._entries(state, nodes))

    def _with_raws(self, state: S, entries: Sequence[ContextEntry]) -> list[ContextEntry]:
        """Return entries with the messages that are archived."""
        raws = iter(self.raws(state, [entry.seq for entry in entries if entry.seq != NO_SEQ]))
        return [
            entry if entry.seq == NO_SEQ else replace(entry, raw=next(raws)) for entry in entries
        ]

    def _nodes_before(self, state: S, stored: StoredContext) -> list[tuple[str, Node]]:
        """Return the list that a context was made from, oldest message first.

        If the caller passes its whole list at every call, that list with an earlier context instead
        of its start was compacted, and no branch has it. It is found by its hash.
        """
        contexts, tree = state.contexts, state.tree
        *_, listed = stored.histories
        if tree.holds(listed):
            return tree.path(listed)
        nodes = tree.path(stored.histories[0])
        indexes = {name: index for index, (name, _) in enumerate(nodes)}
        for earlier in contexts.newest_first():
            index = max((indexes.get(name, -1) for name in earlier.histories), default=-1)
            if earlier.number < stored.number and index >= 0:
                found = [*tree.path(earlier.end), *nodes[index + 1 :]]
                if chain_hashes([node.content for _, node in found])[-1] == listed:
                    return found
        return nodes

    def _entries(self, state: S, nodes: Iterable[tuple[str, Node]]) -> list[ContextEntry]:
        """Return the messages of a history; those that are archived without `raw`."""
        made: dict[int, dict[str, ContextEntry]] = {}
        entries: list[ContextEntry] = []
        for name, node in nodes:
            if isinstance(node, MessageNode):
                entries.append(ContextEntry(node.seq, {}, known_hash=node.content))
                continue
            if node.number not in made:
                stored = state.contexts.all[node.number]
                pairs = zip(stored.names, self._entries_of(state, stored), strict=True)
                made[node.number] = dict(pairs)
            entries.append(made[node.number][name])
        return entries

    def entries_of_match(self, state: S, match: ContextMatch) -> list[ContextEntry]:
        """Return the entries that replace the start of a list; archived ones without `raw`."""
        return self._entries_of(state, match.stored)[match.stored_lead : match.entry_count]

    def _entries_of(self, state: S, stored: StoredContext) -> list[ContextEntry]:
        """Return the entries of a stored context; archived ones without `raw`."""
        made = iter(self.body(state, stored.place))
        return [e if e.seq != NO_SEQ else replace(e, raw=next(made)) for e in stored.entries]

    def session_info(self, session_id: str) -> SessionInfo:
        """Return the description of a session."""
        return self.existing(session_id).info()

    def output(self, session_id: str, output_id: str) -> StoredOutput | None:
        """Return an output of a session, or None if the session does not have it."""
        state = self.state(session_id)
        record = state.outputs.get(output_id)
        if record is None:
            return None
        info = info_of(record.head, session_id)
        return StoredOutput(info, self.body(state, record.place), self.blobs)

    def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """Return at most `limit` outputs of the session, newest first."""
        state = self.existing(session_id)
        records = sorted(state.outputs.values(), key=lambda record: -record.head["n"])
        return [info_of(record.head, session_id) for record in records[:limit]]

    def raws(self, state: S, seqs: Sequence[int]) -> list[JsonObject]:
        """Return the messages with these numbers. Raise `ArchiveDamagedError` if one is missing."""
        nodes = [state.messages.get(seq) for seq in seqs]
        if None in nodes:
            raise errors.ArchiveDamagedError(
                f"Message {seqs[nodes.index(None)]} of session {state.session_id} is damaged. "
                "Pass the whole message list again, which stores the message again."
            )
        return self.bodies(state, [node.place for node in nodes if node is not None])

    def parsed(self, state: S, seq: int) -> Message | None:
        """Return the message with a number; None if it cannot be read."""
        try:
            return FORMATS[state.messages[seq].format].parse_message(self.raws(state, [seq])[0], 0)
        except (KeyError, errors.ArchiveDamagedError, errors.InvalidMessageError):
            return None

    def body(self, state: S, place: LinePlace) -> Any:
        """Return the body of the record at a position."""
        (body,) = self.bodies(state, [place])
        return body

    def records(self, session_id: str, *, after: int, limit: int = 1_000) -> list[CopiedRecord]:
        """Return the session's records in order, without the first `after` records.

        At most `limit` records are returned, and fewer if they are large. The list is empty at the
        end, and if the session does not exist.
        """
        state = self.state(check_session_id(session_id))
        chosen: list[LoggedRecord] = []
        size_bytes = 0
        for record in self.all_records(state)[after:][:limit]:
            if size_bytes > _COPY_BYTES:
                break
            size_bytes += record.head.get("bytes", 0)
            chosen.append(record)
        return self._copies(state, chosen)

    def _copies(self, state: S, records: Sequence[LoggedRecord]) -> list[CopiedRecord]:
        copied: list[CopiedRecord] = []
        bodies = self.bodies(state, [record.place for record in records])
        for record, body in zip(records, bodies, strict=True):
            head = {name: value for name, value in record.head.items() if name not in {"n", "last"}}
            if head["kind"] == "output":
                body = StoredOutput(info_of(head, ""), body, self.blobs).read_all()
            copied.append(CopiedRecord(head, body))
        return copied

    def add_records(
        self,
        session_id: str,
        records: Sequence[CopiedRecord],
        *,
        after: int,
        parent_session_id: str | None = None,
    ) -> int:
        """Add records of another archive after the first `after` records of the session.

        Records that the session already has there are skipped. Returns the number of the others.

        Raises:
            SettingsError: The session has fewer records.
            ArchiveError: The session has different records.
        """

        def too_few(count: int) -> errors.SettingsError:
            return errors.SettingsError(
                f"Session {session_id!r} has {count} records in the target archive, so no record "
                f"can follow record {after}. Copy the session from its start."
            )

        store_blob = self.blobs.put
        if not records:
            return 0
        if after and not self.state(check_session_id(session_id)).exists:
            raise too_few(0)  # before the session is created
        with self.writing(check_session_id(session_id)) as state:
            present = self.all_records(state)
            if len(present) < after:
                raise too_few(len(present))
            known = self._copies(state, present[after:][: len(records)])
            if known != [*records[: len(known)]]:
                raise errors.ArchiveError(
                    f"The target has a different session {session_id!r}: the records after {after} "
                    "are not equal. Nothing was overwritten. Delete the session from the target to "
                    "copy it."
                )
            new = [
                Record(
                    record.head,
                    ascii_json(encode_content(record.content, store_blob))
                    if record.head["kind"] == "output"
                    else externalise(record.content, store_blob),
                )
                for record in records[len(known) :]
            ]
            if new:
                self.write(state, session_id, parent_session_id, new)
            return len(new)


def _part_of(values: Sequence[T], after: int, limit: int | None) -> list[T]:
    """Return the part of `values` that `receipts` describes for `after` and `limit`."""
    return [*values[after:]][:limit]


def numbered(
    state: TranscriptState,
    session_id: str,
    parent_session_id: str | None,
    records: Sequence[Record],
    *,
    opens: bool,
) -> list[Record]:
    """Return the records with their numbers, after one that names the session if needed.

    The given records stay as they are, so that a caller can add them again.

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
        replace(record, head={**record.head, "n": number})
        for number, record in enumerate(records, state.next_number)
    ]
