"""Write to sessions: message lists, and what compactions leave.

All functions block. The archive ensures that only one thread at a time works on a session.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count, islice
from math import isfinite
from operator import itemgetter
from typing import Any, TypeAlias

from context_compaction import errors
from context_compaction.archive import records
from context_compaction.archive.contexts import ComparedList
from context_compaction.archive.documents import session_fields_of
from context_compaction.archive.histories import Placed
from context_compaction.archive.transcript_state import TranscriptState
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.archive.values import NO_SEQ, AppendResult, ContextEntry, MatchedContext
from context_compaction.formats import FORMATS
from context_compaction.messages.cache import RecentCache, json_key
from context_compaction.messages.model import Blob, JsonObject, Message, leading_system_count
from context_compaction.messages.raw import ROOT, chain_hashes, content_hash, hide_private
from context_compaction.messages.speakers import user_text
from context_compaction.redaction import check_no_secret, redact_blob, redact_json, redact_source
from context_compaction.request import check_session_id

_Store: TypeAlias = TranscriptStore[Any]
# Content hashes of messages that are stored unchanged, and "" for others; by `json_key` and whether
# secrets are removed. A list is passed again at every turn, and searching it for secrets is slow.
_unchanged: RecentCache[str] = RecentCache()


def append(
    store: _Store,
    session_id: str,
    messages: Sequence[Message],
    *,
    format: str,
    parent_session_id: str | None = None,
    after: str = ROOT,
    dry_run: bool = False,
    least_shared: int = 0,
) -> AppendResult:
    """Store the new messages of a list; they survive power loss when this returns.

    The list is compared with the session by a chain of hashes. Its longest start that the
    transcript or a context of `commit` contains is not stored again. A later part is not stored
    again if another branch contains it, because the host keeps only the newest messages or
    rewrote an earlier one. All other messages are stored; an edited list becomes a branch.
    Each message is stored as its `source`, the host's object.

    Args:
        store: The transcripts of a tenant.
        session_id: ID of the session.
        messages: The messages.
        format: Format of the messages.
        parent_session_id: The session that started this one, if any.
        after: `head` of an earlier result. The messages follow that branch, and the messages
            of the branch are not passed again.
        dry_run: Whether to write nothing and only report the numbers that messages would get.
        least_shared: Write nothing if the list is a new branch that shares fewer messages.

    Raises:
        SettingsError: An ID or the format is invalid, or a message has no source.
        InvalidMessageError: A message cannot be written as JSON.
        NotFoundError: The session does not have the branch `after`.
        ArchiveFullError: The archive's disk is full; nothing of the call was stored.
        ArchiveBusyError: Other processes used the session for too long.
    """
    for name in (session_id, parent_session_id):
        if name is not None:
            _check_id(store, name)
    if format not in FORMATS:
        raise errors.SettingsError(f"Unknown format {format!r}. Use one of: {', '.join(FORMATS)}.")
    given = _GivenList(store, messages, format, after)
    state = store.state(session_id)
    number = state.next_number
    result = given.place(state)
    if dry_run or _is_stray(result, least_shared):
        return result
    if not (result.written or given.placed.repeats):
        store.secure(state)  # the reply promises that the messages survive power loss
        return result
    with store.writing(session_id) as current:
        if current is not state or current.next_number != number:
            result = given.place(current)  # another process has written
            if _is_stray(result, least_shared):
                return result
        new = given.new_records(result, time.time())
        if new:
            store.write(current, session_id, parent_session_id, new)
    return replace(result, parent_session_id=current.parent_session_id)


def _is_stray(result: AppendResult, least_shared: int) -> bool:
    """Whether a list is a new branch that shares fewer than `least_shared` messages.

    A list that is recognized in spite of its changes is none.
    """
    is_known = result.forks_at is None or result.matched_context is not None
    return not is_known and (result.forks_at or 0) < least_shared


@dataclass(slots=True)
class _GivenList:
    """The list of one call of `append`, which describes the first attributes.

    Attributes:
        sources: The host's objects without private text, and without secrets if these are
            redacted; set by `place`.
        contents: The content hashes of `sources`; set by `place`.
        placed: Which messages are new; set by `place`.
    """

    _store: _Store
    _messages: Sequence[Message]
    _format: str
    _after: str
    sources: Sequence[Any] = ()
    contents: Sequence[str] = ()
    placed: Placed = field(default_factory=lambda: Placed(()))

    def place(self, state: TranscriptState) -> AppendResult:
        """Find where the list belongs in the current session.

        Returns:
            Reply to a call that writes the new messages.

        Raises:
            NotFoundError: The session does not have the branch that the list follows.
        """
        after = self._after
        if not state.tree.holds(after):
            raise errors.NotFoundError(
                f"The session has no branch {after!r}. Pass the whole message list instead."
            )
        # Hashes are those of the stored messages, so that a list that was read back is known.
        stored = [*map(self._stored, count(), self._messages)]
        self.sources = [source for source, _ in stored]
        self.contents = contents = [content for _, content in stored]
        chain = chain_hashes(contents, after)
        if after == ROOT:
            self.placed = state.tree.place(contents, chain, leading_system_count(self._messages))
        else:
            self.placed = state.tree.place_after(contents, chain, after)
        new_seqs = count(state.next_seq)
        seqs = [next(new_seqs) if seq is None else seq for seq in self.placed.seqs]
        matched = (
            self._matched_context(state, contents, chain, seqs) if state.contexts.all else None
        )
        heads = (*chain, *((*matched.heads, matched.name) if matched else ()))
        own_receipts = {*(state.receipts_of(heads) if state.receipts else ())}
        return AppendResult(
            seqs=tuple(seqs),
            written=self.placed.seqs.count(None),
            head=chain[-1] if chain else after,
            heads=tuple(chain),
            forks_at=self.placed.forks_at,
            matched_context=matched,
            receipts=tuple(number in own_receipts for number in sorted(state.receipts)),
            parent_session_id=state.parent_session_id,
        )

    def _stored(self, index: int, message: Message) -> tuple[Any, str]:
        """Return the message at `index` as it is stored, and its content hash.

        Raises:
            SettingsError: The message has no source.
            InvalidMessageError: The message cannot be written as JSON.
        """
        source = message.source
        if source is None:
            raise errors.SettingsError(
                f"Message {index} has no source, so there is no object of the host to archive. "
                "Append messages as they were parsed, before any layer runs."
            )

        def unchanged() -> str:
            form = self._form_of(source, index)
            return content_hash(source, key) if form is source or form == source else ""

        try:
            key = message.key or json_key(source)
            content = _unchanged.get_or_compute((key, self._store.redacts), unchanged)
            if content:
                return source, content
            form = self._form_of(source, index)
            return form, content_hash(form)
        except (TypeError, ValueError) as error:
            problem = f"it cannot be written as JSON ({error})"
            fix = "Pass plain JSON values only."
            raise errors.InvalidMessageError(index, problem, fix) from error
        except RecursionError:
            problem = "it nests too deeply to be written as JSON"
            raise errors.InvalidMessageError(index, problem, "Pass flatter JSON.") from None

    def _form_of(self, source: JsonObject, index: int) -> Any:
        """Return a host's object without private text, and redacted if needed."""
        public = hide_private(source)
        return redact_source(index, public) if self._store.redacts else public

    def _matched_context(
        self,
        state: TranscriptState,
        contents: Sequence[str],
        chain: Sequence[str],
        seqs: Sequence[int],
    ) -> MatchedContext | None:
        """Return the stored context that replaces the start of the list, or None.

        An entry that is a message of the list has the host's own object.
        """
        messages = self._messages

        given = ComparedList(
            contents,
            chain,
            lambda index: messages[index],
            cache(partial(self._store.parsed, state)),
        )
        match = state.contexts.match(given)
        if match is None:
            return None
        sources = [message.source for message in messages]
        raws = dict(zip(zip(seqs, contents, strict=True), sources, strict=True))
        entries = [
            ContextEntry(seq, source or {})
            for seq, source in zip(seqs, sources[: match.lead], strict=False)
        ]
        try:
            for entry in self._store.entries_of_match(state, match):
                if entry.seq != NO_SEQ:
                    raw = raws.get((entry.seq, entry.content))
                    raw = self._store.raws(state, [entry.seq])[0] if raw is None else raw
                    entry = ContextEntry(entry.seq, raw, entry.source_seq)
                entries.append(entry)
        except errors.ArchiveDamagedError:
            return None  # the list itself is complete, and is compacted again
        return MatchedContext(match.message_count, tuple(entries), match.heads, match.stored.end)

    def new_records(self, result: AppendResult, now_seconds: float) -> list[records.Record]:
        """Return the records of the new messages and runs in the order of the list."""
        messages, chain, put = self._messages, result.heads, self._store.blobs.put
        parents = (self._after, *chain)
        new = [index for index, seq in enumerate(self.placed.seqs) if seq is None]
        first = min(new, default=len(messages))
        tools = records.tools_of(messages, first)
        # The title of a session is the first one, so the others of this call are not needed.
        titles = ((index, title) for index in new if (title := self._title_from(index)))
        titled = dict(islice(titles, 1))
        written = {
            index: records.Record(
                {
                    "kind": "message",
                    "ts": _timestamp(messages[index], now_seconds),
                    "at": now_seconds,
                    "seq": result.seqs[index],
                    "hash": self.contents[index],
                    "parent": parents[index],
                    "format": self._format,
                    "role": records.role_of(messages[index]),
                    # A tuple if empty, because the garbage collector then skips the whole head.
                    "tools": _stored_form(self._store, tools[index - first]) or (),
                    "chars": records.text_size_chars(messages[index]),
                    **({"copy": True} if index < self.placed.copies_stop else {}),
                    **({"title": titled[index]} if index in titled else {}),
                },
                partial(records.externalise, self.sources[index], put),
            )
            for index in new
        }
        repeated = {
            repeat.start: records.Record({
                "kind": "run",
                "ts": now_seconds,
                "head": chain[repeat.stop - 1],
                "parent": parents[repeat.start],
                "source": repeat.source,
                "count": repeat.stop - repeat.start,
            })
            for repeat in self.placed.repeats
        }
        return [record for _, record in sorted((written | repeated).items(), key=itemgetter(0))]

    def _title_from(self, index: int) -> str:
        """Return the title that a message of the user gives its session; "" if it gives none."""
        message, source = self._messages[index], self.sources[index]
        if source is not message.source:
            message = FORMATS[self._format].parse_message(source, 0)
        return records.title_of(user_text(message))


def _stored_form(store: _Store, raw: Any) -> Any:
    """Return `raw` as it is stored: without private text, and redacted if needed."""
    raw = hide_private(raw)
    return redact_json(raw) if store.redacts else raw


def _check_id(store: _Store, session_id: str) -> None:
    """Raise `SettingsError` if a session ID is invalid or contains a secret."""
    check_session_id(session_id)
    if store.redacts:
        check_no_secret(session_id)


def _timestamp(message: Message, now_seconds: float) -> float:
    """Return the time of a message: its own, unless that is more than a day in the future."""
    seconds = message.timestamp_seconds
    is_plausible = seconds is not None and isfinite(seconds) and seconds < now_seconds + 86_400.0
    return seconds if seconds is not None and is_plausible else now_seconds


def commit(
    store: _Store,
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
        store: The transcripts of a tenant.
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
    _check_id(store, session_id)
    if not (blobs or receipt is not None or context):
        return
    outputs = {blob.output_id: records.describe_blob(blob) for blob in blobs}
    if store.redacts:
        blobs = [redact_blob(blob) for blob in blobs]
        outputs, receipt = redact_json(outputs), redact_json(receipt)
        outputs = {
            blob.output_id: outputs[blob.output_id] | records.figures_of(blob) for blob in blobs
        }
    now = {"ts": time.time()}
    store_blob = store.blobs.put
    with store.writing(session_id) as state:
        new: list[records.Record] = []
        for blob in reversed({blob.output_id: blob for blob in reversed(blobs)}.values()):
            output = outputs[blob.output_id]
            if not _is_stored(state, output):
                message = state.messages.get(NO_SEQ if blob.seq is None else blob.seq)
                at = now if message is None else {"ts": message.seconds}
                output = output | session_fields_of(output["tool"], blob.data)
                body = records.ascii_json(records.encode_content(blob.data, store_blob))
                new.append(records.Record({"kind": "output"} | at | output, body))
        context = [_edited_as_such(store, state, entry) for entry in context]
        entries: list[list[Any]] = [
            [e.content, e.seq, e.source_seq, *([e.replaced_head] if e.replaced_head else [])]
            for e in context
        ]
        if receipt is not None:
            left = (ROOT, *chain_hashes([entry.content for entry in context]))[-1]
            named: JsonObject = {"of": head, "left": left, "outputs": [*outputs]}
            if receipt.get("status") == "compacted":
                named["saved"] = receipt["tokens"]["before"] - receipt["tokens"]["after"]
            body = records.externalise(receipt, store_blob)
            new.append(records.Record({"kind": "receipt"} | now | named, body))
        if context:
            named = {"of": head, "listed": listed, "entries": entries}
            made = [entry.raw for entry in context if entry.seq == NO_SEQ]
            body = records.externalise(made, store_blob)
            new.append(records.Record({"kind": "context"} | now | named, body))
        if new:
            store.write(state, session_id, None, new)


def _is_stored(state: TranscriptState, head: JsonObject) -> bool:
    """Whether the session already has the output of a record."""
    known = state.outputs.get(head["id"])
    if known is not None and known.head["sha256"] != head["sha256"]:
        raise errors.ArchiveDamagedError(
            f"Output {head['id']} of session {state.session_id} already has different content. "
            "Restore the archive from a backup."
        )
    return known is not None


def _edited_as_such(store: _Store, state: TranscriptState, entry: ContextEntry) -> ContextEntry:
    """Return an entry with its text, unless it is the archived message itself.

    Such text is stored as `_stored_form` returns it, and is recognized by that when it is passed
    again.
    """
    message = state.messages.get(entry.seq)
    if entry.seq != NO_SEQ and message is None:
        raise errors.NotFoundError(
            f"The context refers to message {entry.seq}, which the session does not have. "
            "Append the messages before you commit the context. If the session was deleted "
            "meanwhile, call again."
        )
    if message is not None and entry.content == message.content:
        return entry
    raw = _stored_form(store, entry.raw)
    stored = entry if raw is entry.raw else replace(entry, raw=raw, known_hash="")
    if message is not None and stored.content == message.content:
        return stored
    if message is not None:
        stored = replace(stored, seq=NO_SEQ, source_seq=entry.seq, replaced_head="")
    return stored


def retain(store: _Store, session_id: str, *, retained: bool = True) -> None:
    """Protect a session and its descendants from pruning, or end the protection."""
    store.existing(session_id)
    with store.writing(session_id) as state:
        if state.is_retained != retained:
            # With the time of the last message, so that this does not make the session newer.
            head = {"kind": "pin", "ts": state.last_seconds, "pinned": retained}
            store.write(state, session_id, None, [records.Record(head)])
