"""Append a list: find its place in its session and write the records of new messages."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import isfinite
from operator import itemgetter
from typing import Any

from context_compaction import errors
from context_compaction.archive.documents import (
    role_of,
    text_size_chars,
    title_of,
    tools_of,
)
from context_compaction.archive.histories import Placed
from context_compaction.archive.records import Record, externalise
from context_compaction.archive.transcript_state import TranscriptState
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.archive.values import NO_SEQ, AppendResult, ContextEntry, MatchedContext
from context_compaction.formats import FORMATS
from context_compaction.messages.cache import json_key
from context_compaction.messages.history_hash import ROOT, chain_hashes, content_hash
from context_compaction.messages.model import JsonObject, Message, leading_system_count
from context_compaction.messages.private import hide_private
from context_compaction.messages.speakers import user_text
from context_compaction.redaction import redact_source

_ELEMENT = re.compile(r"<([a-z][\w-]{0,40})>.*?</\1>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A message as the archive stores it.

    Attributes:
        source: The host's object without private text, and without secrets if these are redacted.
        content: Content hash of `source`.
        key: `json_key` of the host's object; empty if `source` differs from that object.
    """

    source: Any
    content: str
    key: bytes


@dataclass(frozen=True, slots=True)
class PlacedList:
    """Position of a message list in a session before anything is written.

    Attributes:
        stored: The messages as they are stored.
        placed: Which messages are new.
        result: Reply to a call that writes the new messages.
    """

    stored: Sequence[_Stored]
    placed: Placed
    result: AppendResult

    def is_refused(self, least_shared: int) -> bool:
        """Whether the list is a branch that shares fewer than `least_shared` messages."""
        return self.placed.forks_at is not None and self.placed.forks_at < least_shared


def append(
    store: TranscriptStore[Any],
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
            store.check_id(name)
    if format not in FORMATS:
        raise errors.SettingsError(f"Unknown format {format!r}. Use one of: {', '.join(FORMATS)}.")
    given, sessions = _GivenList(store, messages, format, after), store.sessions
    state = sessions.state(session_id)
    number = state.next_number
    found = given.place(state)
    if dry_run or found.is_refused(least_shared):
        return found.result
    if after == ROOT:
        state.forget_other_contents([stored.key for stored in found.stored])
    if None not in found.placed.seqs and not found.placed.repeats:
        sessions.secure(state)  # the reply promises that the messages survive power loss
        return found.result
    with sessions.writing(session_id, opens=after == ROOT) as current:
        if current is not state or current.next_number != number:
            state, found = current, given.place(current)  # another process has written
            if found.is_refused(least_shared):
                return found.result
        # Earlier records must be durable before records that refer to them.
        sessions.secure(state)
        records = given.new_records(found, time.time())
        if records:
            sessions.write(state, session_id, parent_session_id, records)
    return replace(found.result, parent_session_id=state.parent_session_id)


@dataclass(frozen=True, slots=True)
class _GivenList:
    """The list of one call of `append`, which describes the attributes."""

    _store: TranscriptStore[Any]
    _messages: Sequence[Message]
    _format: str
    _after: str

    def place(self, state: TranscriptState) -> PlacedList:
        """Find where the list belongs in the current session.

        Raises:
            NotFoundError: The session does not have the branch that the list follows.
        """
        after = self._after
        if not state.tree.holds(after):
            raise errors.NotFoundError(
                f"The session has no branch {after!r}. Pass the whole message list instead."
            )
        # Hashes are those of the stored messages, so that a list that was read back is known.
        stored = [self._stored(index, state.contents) for index in range(len(self._messages))]
        contents = [item.content for item in stored]
        if after == ROOT:
            state.contents.update((item.key, item.content) for item in stored if item.key)
        chain = chain_hashes(contents, after)
        if after == ROOT:
            placed = state.tree.place(contents, chain, leading_system_count(self._messages))
        else:
            placed = state.tree.place_after(contents, chain, after)
        new_seqs = count(state.next_seq)
        seqs = [next(new_seqs) if seq is None else seq for seq in placed.seqs]
        matched = self._matched_context(state, contents, chain, seqs)
        heads = (*chain, *((*matched.heads, matched.name) if matched else ()))
        own_receipts = {*(state.receipts_of(heads) if state.receipts else ())}
        result = AppendResult(
            seqs=tuple(seqs),
            written=placed.seqs.count(None),
            head=chain[-1] if chain else after,
            heads=tuple(chain),
            forks_at=placed.forks_at,
            matched_context=matched,
            receipts=tuple(number in own_receipts for number in sorted(state.receipts)),
            parent_session_id=state.parent_session_id,
        )
        return PlacedList(stored, placed, result)

    def _stored(self, index: int, contents: Mapping[bytes, str]) -> _Stored:
        """Return the message at `index` as it is stored."""
        message = self._messages[index]
        source = message.source
        key, content = _hash_source(index, source, contents, message.key)
        if key in contents:  # it was stored unchanged before
            return _Stored(source, content, key)
        stored = hide_private(source)
        stored = redact_source(index, stored) if self._store.redacts else stored
        if stored is source or stored == source:
            return _Stored(source, content, key)
        return _Stored(stored, _hash_source(index, stored, contents)[1], b"")

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

        def same_words(seq: int, index: int) -> bool:
            try:
                raw = self._store.raws(state, [seq])[0]
                stored = FORMATS[self._format].parse_message(raw, 0)
            except (errors.ArchiveDamagedError, errors.InvalidMessageError):
                return False
            return _typed_words(stored) == _typed_words(messages[index])

        match = state.contexts.match(contents, chain, lambda: [*map(role_of, messages)], same_words)
        if match is None or not contents:
            return None
        sources = [message.source for message in messages]
        given = dict(zip(zip(seqs, contents, strict=True), sources, strict=True))
        entries = [
            ContextEntry(seq, source or {})
            for seq, source in zip(seqs, sources[: match.lead], strict=False)
        ]
        try:
            for entry in self._store.entries_of_match(state, match):
                if entry.seq != NO_SEQ:
                    raw = given.get((entry.seq, entry.content))
                    raw = self._store.raws(state, [entry.seq])[0] if raw is None else raw
                    entry = ContextEntry(entry.seq, raw, entry.source_seq)
                entries.append(entry)
        except errors.ArchiveDamagedError:
            return None  # the list itself is complete, and is compacted again
        return MatchedContext(match.message_count, tuple(entries), match.heads, match.stored.end)

    def new_records(self, found: PlacedList, now_seconds: float) -> list[Record]:
        """Return the records of the new messages and runs in the order of the list."""
        messages, chain = self._messages, found.result.heads
        parents = (self._after, *chain)
        new = [index for index, seq in enumerate(found.placed.seqs) if seq is None]
        first = min(new, default=len(messages))
        tools = tools_of(messages, first)
        written = {
            index: Record(
                {
                    "kind": "message",
                    "ts": _timestamp(messages[index], now_seconds),
                    "at": now_seconds,
                    "seq": found.result.seqs[index],
                    "hash": found.stored[index].content,
                    "parent": parents[index],
                    "format": self._format,
                    "role": role_of(messages[index]),
                    "tools": self._store.stored_form(tools[index - first]),
                    "chars": text_size_chars(messages[index]),
                    **({"copy": True} if index < found.placed.copies_stop else {}),
                    **self._title_from(messages[index], found.stored[index]),
                },
                partial(externalise, found.stored[index].source, self._store.sessions.blobs.put),
            )
            for index in new
        }
        repeated = {
            repeat.start: Record({
                "kind": "run",
                "ts": now_seconds,
                "head": chain[repeat.stop - 1],
                "parent": parents[repeat.start],
                "source": repeat.source,
                "count": repeat.stop - repeat.start,
            })
            for repeat in found.placed.repeats
        }
        return [record for _, record in sorted((written | repeated).items(), key=itemgetter(0))]

    def _title_from(self, message: Message, stored: _Stored) -> JsonObject:
        """Return the title that a message of the user gives its session, as a part of a head."""
        if not stored.key:  # it lacks private text or secrets
            message = FORMATS[self._format].parse_message(stored.source, 0)
        title = title_of(user_text(message))
        return {"title": title} if title else {}


def _hash_source(
    index: int, source: JsonObject | None, contents: Mapping[bytes, str], key: bytes = b""
) -> tuple[bytes, str]:
    """Return `json_key` and content hash of a message.

    Args:
        index: Index of the message, for errors.
        source: The host's object.
        contents: Known content hashes by `json_key`.
        key: `json_key` of the message, if it is known.

    Raises:
        SettingsError: The message has no source.
        InvalidMessageError: The message cannot be written as JSON.
    """
    if source is None:
        raise errors.SettingsError(
            f"Message {index} has no source, so there is no object of the host to archive. "
            "Append messages as they were parsed, before any layer runs."
        )
    try:
        key = key or json_key(source)
        return key, contents.get(key) or content_hash(source, key)
    except (TypeError, ValueError) as error:
        problem = f"it cannot be written as JSON ({error})"
        raise errors.InvalidMessageError(index, problem, "Pass plain JSON values only.") from error
    except RecursionError:
        problem = "it nests too deeply to be written as JSON"
        raise errors.InvalidMessageError(index, problem, "Pass flatter JSON.") from None


def _typed_words(message: Message) -> str:
    """Return the words that the user typed in a message, without elements of a host."""
    text = user_text(message)
    is_short = len(text) <= 20_000  # of a longer text the search could take long
    return (_ELEMENT.sub("", text) if is_short else text).strip()


def _timestamp(message: Message, now_seconds: float) -> float:
    """Return the time of a message: its own, unless that is more than a day in the future."""
    seconds = message.timestamp_seconds
    is_plausible = seconds is not None and isfinite(seconds) and seconds < now_seconds + 86_400.0
    return seconds if seconds is not None and is_plausible else now_seconds
