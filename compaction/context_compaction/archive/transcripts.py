"""Transcripts: what a session holds, and how it is written and read; `appending.py` adds lists.

Everything blocks and runs in one thread at a time, which the opener of an archive ensures.
"""

import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from context_compaction.archive import (
    NO_SEQ,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    CopiedRecord,
    History,
    OutputInfo,
    SessionInfo,
    StoredReceipt,
    part_of,
)
from context_compaction.archive.documents import TITLE_TOOL, message_text, title_of
from context_compaction.archive.histories import MessageNode
from context_compaction.archive.records import (
    Blobs,
    LoggedRecord,
    Record,
    StoredOutput,
    ascii_json,
    decode_text,
    describe_blob,
    encode_content,
    externalise,
    figures_of,
    info_of,
)
from context_compaction.archive.transcript_state import TranscriptState
from context_compaction.errors import (
    ArchiveDamagedError,
    NotFoundError,
    QueryError,
    SettingsError,
)
from context_compaction.messages.edits import Blob
from context_compaction.messages.history_hash import HEAD_CHARS, ROOT, chain_hashes
from context_compaction.messages.model import JsonObject
from context_compaction.messages.private import hide_private
from context_compaction.redaction import check_no_secret, redact_blob, redact_json
from context_compaction.request import check_session_id

S = TypeVar("S", bound=TranscriptState)


class Sessions(Protocol[S]):
    """Where sessions are written, and what is known of each; whatever stores them."""

    @property
    def blobs(self) -> Blobs:
        """The large contents."""
        ...

    def state(self, session_id: str) -> S:
        """What is kept now of a session, which need not be there."""
        ...

    def writing(self, session_id: str, *, opens: bool = True) -> AbstractContextManager[S]:
        """Nobody else writes to the session in the block; yields its current state.

        Where the session is not there, nothing of it is made unless the call `opens` it; then the
        block finds an empty state, and writes nothing.
        """
        ...

    def write(
        self, state: S, session_id: str, parent_session_id: str | None, records: Sequence[Record]
    ) -> None:
        """Add `records` as one call, all of it or nothing, and have the `state` learn them."""
        ...

    def secure(self, state: S) -> None:
        """Make durable what is known of the session."""
        ...

    def bodies(self, state: S, records: Sequence[LoggedRecord | MessageNode]) -> list[Any]:
        """The bodies of records; raises `ArchiveDamagedError`."""
        ...

    def all_records(self, state: S) -> list[LoggedRecord]:
        """All records of a session but those that only name it, in their order."""
        ...


class TranscriptStore(Generic[S]):
    """All transcripts of one archive."""

    def __init__(self, sessions: Sessions[S], *, redacts: bool) -> None:
        """`redacts` removes secrets from whatever is written from now on."""
        self.redacts = redacts
        self.sessions = sessions

    def existing(self, session_id: str) -> S:
        """What is kept now of a session that must be there.

        Raises:
            SettingsError: The id cannot name a session.
            NotFoundError: The archive holds no such session.
        """
        state = self.sessions.state(check_session_id(session_id))
        if not state.exists:
            raise NotFoundError.of_session(session_id)
        return state

    def kept(self, raw: Any) -> Any:
        """`raw` as the log holds it."""
        raw = hide_private(raw)
        return redact_json(raw) if self.redacts else raw

    def check_id(self, session_id: str) -> None:
        """Raise `SettingsError` if the id cannot name a session."""
        check_session_id(session_id)
        if self.redacts:
            check_no_secret(session_id)

    def commit(
        self,
        session_id: str,
        blobs: Sequence[Blob],
        receipt: JsonObject | None,
        context: Sequence[ContextEntry],
        head: str,
        listed: str,
    ) -> None:
        """See `Archive.commit`. Large outputs are durable before the record that names them."""
        self.check_id(session_id)
        now_seconds = time.time()
        outputs = {blob.output_id: describe_blob(blob) for blob in blobs}
        if self.redacts:
            blobs = [redact_blob(blob) for blob in blobs]
            outputs, receipt = redact_json(outputs), redact_json(receipt)
            outputs = {blob.output_id: outputs[blob.output_id] | figures_of(blob) for blob in blobs}
        output_ids = [*outputs]
        opens = bool(blobs or receipt is not None or context)
        with self.sessions.writing(session_id, opens=opens) as state:
            self.sessions.secure(state)
            records: list[Record] = []
            for blob in blobs:
                output = outputs.pop(blob.output_id, None)
                if output is not None and not _is_stored(state, output):
                    body = ascii_json(encode_content(blob.data, self.sessions.blobs))
                    held_by = state.messages.get(NO_SEQ if blob.seq is None else blob.seq)
                    seconds = now_seconds if held_by is None else held_by.seconds
                    records.append(Record({"kind": "output", "ts": seconds} | output, body))
            context = self._in_own_words(state, context)
            entries: list[list[Any]] = [
                [e.content, e.seq, e.source_seq, *([e.stands_for] if e.stands_for else [])]
                for e in context
            ]
            if receipt is not None:
                left = (ROOT, *chain_hashes([str(content) for content, *_ in entries]))[-1]
                named: JsonObject = {"of": head, "left": left, "outputs": output_ids}
                body = externalise(receipt, self.sessions.blobs.put)
                records.append(Record({"kind": "receipt", "ts": now_seconds} | named, body))
            if context:
                named = {"of": head, "listed": listed, "entries": entries}
                made = [entry.raw for entry in context if entry.seq == NO_SEQ]
                body = externalise(made, self.sessions.blobs.put)
                records.append(Record({"kind": "context", "ts": now_seconds} | named, body))
            if records:
                self.sessions.write(state, session_id, None, records)

    def _in_own_words(self, state: S, context: Sequence[ContextEntry]) -> list[ContextEntry]:
        """`context`, without the number of a message that is no longer what the session holds.

        What is in its own words stands as it is `kept`, and is known by that when it comes again.
        """
        entries: list[ContextEntry] = []
        for entry in context:
            record = state.messages.get(entry.seq) if entry.seq != NO_SEQ else None
            if entry.seq != NO_SEQ and record is None:
                raise NotFoundError(
                    f"The context names message {entry.seq}, which the session does not hold. "
                    "Append the messages before the context is committed; where the session was "
                    "deleted meanwhile, call again."
                )
            if record is None or entry.content != record.content:
                raw = self.kept(entry.raw)
                entry = entry if raw is entry.raw else replace(entry, raw=raw, known_hash="")
            if record is not None and entry.content != record.content:
                entry = replace(entry, seq=NO_SEQ, source_seq=entry.seq, stands_for="")
            entries.append(entry)
        return entries

    def context(
        self, session_id: str, after: int, limit: int | None
    ) -> tuple[str, list[JsonObject]]:
        """See `Archive.context`."""
        state = self.existing(session_id)
        format = state.format
        places = [*part_of(state.current_places(), after, limit)]
        made = self._own_words(state, {content for content, seq in places if seq == NO_SEQ})
        originals = iter(self.raws(state, [seq for _, seq in places if seq != NO_SEQ]))
        return format, [made[name] if seq == NO_SEQ else next(originals) for name, seq in places]

    def context_name(self, session_id: str) -> str:
        """See `Archive.context_name`."""
        state = self.existing(session_id)
        contents = [content for content, _ in state.current_places()]
        return (ROOT, *chain_hashes(contents))[-1]

    def _own_words(self, state: S, contents: Collection[str]) -> dict[str, JsonObject]:
        """By content hash, what compactions wrote: mostly the newest one.

        Raises:
            ArchiveDamagedError: A part of it cannot be read.
        """
        found: dict[str, JsonObject] = {}
        newest = [] if state.newest_context is None else [state.newest_context]
        for stored in (*newest, *state.contexts.values()):
            if found.keys() >= {*contents}:
                break
            ours = [name for name, seq, *_ in state.entries_of(stored) if seq == NO_SEQ]
            if not found.keys() >= {*contents}.intersection(ours):
                bodies = self.body(state, state.context_records[stored.number])
                found = dict(zip(ours, bodies, strict=True)) | found
        if not found.keys() >= {*contents}:
            self.raws(state, [NO_SEQ])
        return found

    def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """See `Archive.damaged_messages`."""
        state = self.existing(session_id)
        if len(state.messages) == state.next_seq:
            return []
        within = range(max(0, start), min(stop + 1, state.next_seq))
        return [seq for seq in within if seq not in state.messages]

    def read_messages(
        self, session_id: str, start: int, stop: int, head: str | None
    ) -> list[ArchivedMessage]:
        """See `Archive.read_messages`. A damaged message is left out; `health` names it.

        Raises:
            NotFoundError: There is no such session, or no such history in it.
            ArchiveDamagedError: What a history builds upon cannot be read.
        """
        if not 0 <= start <= stop:
            raise QueryError(
                f"The message range {start} to {stop} cannot be read. "
                "Give a start from 0 and a stop that is not smaller."
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
        """See `Archive.history`."""
        state = self.existing(session_id)
        seqs = tuple(state.history(head))
        name = state.tree.find(head) or head
        receipts = state.receipts_of([*state.tree.names(name)])
        outputs = (o for number in receipts for o in state.receipts[number].head["outputs"])
        return History(name[:HEAD_CHARS], seqs, frozenset(outputs))

    def branches(self, session_id: str, limit: int) -> tuple[list[History], int]:
        """See `Archive.branches`."""
        state = self.existing(session_id)
        names = state.tree.branches()
        found: list[History] = []
        for name in names:
            if len(found) == limit:
                break
            try:
                found.append(self.history(session_id, name))
            except ArchiveDamagedError:
                continue  # the doctor names what is damaged; what can be read is listed
        return found, len(names)

    def receipts(
        self, session_id: str, heads: Collection[str] | None, after: int, limit: int | None
    ) -> list[StoredReceipt]:
        """See `Archive.receipts`."""
        state = self.existing(session_id)
        numbers = sorted(state.receipts) if heads is None else state.receipts_of(heads)
        records = [state.receipts[number] for number in part_of(numbers, after, limit)]
        pairs = zip(records, self.sessions.bodies(state, records), strict=True)
        return [StoredReceipt(float(record.head["ts"]), body) for record, body in pairs]

    def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """See `Archive.compacted_lists`."""
        state = self.existing(session_id)
        numbers = sorted(state.receipts)
        if not -len(numbers) <= number < len(numbers):
            raise NotFoundError(
                f"Session {session_id} has {len(numbers)} receipts, and none at {number}. They "
                "count from 0, or back from -1."
            )
        number = numbers[number]
        made: dict[int, dict[str, ContextEntry]] = {}
        before: list[ContextEntry] = []
        for name, node in state.tree.walk(state.receipts[number].head.get("of", ROOT)):
            if isinstance(node, MessageNode):
                before.append(ContextEntry(node.seq, {}))
                continue
            if node.number not in made:
                made[node.number] = dict(
                    self._entries_of(state, state.context_records[node.number])
                )
            before.append(made[node.number][name])
        # Both are written by one call, the context last.
        left = state.context_records.get(number + 1)
        after = None if left is None else tuple(entry for _, entry in self._entries_of(state, left))
        return CompactedLists(tuple(reversed(before)), after)

    def _entries_of(self, state: S, record: LoggedRecord) -> list[tuple[str, ContextEntry]]:
        """The entries of a stored context, each with the name of the history that ends there."""
        made = iter(self.body(state, record))
        entries = record.head["entries"]
        names = chain_hashes([str(content) for content, *_ in entries])
        return [
            (
                name,
                ContextEntry(seq, next(made) if seq == NO_SEQ else {}, source_seq, *stands_for),
            )
            for name, (_, seq, source_seq, *stands_for) in zip(names, entries, strict=True)
        ]

    def session_info(self, session_id: str) -> SessionInfo:
        """See `Archive.session_info`."""
        state = self.existing(session_id)
        return SessionInfo(
            session_id=session_id,
            parent_session_id=state.parent_session_id,
            format=state.format,
            message_count=len(state.messages),
            first_seconds=state.first_seconds,
            last_seconds=state.last_seconds,
            title=self._title(state),
        )

    def output(self, session_id: str, output_id: str) -> StoredOutput | None:
        """An output of a session; None where it is not there."""
        state = self.sessions.state(session_id)
        record = state.outputs.get(output_id)
        if record is None:
            return None
        return StoredOutput(
            info_of(record.head, session_id), self.body(state, record), self.sessions.blobs
        )

    def outputs(self, session_id: str, limit: int | None) -> list[OutputInfo]:
        """See `Archive.outputs`."""
        state = self.existing(session_id)
        records = sorted(state.outputs.values(), key=lambda record: -record.head["n"])
        return [info_of(record.head, session_id) for record in records[:limit]]

    def retain(self, session_id: str, *, retained: bool) -> None:
        """See `Archive.retain`."""
        self.existing(session_id)
        with self.sessions.writing(session_id) as state:
            self.sessions.secure(state)
            if state.is_retained != retained:
                # With the time of the last message: that does not make a session newer.
                then = state.last_seconds
                record = Record({"kind": "pin", "ts": then, "pinned": retained})
                self.sessions.write(state, session_id, None, [record])

    def _title(self, state: S) -> str:
        given = [item for item in state.outputs.items() if item[1].head["tool"] == TITLE_TOOL]
        if given:
            last_id, _ = max(given, key=lambda item: item[1].head["n"])
            output = self.output(state.session_id, last_id)
            return title_of(decode_text(output.read_whole()) or "") if output else ""
        # In their order without sorting them all: a session may have a hundred thousand.
        for seq in range(state.next_seq):
            node = state.messages.get(seq)
            if node is not None and node.role == "user":
                (raw,) = self.raws(state, [seq])
                if title := title_of(message_text(raw, node.format)):
                    return title
        return ""

    def raws(self, state: S, seqs: Sequence[int]) -> list[JsonObject]:
        """Return the messages with these numbers. Raise `ArchiveDamagedError` if one is missing."""
        nodes: list[MessageNode] = []
        for seq in seqs:
            node = state.messages.get(seq)
            if node is None:
                raise ArchiveDamagedError(
                    f"Message {seq} of session {state.session_id} is damaged. "
                    "Hand over the whole message list again, which stores it anew."
                )
            nodes.append(node)
        return self.sessions.bodies(state, nodes)

    def body(self, state: S, record: LoggedRecord) -> Any:
        """Return the body of one record."""
        (body,) = self.sessions.bodies(state, [record])
        return body

    def records(self, session_id: str, after: int, limit: int) -> list[CopiedRecord]:
        """See `Archive.records`."""
        state = self.sessions.state(check_session_id(session_id))
        chosen: list[LoggedRecord] = []
        size_bytes = 0
        for record in self.sessions.all_records(state)[after:][:limit]:
            if size_bytes > 16 * 1024 * 1024:
                break
            size_bytes += record.head.get("bytes", 0)
            chosen.append(record)
        copied: list[CopiedRecord] = []
        for record, body in zip(chosen, self.sessions.bodies(state, chosen), strict=True):
            head = {name: value for name, value in record.head.items() if name not in {"n", "last"}}
            if head["kind"] == "output":
                body = StoredOutput(info_of(head, ""), body, self.sessions.blobs).read_whole()
            copied.append(CopiedRecord(head, body))
        return copied

    def add_records(
        self,
        session_id: str,
        records: Sequence[CopiedRecord],
        after: int,
        parent_session_id: str | None,
    ) -> None:
        """See `Archive.add_records`."""
        check_session_id(session_id)
        sessions, blobs = self.sessions, self.sessions.blobs
        with sessions.writing(session_id, opens=bool(records) and not after) as state:
            sessions.secure(state)
            held = len(sessions.all_records(state))
            if held != after:
                raise SettingsError(
                    f"Session {session_id!r} holds {held} records there, and not {after}: somebody "
                    "else writes to it. Run it again when nobody does."
                )
            new = [
                Record(
                    record.head,
                    ascii_json(encode_content(record.content, blobs))
                    if record.head["kind"] == "output"
                    else externalise(record.content, blobs.put),
                )
                for record in records
            ]
            if new:
                sessions.write(state, session_id, parent_session_id, new)


def _is_stored(state: TranscriptState, head: JsonObject) -> bool:
    """Whether the session holds the output of a record already."""
    known = state.outputs.get(head["id"])
    if known is None:
        return False
    if known.head["sha256"] != head["sha256"]:
        raise ArchiveDamagedError(
            f"Output {head['id']} of session {state.session_id} already stands for other content. "
            "Restore the archive from a backup."
        )
    return True
