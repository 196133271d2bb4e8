"""Transcripts: reading and writing the records of sessions; `appending.py` adds message lists.

All functions block. The archive ensures that only one thread at a time works on a session.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from context_compaction import errors
from context_compaction.archive.contexts import ContextMatch, StoredContext
from context_compaction.archive.documents import told_by_output
from context_compaction.archive.histories import MessageNode, Node
from context_compaction.archive.records import (
    LoggedRecord,
    Record,
    StoredOutput,
    ascii_json,
    describe_blob,
    encode_content,
    externalise,
    figures_of,
    info_of,
)
from context_compaction.archive.transcript_state import S, Sessions, TranscriptState
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
from context_compaction.messages.edits import Blob
from context_compaction.messages.history_hash import HEAD_CHARS, ROOT, chain_hashes
from context_compaction.messages.model import JsonObject
from context_compaction.messages.private import hide_private
from context_compaction.redaction import check_no_secret, redact_blob, redact_json
from context_compaction.request import check_session_id

T = TypeVar("T")

_COPY_BYTES = 16 * 1024 * 1024  # of records that one call of `records` returns


class TranscriptStore(Generic[S]):
    """All transcripts of one tenant. `Archive` offers the public methods that name a session."""

    def __init__(self, sessions: Sessions[S], *, redacts: bool) -> None:
        """With `redacts`, secrets are removed from everything that is written."""
        self.redacts = redacts
        self.sessions = sessions

    def existing(self, session_id: str) -> S:
        """Return the state of a session that must exist.

        Raises:
            SettingsError: The session ID is invalid.
            NotFoundError: The archive has no such session.
        """
        state = self.sessions.state(check_session_id(session_id))
        if not state.exists:
            raise errors.NotFoundError.of_session(session_id)
        return state

    def stored_form(self, raw: Any) -> Any:
        """Return `raw` as it is stored: without private text, and redacted if needed."""
        raw = hide_private(raw)
        return redact_json(raw) if self.redacts else raw

    def check_id(self, session_id: str) -> None:
        """Raise `SettingsError` if a session ID is invalid or contains a secret."""
        check_session_id(session_id)
        if self.redacts:
            check_no_secret(session_id)

    def commit(
        self,
        session_id: str,
        *,
        blobs: Sequence[Blob] = (),
        receipt: JsonObject | None = None,
        context: Sequence[ContextEntry] = (),
        head: str = "",
        listed: str = "",
    ) -> None:
        """Store outputs, a receipt, and the context that a compaction left; durable on return.

        Args:
            session_id: ID of the session.
            blobs: Outputs.
            receipt: Receipt of the compaction.
            context: Messages that the compaction left.
            head: `head` of the list that was compacted, as `append` returned it.
            listed: Chain hash of that list with its matched context, or "" without one.

        Raises:
            SettingsError: The ID of the session or of an output is invalid.
            NotFoundError: The context refers to a message that the session does not have.
            ArchiveFullError: The archive's disk is full; nothing of the call was stored.
            ArchiveBusyError: Other processes used the session for too long.
            ArchiveDamagedError: An output with this ID has different content.
        """
        self.check_id(session_id)
        outputs = {blob.output_id: describe_blob(blob) for blob in blobs}
        if self.redacts:
            blobs = [redact_blob(blob) for blob in blobs]
            outputs, receipt = redact_json(outputs), redact_json(receipt)
            outputs = {blob.output_id: outputs[blob.output_id] | figures_of(blob) for blob in blobs}
        now = {"ts": time.time()}
        store_blob = self.sessions.blobs.put
        opens = bool(blobs or receipt is not None or context)
        with self.sessions.writing(session_id, opens=opens) as state:
            self.sessions.secure(state)
            records = self._output_records(state, blobs, outputs, now["ts"])
            context = self._edited_as_such(state, context)
            entries: list[list[Any]] = [
                [e.content, e.seq, e.source_seq, *([e.replaced_head] if e.replaced_head else [])]
                for e in context
            ]
            if receipt is not None:
                context_head = (ROOT, *chain_hashes([str(content) for content, *_ in entries]))[-1]
                named: JsonObject = {"of": head, "left": context_head, "outputs": [*outputs]}
                if receipt.get("status") == "compacted":
                    named["saved"] = receipt["tokens"]["before"] - receipt["tokens"]["after"]
                records.append(
                    Record({"kind": "receipt"} | now | named, externalise(receipt, store_blob))
                )
            if context:
                named = {"of": head, "listed": listed, "entries": entries}
                made = [entry.raw for entry in context if entry.seq == NO_SEQ]
                records.append(
                    Record({"kind": "context"} | now | named, externalise(made, store_blob))
                )
            if records:
                self.sessions.write(state, session_id, None, records)

    def _output_records(
        self, state: S, blobs: Sequence[Blob], outputs: JsonObject, now_seconds: float
    ) -> list[Record]:
        """Return the records of the outputs that the session does not have yet."""
        records: list[Record] = []
        for blob in {blob.output_id: blob for blob in reversed(blobs)}.values():
            output = outputs[blob.output_id]
            if not _is_stored(state, output):
                output = output | told_by_output(output["tool"], blob.data)
                body = ascii_json(encode_content(blob.data, self.sessions.blobs.put))
                message = state.messages.get(NO_SEQ if blob.seq is None else blob.seq)
                seconds = now_seconds if message is None else message.seconds
                records.append(Record({"kind": "output", "ts": seconds} | output, body))
        return records[::-1]

    def _edited_as_such(self, state: S, context: Sequence[ContextEntry]) -> list[ContextEntry]:
        """Return `context` with the text of each entry that is not the archived message itself.

        Such text is stored as `kept` returns it, and is recognized by that when it is passed again.
        """
        entries: list[ContextEntry] = []
        for entry in context:
            message = state.messages.get(entry.seq) if entry.seq != NO_SEQ else None
            if entry.seq != NO_SEQ and message is None:
                raise errors.NotFoundError(
                    f"The context refers to message {entry.seq}, which the session does not have. "
                    "Append the messages before you commit the context. If the session was deleted "
                    "meanwhile, call again."
                )
            if message is None or entry.content != message.content:
                raw = self.stored_form(entry.raw)
                entry = entry if raw is entry.raw else replace(entry, raw=raw, known_hash="")
            if message is not None and entry.content != message.content:
                entry = replace(entry, seq=NO_SEQ, source_seq=entry.seq, replaced_head="")
            entries.append(entry)
        return entries

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
        nodes, match = state.contexts.current()
        if match is None:
            entries = self._entries(state, nodes)
        else:
            entries = [
                *self._entries(state, nodes[: match.lead]),
                *self.entries_of_match(state, match),
                *self._entries(state, nodes[match.message_count :]),
            ]
        entries = self._with_raws(state, _part_of(entries, after, limit))
        return state.format, [entry.raw for entry in entries]

    def context_name(self, session_id: str) -> str:
        """Return the `history_hash` of all messages that `context` returns.

        No message is read. With redaction it is the hash of the list before redaction.
        """
        contexts = self.existing(session_id).contexts
        nodes, match = contexts.current()
        contents = [node.content for _, node in nodes]
        if match is not None:
            entries = match.stored.entries[match.stored_lead : match.entry_count]
            contents[match.lead : match.message_count] = [content for content, *_ in entries]
        return (ROOT, *chain_hashes(contents))[-1]

    def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """Return the numbers from `start` to `stop` of messages that can no longer be read."""
        state = self.existing(session_id)
        if len(state.messages) == state.next_seq:
            return []
        within = range(max(0, start), min(stop + 1, state.next_seq))
        return [seq for seq in within if seq not in state.messages]

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
        bodies = self.sessions.bodies(state, nodes)
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
        records = [state.receipts[number] for number in _part_of(numbers, after, limit)]
        return self.sessions.bodies(state, records)

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
            nodes = [*state.tree.walk(state.receipts[number].head.get("of", ROOT))][::-1]
            return CompactedLists(tuple(self._entries(state, nodes)), None)
        nodes = self._nodes_before(state, context)
        after = tuple(entry for _, entry in self._entries_of(state, context))
        return CompactedLists(tuple(self._entries(state, nodes)), after)

    def shortened_messages(self, session_id: str) -> dict[int, frozenset[int]]:
        """Return, by the number of each receipt, the messages that its compaction shortened.

        Messages are named by the numbers of their originals.
        """
        state = self.existing(session_id)
        contexts = state.contexts.all
        shortened: dict[int, frozenset[int]] = {}
        for index, number in enumerate(sorted(state.receipts)):
            entries = contexts[number + 1].entries if number + 1 in contexts else ()
            sources = (entry[2] for entry in entries if entry[1] == NO_SEQ)
            shortened[index] = frozenset(seq for seq in sources if seq != NO_SEQ)
        return shortened

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
            status = self.body(state, state.receipts[stored.number - 1])["status"]
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
            return [*tree.walk(listed)][::-1]
        nodes = [*tree.walk(stored.histories[0])][::-1]
        indexes = {name: index for index, (name, _) in enumerate(nodes)}
        for earlier in contexts.newest_first():
            index = max((indexes.get(name, -1) for name in earlier.histories), default=-1)
            if earlier.number < stored.number and index >= 0:
                found = [*reversed([*tree.walk(earlier.end)]), *nodes[index + 1 :]]
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
                made[node.number] = dict(self._entries_of(state, state.contexts.all[node.number]))
            entries.append(made[node.number][name])
        return entries

    def entries_of_match(self, state: S, match: ContextMatch) -> list[ContextEntry]:
        """Return the entries that replace the start of a list; archived ones without `raw`."""
        entries = self._entries_of(state, match.stored)
        return [entry for _, entry in entries[match.stored_lead : match.entry_count]]

    def _entries_of(self, state: S, stored: StoredContext) -> list[tuple[str, ContextEntry]]:
        """Return the entries of a stored context with their chain hashes."""
        bodies = iter(self.body(state, stored.record))
        entries = stored.entries
        names = chain_hashes([str(content) for content, *_ in entries])
        made: Iterator[JsonObject] = (
            next(bodies) if seq == NO_SEQ else {} for _, seq, *_ in entries
        )
        return [
            (name, ContextEntry(seq, raw, source, "".join(head), content))
            for name, raw, (content, seq, source, *head) in zip(names, made, entries, strict=True)
        ]

    def session_info(self, session_id: str) -> SessionInfo:
        """Return the description of a session."""
        return self.existing(session_id).info()

    def output(self, session_id: str, output_id: str) -> StoredOutput | None:
        """Return an output of a session, or None if the session does not have it."""
        state = self.sessions.state(session_id)
        record = state.outputs.get(output_id)
        if record is None:
            return None
        info = info_of(record.head, session_id)
        return StoredOutput(info, self.body(state, record), self.sessions.blobs)

    def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """Return at most `limit` outputs of the session, newest first."""
        state = self.existing(session_id)
        records = sorted(state.outputs.values(), key=lambda record: -record.head["n"])
        return [info_of(record.head, session_id) for record in records[:limit]]

    def retain(self, session_id: str, *, retained: bool = True) -> None:
        """Protect a session and its descendants from pruning, or end the protection."""
        self.existing(session_id)
        with self.sessions.writing(session_id) as state:
            self.sessions.secure(state)
            if state.is_retained != retained:
                # With the time of the last message, so that this does not make the session newer.
                head = {"kind": "pin", "ts": state.last_seconds, "pinned": retained}
                self.sessions.write(state, session_id, None, [Record(head)])

    def raws(self, state: S, seqs: Sequence[int]) -> list[JsonObject]:
        """Return the messages with these numbers. Raise `ArchiveDamagedError` if one is missing."""
        nodes = [state.messages.get(seq) for seq in seqs]
        if None in nodes:
            raise errors.ArchiveDamagedError(
                f"Message {seqs[nodes.index(None)]} of session {state.session_id} is damaged. "
                "Pass the whole message list again, which stores the message again."
            )
        return self.sessions.bodies(state, [node for node in nodes if node is not None])

    def body(self, state: S, record: LoggedRecord) -> Any:
        """Return the body of one record."""
        (body,) = self.sessions.bodies(state, [record])
        return body

    def records(self, session_id: str, *, after: int, limit: int = 1_000) -> list[CopiedRecord]:
        """Return the session's records in order, without the first `after` records.

        At most `limit` records are returned, and fewer if they are large. The list is empty at the
        end, and if the session does not exist.
        """
        state = self.sessions.state(check_session_id(session_id))
        chosen: list[LoggedRecord] = []
        size_bytes = 0
        for record in self.sessions.all_records(state)[after:][:limit]:
            if size_bytes > _COPY_BYTES:
                break
            size_bytes += record.head.get("bytes", 0)
            chosen.append(record)
        return self._copies(state, chosen)

    def _copies(self, state: S, records: Sequence[LoggedRecord]) -> list[CopiedRecord]:
        copied: list[CopiedRecord] = []
        for record, body in zip(records, self.sessions.bodies(state, records), strict=True):
            head = {name: value for name, value in record.head.items() if name not in {"n", "last"}}
            if head["kind"] == "output":
                body = StoredOutput(info_of(head, ""), body, self.sessions.blobs).read_all()
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
        check_session_id(session_id)
        sessions, store_blob = self.sessions, self.sessions.blobs.put
        with sessions.writing(session_id, opens=bool(records) and not after) as state:
            sessions.secure(state)
            present = sessions.all_records(state)
            if len(present) < after:
                raise errors.SettingsError(
                    f"Session {session_id!r} has {len(present)} records in the target archive, so "
                    f"no record can follow record {after}. Copy the session from its start."
                )
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
                sessions.write(state, session_id, parent_session_id, new)
            return len(new)


def _part_of(values: Sequence[T], after: int, limit: int | None) -> list[T]:
    """Return the part of `values` that `receipts` describes for `after` and `limit`."""
    return [*values[after:]][:limit]


def _is_stored(state: TranscriptState, head: JsonObject) -> bool:
    """Whether the session already has the output of a record."""
    known = state.outputs.get(head["id"])
    if known is None:
        return False
    if known.head["sha256"] != head["sha256"]:
        raise errors.ArchiveDamagedError(
            f"Output {head['id']} of session {state.session_id} already has different content. "
            "Restore the archive from a backup."
        )
    return True
