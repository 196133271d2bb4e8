"""Transcripts: what a session holds, what of a list is new, and how it is written and read.

Everything blocks and runs in one thread at a time, which the opener of an archive ensures.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from context_compaction.archive import (
    NO_SEQ,
    AppendResult,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    History,
    OutputInfo,
    SessionInfo,
    StandingContext,
    StoredReceipt,
    part_of,
)
from context_compaction.archive.counts import (
    CountOf,
    counter_name,
    counts_in,
    counts_record,
    counts_written,
)
from context_compaction.archive.documents import message_text, title_of
from context_compaction.archive.frames import Blobs
from context_compaction.archive.histories import MessageNode, is_message
from context_compaction.archive.outputs import (
    StoredOutput,
    describe_blob,
    encode_content,
    figures_of,
    info_of,
)
from context_compaction.archive.placement import (
    PlacedList,
    entry_of,
    hash_source,
    in_own_words,
    is_stored,
    new_records,
    result_of,
    shares_too_little,
)
from context_compaction.archive.records import (
    LoggedRecord,
    Record,
    ascii_json,
    externalise,
)
from context_compaction.archive.session_state import TranscriptState
from context_compaction.errors import (
    ArchiveDamagedError,
    NotFoundError,
    QueryError,
    SettingsError,
)
from context_compaction.formats import FORMATS
from context_compaction.messages.cache import json_key
from context_compaction.messages.edits import Blob
from context_compaction.messages.history_hash import HEAD_CHARS, ROOT, chain_hashes, content_hash
from context_compaction.messages.model import JsonObject, Message, lead_of
from context_compaction.redaction import check_no_secret, redact_blob, redact_json, redact_source
from context_compaction.request import check_session_id

_NONE = None, None
S = TypeVar("S", bound=TranscriptState)


class Sessions(Protocol[S]):
    """Where sessions are written, and what is known of each; whatever stores them."""

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

    def secure(self, state: S, head: str | None = None) -> None:
        """Make durable what is known of the history `head`, or without it of the session."""
        ...

    def bodies(self, state: S, records: Sequence[LoggedRecord | MessageNode]) -> list[Any]:
        """The bodies of records; raises `ArchiveDamagedError`."""
        ...

    def all_records(self, state: S) -> list[LoggedRecord]:
        """All records of a session but those that only name it, in their order."""
        ...


class TranscriptStore(Generic[S]):
    """All transcripts of one archive."""

    def __init__(self, sessions: Sessions[S], blobs: Blobs, redacts: bool) -> None:
        """`redacts` removes secrets from whatever is written from now on."""
        self._redacts = redacts
        self.blobs = blobs
        self.sessions = sessions

    def _existing(self, session_id: str) -> S:
        """What is kept now of a session that must be there.

        Raises:
            SettingsError: The id cannot name a session.
            NotFoundError: The archive holds no such session.
        """
        state = self.sessions.state(check_session_id(session_id))
        if not state.exists:
            raise NotFoundError.of_session(session_id)
        return state

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        format: str,
        parent_session_id: str | None = None,
        after: str = "",
        dry_run: bool = False,
        least_shared: int = 0,
        counted_by: str = "",
        counts: Sequence[Any] = (),
    ) -> AppendResult:
        """See `Archive.append`.

        Raises:
            SettingsError: An id or the format cannot be used, or a message has no source.
            InvalidMessageError: A message cannot be written as JSON.
            NotFoundError: The session does not hold the history that `after` names.
            ArchiveFullError: The archive's disk is full; nothing of the call was kept.
            ArchiveBusyError: Others held the session for too long.
        """
        self._check_id(session_id)
        if parent_session_id is not None:
            self._check_id(parent_session_id)
        if format not in FORMATS:
            raise SettingsError(f"Unknown format {format!r}. Give one of: {', '.join(FORMATS)}.")
        counted_by = counter_name(counted_by, redacts=self._redacts)
        place = partial(self._placed, messages=messages, after=after, format=format, by=counted_by)
        state = self.sessions.state(session_id)
        found = place(state)
        if dry_run or shares_too_little(found.result, least_shared):
            return found.result
        standing = found.result.standing
        names = standing.fingerprints if standing else ()
        state.keep_fingerprints((*found.keys, *names), after)
        if found.is_known:
            self._sync_before(state, found, after)
            return found.result
        with self.sessions.writing(session_id, opens=after == ROOT) as current:
            if current is not state or current.next_number != found.next_number:
                state, found = current, place(current)  # others wrote meanwhile
                if shares_too_little(found.result, least_shared):
                    return found.result
            self._sync_before(state, found, after)
            put, kept = self.blobs.put, self._kept
            records = new_records(found, messages, after, format, time.time(), put, kept)
            if records:
                counted_now = zip(found.keys, counts, strict=False)  # it may have none
                made = {key: value for key, value in counted_now if value is not None and key}
                seconds = records[-1].head["ts"]
                record = counts_record(state, counted_by, format, made, seconds)
                records += [] if record is None else [record]
                self.sessions.write(state, session_id, parent_session_id, records)
                if record is not None:
                    counts_written(state, counted_by, format, made)
        self.sessions.secure(state, found.result.head)
        parent = state.parent_session_id
        return replace(found.result, revision=state.revision, parent_session_id=parent)

    def _placed(
        self, state: S, *, messages: Sequence[Message], after: str, format: str, by: str
    ) -> PlacedList:
        """Where a list belongs in a session as it is now; `by` whom its messages were counted.

        Raises:
            NotFoundError: The session does not hold the history `after`.
        """
        if not state.tree.holds(after):
            raise NotFoundError(
                f"The session holds no history {after!r}. Hand over the whole message list."
            )
        counted = self._counts(state, by, format)
        # What is recognised is what is kept: a list read back and handed in again is the same one.
        kept = [
            self._hashed(at, message, state.contents, counted)
            for at, message in enumerate(messages)
        ]
        sources, keys = [source for source, _, _ in kept], [key for _, _, key in kept]
        hashes = [hashed for _, hashed, _ in kept]
        contents = [content for _, content in hashes]
        state.contents.update(hashes if by else ())
        chain = chain_hashes(contents, after)
        if after == ROOT:
            placed = state.tree.place(contents, chain, lead_of(messages))
        else:
            placed = state.tree.place_after(contents, chain, after)
        numbers = count(state.next_seq)  # of what is new
        seqs = [next(numbers) if seq is None else seq for seq in placed.seqs]
        standing = self._standing(state, messages, keys, contents, chain, seqs, by, counted)
        names = keys if by else ()
        result = result_of(state, placed, chain, after, seqs, standing, counted, names)
        return PlacedList(state.next_number, sources, keys, contents, chain, placed, result)

    def _counts(self, state: S, counted_by: str, format: str) -> CountOf:
        if not counted_by:
            return lambda _: None
        return counts_in(state, counted_by, format, lambda record: self._body(state, record))

    def keep_counts(
        self, session_id: str, *, format: str, counted_by: str, counts: Mapping[bytes, Any]
    ) -> None:
        """See `Archive.keep_counts`; raises what `append` raises of a session that is there."""
        self._existing(session_id)
        counted_by = counter_name(counted_by, redacts=self._redacts)
        with self.sessions.writing(session_id) as state:
            self._counts(state, counted_by, format)
            # With the time of the last message: counts do not make a session newer.
            record = counts_record(state, counted_by, format, counts, state.last_seconds)
            if record is not None:
                self.sessions.write(state, session_id, None, [record])
                counts_written(state, counted_by, format, counts)

    def _standing(
        self,
        state: S,
        messages: Sequence[Message],
        keys: Sequence[bytes],
        contents: Sequence[str],
        heads: Sequence[str],
        seqs: Sequence[int],
        counted_by: str,
        counted: CountOf,
    ) -> StandingContext | None:
        """What a compaction left of the beginning of a list, with the host's own objects."""
        lead = lead_of(messages)
        found = state.standing(contents, heads) or state.standing_behind(contents, heads, lead)
        if found is None or not contents:
            return None
        places = zip(seqs, contents, strict=True)
        given = zip((message.source for message in messages), keys, strict=True)
        here = dict(zip(places, given, strict=True))
        names: list[bytes] = []
        try:
            record = state.context_records[found.stored.number]
            made = iter(self._body(state, record))
            entries = [
                ContextEntry(seq, message.source or {})
                for seq, message in zip(seqs, messages[: found.lead], strict=False)
            ]
            names += keys[: found.lead] if counted_by else ()
            for content, seq, source_seq, *_ in record.head["entries"][found.stored_lead :]:
                raw, key = (next(made), None) if seq == NO_SEQ else here.get((seq, content), _NONE)
                raw = self._raws(state, [seq])[0] if raw is None else raw
                entries.append(ContextEntry(seq, raw, source_seq))
                if counted_by:
                    names.append(json_key(raw) if key is None else key)
                    if names[-1]:
                        state.contents[names[-1]] = content_hash(raw, names[-1])
        except ArchiveDamagedError:
            return None  # the list itself is at hand, and is compacted anew
        counts = tuple(map(counted, names))
        return StandingContext(
            found.message_count, tuple(entries), found.heads, tuple(names), counts
        )

    def _hashed(
        self, index: int, message: Message, known: Mapping[bytes, str], counted: CountOf
    ) -> tuple[Any, tuple[bytes, str], bytes]:
        """What is kept of a message, its hashes, and its fingerprint where that is all of it."""
        source = message.source
        hashed = hash_source(index, source, known, message.key)
        # What was counted is known to have no secrets.
        is_clean = not self._redacts or counted(hashed[0]) is not None
        kept = source if is_clean else redact_source(index, source)
        if is_clean or kept == source:
            return source, hashed, hashed[0]
        return kept, hash_source(index, kept, known), b""

    def _kept(self, raw: Any) -> Any:
        """`raw` as the log holds it."""
        return redact_json(raw) if self._redacts else raw

    def _check_id(self, session_id: str) -> None:
        check_session_id(session_id)
        if self._redacts:
            check_no_secret(session_id)

    def _sync_before(self, state: S, found: PlacedList, after: str) -> None:
        """Make durable what a list builds upon: nothing may reach the device before that."""
        if found.placed.repeats or found.result.standing is not None:
            self.sessions.secure(state)
            return
        seqs, chain = found.placed.seqs, found.chain
        known = seqs.index(None) if None in seqs else len(chain)
        self.sessions.secure(state, chain[known - 1] if known else after)

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
        """See `Archive.commit`. Large outputs are durable before the record that names them.

        Raises:
            SettingsError: The session's id, or an output's id, cannot be used.
            NotFoundError: The context names a message that the session does not hold.
            ArchiveFullError: The archive's disk is full; nothing of the call was kept.
            ArchiveBusyError: Others held the session for too long.
            ArchiveDamagedError: An output's id already stands for other content.
        """
        self._check_id(session_id)
        now_seconds = time.time()
        outputs = {blob.output_id: describe_blob(blob) for blob in blobs}
        if self._redacts:
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
                if output is not None and not is_stored(state, output):
                    body = ascii_json(encode_content(blob.data, self.blobs))
                    held_by = state.messages.get(NO_SEQ if blob.seq is None else blob.seq)
                    seconds = now_seconds if held_by is None else held_by.seconds
                    records.append(Record({"kind": "output", "ts": seconds} | output, body))
            context = in_own_words(state, context, self._kept)
            entries = [entry_of(entry) for entry in context]
            if receipt is not None:
                left = (ROOT, *chain_hashes([str(content) for content, *_ in entries]))[-1]
                named: JsonObject = {"of": head, "left": left, "outputs": output_ids}
                body = externalise(receipt, self.blobs.put)
                records.append(Record({"kind": "receipt", "ts": now_seconds} | named, body))
            if context:
                named = {"of": head, "listed": listed, "entries": entries}
                made = [entry.raw for entry in context if entry.seq == NO_SEQ]
                body = externalise(made, self.blobs.put)
                records.append(Record({"kind": "context", "ts": now_seconds} | named, body))
            if records:
                self.sessions.write(state, session_id, None, records)

    def context(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[str, list[JsonObject]]:
        """See `Archive.context`."""
        state = self._existing(session_id)
        format = state.format
        places = [*part_of(state.current_places(), after, limit)]
        made = self._own_words(state, {content for content, seq in places if seq == NO_SEQ})
        originals = iter(self._raws(state, [seq for _, seq in places if seq != NO_SEQ]))
        return format, [made[name] if seq == NO_SEQ else next(originals) for name, seq in places]

    def context_name(self, session_id: str) -> str:
        """See `Archive.context_name`."""
        state = self._existing(session_id)
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
                bodies = self._body(state, state.context_records[stored.number])
                found = dict(zip(ours, bodies, strict=True)) | found
        if not found.keys() >= {*contents}:
            self._raws(state, [NO_SEQ])
        return found

    def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """See `Archive.damaged_messages`."""
        state = self._existing(session_id)
        if len(state.messages) == state.next_seq:
            return []
        within = range(max(0, start), min(stop + 1, state.next_seq))
        return [seq for seq in within if seq not in state.messages]

    def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
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
        state = self._existing(session_id)
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
        state = self._existing(session_id)
        seqs = tuple(state.history(head))
        name = state.tree.find(head) or head
        receipts = state.receipts_of([*state.tree.names(name)])
        outputs = (o for number in receipts for o in state.receipts[number].head["outputs"])
        return History(name[:HEAD_CHARS], seqs, frozenset(outputs))

    def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """See `Archive.branches`."""
        state = self._existing(session_id)
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
        self,
        session_id: str,
        *,
        heads: Collection[str] | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """See `Archive.receipts`."""
        state = self._existing(session_id)
        numbers = sorted(state.receipts) if heads is None else state.receipts_of(heads)
        records = [state.receipts[number] for number in part_of(numbers, after, limit)]
        return self.sessions.bodies(state, records)

    def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """See `Archive.stored_receipts`."""
        state = self._existing(session_id)
        records = [state.receipts[number] for number in sorted(state.receipts)]
        pairs = zip(records, self.sessions.bodies(state, records), strict=True)
        return [StoredReceipt(float(record.head["ts"]), body) for record, body in pairs]

    def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """See `Archive.compacted_lists`."""
        state = self._existing(session_id)
        numbers = sorted(state.receipts)
        if not -len(numbers) <= number < len(numbers):
            raise NotFoundError(
                f"Session {session_id} has {len(numbers)} receipts, and none at {number}. They "
                "count from 0, or back from -1."
            )
        number = numbers[number]
        made: dict[int, dict[str, ContextEntry]] = {}
        before: list[ContextEntry] = []
        for name, node in state.walk(state.receipts[number].head.get("of", ROOT)):
            if is_message(node):
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
        made = iter(self._body(state, record))
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
        state = self._existing(session_id)
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
        return StoredOutput(info_of(record.head, session_id), self._body(state, record), self.blobs)

    def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """See `Archive.outputs`."""
        state = self._existing(session_id)
        records = sorted(state.outputs.values(), key=lambda record: -record.head["n"])
        return [info_of(record.head, session_id) for record in records[:limit]]

    def retain(self, session_id: str, *, retained: bool = True) -> None:
        """See `Archive.retain`."""
        self._existing(session_id)
        with self.sessions.writing(session_id) as state:
            self.sessions.secure(state)
            if state.is_retained != retained:
                # With the time of the last message: that does not make a session newer.
                then = state.last_seconds
                record = Record({"kind": "pin", "ts": then, "pinned": retained})
                self.sessions.write(state, session_id, None, [record])

    def _title(self, state: S) -> str:
        # In their order without sorting them all: a session may have a hundred thousand.
        for seq in range(state.next_seq):
            node = state.messages.get(seq)
            if node is not None and node.role == "user":
                (raw,) = self._raws(state, [seq])
                if title := title_of(message_text(raw, node.format)):
                    return title
        return ""

    def _raws(self, state: S, seqs: Sequence[int]) -> list[JsonObject]:
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

    def _body(self, state: S, record: LoggedRecord) -> Any:
        (body,) = self.sessions.bodies(state, [record])
        return body
