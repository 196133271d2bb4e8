"""Append a list: find its place in its session and write the records of new messages."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import isfinite
from operator import itemgetter
from typing import Any

from context_compaction.archive import NO_SEQ, AppendResult, ContextEntry, MatchedContext
from context_compaction.archive.documents import role_of, tools_of
from context_compaction.archive.histories import Placed
from context_compaction.archive.records import Record, externalise
from context_compaction.archive.transcript_state import TranscriptState
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.errors import (
    ArchiveDamagedError,
    InvalidMessageError,
    NotFoundError,
    SettingsError,
)
from context_compaction.formats import FORMATS
from context_compaction.messages.cache import json_key
from context_compaction.messages.history_hash import ROOT, chain_hashes, content_hash
from context_compaction.messages.model import JsonObject, Message, leading_system_count
from context_compaction.messages.private import hide_private
from context_compaction.redaction import redact_source


@dataclass(frozen=True, slots=True)
class PlacedList:
    """Where a list belongs in a session, before anything of it is written.

    Attributes:
        next_number: Number of the session's next record then.
        sources: What is kept of each message.
        keys: The fingerprint of each message, where that is all of it.
        contents: The content hashes.
        chain: The chain hashes.
        placed: The numbers.
        result: The answer to a call that writes what is new.
    """

    next_number: int
    sources: Sequence[Any]
    keys: Sequence[bytes]
    contents: Sequence[str]
    chain: Sequence[str]
    placed: Placed
    result: AppendResult

    @property
    def is_known(self) -> bool:
        """Whether there is nothing to write."""
        return None not in self.placed.seqs and not self.placed.repeats


class ListAppend:
    """One call of `Archive.append`; see there for the arguments."""

    def __init__(
        self,
        store: TranscriptStore[Any],
        session_id: str,
        messages: Sequence[Message],
        format: str,
        after: str,
    ) -> None:
        store.check_id(session_id)
        if format not in FORMATS:
            raise SettingsError(f"Unknown format {format!r}. Give one of: {', '.join(FORMATS)}.")
        self._store = store
        self._session_id = session_id
        self._messages = messages
        self._format = format
        self._after = after

    def run(
        self, parent_session_id: str | None, *, dry_run: bool, least_shared: int
    ) -> AppendResult:
        """Write what is new, and return the answer to the call."""
        if parent_session_id is not None:
            self._store.check_id(parent_session_id)
        sessions = self._store.sessions
        state = sessions.state(self._session_id)
        found = self._place(state)
        if dry_run or _shares_too_little(found.result, least_shared):
            return found.result
        if self._after == ROOT:
            state.forget_other_contents(found.keys)
        if found.is_known:
            sessions.secure(state)  # what is acknowledged survives power loss
            return found.result
        with sessions.writing(self._session_id, opens=self._after == ROOT) as current:
            if current is not state or current.next_number != found.next_number:
                state, found = current, self._place(current)  # others wrote meanwhile
                if _shares_too_little(found.result, least_shared):
                    return found.result
            # Nothing may reach the device before what it builds upon.
            sessions.secure(state)
            records = self._new_records(found, time.time())
            if records:
                sessions.write(state, self._session_id, parent_session_id, records)
        parent = state.parent_session_id
        return replace(found.result, revision=state.revision, parent_session_id=parent)

    def _place(self, state: TranscriptState) -> PlacedList:
        """Where the list belongs in a session as it is now.

        Raises:
            NotFoundError: The session does not hold the history that it follows.
        """
        after = self._after
        if not state.tree.holds(after):
            raise NotFoundError(
                f"The session holds no history {after!r}. Hand over the whole message list."
            )
        # What is recognised is what is kept: a list read back and handed in again is the same one.
        kept = [self._hashed(at, state.contents) for at in range(len(self._messages))]
        sources, keys = [source for source, _, _ in kept], [key for _, _, key in kept]
        contents = [content for _, content, _ in kept]
        if after == ROOT:
            state.contents.update((key, content) for _, content, key in kept if key)
        chain = chain_hashes(contents, after)
        if after == ROOT:
            placed = state.tree.place(contents, chain, leading_system_count(self._messages))
        else:
            placed = state.tree.place_after(contents, chain, after)
        numbers = count(state.next_seq)  # of what is new
        seqs = [next(numbers) if seq is None else seq for seq in placed.seqs]
        standing = self._standing(state, contents, chain, seqs)
        heads = (*chain, *((*standing.heads, standing.name) if standing else ()))
        own = {*(state.receipts_of(heads) if state.receipts else ())}
        result = AppendResult(
            seqs=tuple(seqs),
            written=placed.seqs.count(None),
            head=chain[-1] if chain else after,
            heads=tuple(chain),
            forks_at=placed.forks_at,
            matched_context=standing,
            receipts=tuple(number in own for number in sorted(state.receipts)),
            parent_session_id=state.parent_session_id,
            is_compacted_before=state.is_compacted_before(after),
            revision=state.revision,
            revision_before=state.revision,
        )
        return PlacedList(state.next_number, sources, keys, contents, chain, placed, result)

    def _hashed(self, at: int, known: Mapping[bytes, str]) -> tuple[Any, str, bytes]:
        """What is kept of a message, its content hash, and its fingerprint if all of it is kept."""
        message = self._messages[at]
        source = message.source
        key, content = _hash_source(at, source, known, message.key)
        if key in known:  # all of it was kept before
            return source, content, key
        kept = hide_private(source)
        kept = redact_source(at, kept) if self._store.redacts else kept
        if kept is source or kept == source:
            return source, content, key
        return kept, _hash_source(at, kept, known)[1], b""

    def _standing(
        self,
        state: TranscriptState,
        contents: Sequence[str],
        heads: Sequence[str],
        seqs: Sequence[int],
    ) -> MatchedContext | None:
        """What a compaction left of the beginning of the list, with the host's own objects."""
        messages = self._messages
        found = state.standing(contents, heads)
        if found is None and state.contexts:
            roles = [role_of(message) for message in messages]
            found = state.standing_beside_changes(contents, heads, roles)
        if found is None or not contents:
            return None
        places = zip(seqs, contents, strict=True)
        here = dict(zip(places, (message.source for message in messages), strict=True))
        try:
            record = state.context_records[found.stored.number]
            made = iter(self._store.body(state, record))
            entries = [
                ContextEntry(seq, message.source or {})
                for seq, message in zip(seqs, messages[: found.lead], strict=False)
            ]
            for content, seq, source_seq, *_ in record.head["entries"][
                found.stored_lead : found.entry_count
            ]:
                raw = next(made) if seq == NO_SEQ else here.get((seq, content))
                raw = self._store.raws(state, [seq])[0] if raw is None else raw
                entries.append(ContextEntry(seq, raw, source_seq))
        except ArchiveDamagedError:
            return None  # the list itself is at hand, and is compacted anew
        return MatchedContext(found.message_count, tuple(entries), found.heads, found.stored.end)

    def _new_records(self, found: PlacedList, now_seconds: float) -> list[Record]:
        """The records of what is new of the list, in their order."""
        messages, chain = self._messages, found.chain
        new = [at for at, seq in enumerate(found.placed.seqs) if seq is None]
        first = min(new, default=len(messages))
        tools = tools_of(messages, first)
        written = {
            at: Record(
                {
                    "kind": "message",
                    "ts": _timestamp(messages[at], now_seconds),
                    "at": now_seconds,
                    "seq": found.result.seqs[at],
                    "hash": found.contents[at],
                    "parent": chain[at - 1] if at else self._after,
                    "format": self._format,
                    "role": role_of(messages[at]),
                    "tools": self._store.kept(tools[at - first]),
                },
                partial(externalise, found.sources[at], self._store.sessions.blobs.put),
            )
            for at in new
        }
        repeated = {
            repeat.start: Record({
                "kind": "run",
                "ts": now_seconds,
                "head": chain[repeat.stop - 1],
                "parent": chain[repeat.start - 1] if repeat.start else self._after,
                "source": repeat.source,
                "count": repeat.stop - repeat.start,
            })
            for repeat in found.placed.repeats
        }
        return [record for _, record in sorted((written | repeated).items(), key=itemgetter(0))]


def _shares_too_little(result: AppendResult, least_shared: int) -> bool:
    """Whether a list is a branch that shares fewer than `least_shared` messages with a history."""
    return result.forks_at is not None and result.forks_at < least_shared


def _hash_source(
    at: int, source: JsonObject | None, known: Mapping[bytes, str], key: bytes = b""
) -> tuple[bytes, str]:
    """The fingerprint of the message at `at`, and its content hash.

    `known` has content hashes by fingerprint, and `key` is the fingerprint if the caller has it.

    Raises:
        SettingsError: The message has no source.
        InvalidMessageError: It cannot be written as JSON.
    """
    if source is None:
        raise SettingsError(
            f"Message {at} has no source, so there is nothing of the host's to archive. "
            "Append messages as they were parsed, before any layer runs."
        )
    try:
        key = key or json_key(source)
        return key, known.get(key) or content_hash(source, key)
    except (TypeError, ValueError) as error:
        problem = f"it cannot be written as JSON ({error})"
        raise InvalidMessageError(at, problem, "Give plain JSON values only.") from error
    except RecursionError:
        problem = "it nests too deeply to be written as JSON"
        raise InvalidMessageError(at, problem, "Give flatter JSON.") from None


def _timestamp(message: Message, now_seconds: float) -> float:
    """The time of a message: its own timestamp, unless that lies more than a day in the future."""
    seconds = message.timestamp_seconds
    is_sane = seconds is not None and isfinite(seconds) and seconds < now_seconds + 86_400.0
    return seconds if seconds is not None and is_sane else now_seconds
