"""Where a list of messages belongs in its session's transcript, and the answer that says so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from operator import itemgetter
from typing import Any

from context_compaction.archive import NO_SEQ, AppendResult, ContextEntry, StandingContext
from context_compaction.archive.documents import role_of, tools_of
from context_compaction.archive.histories import Placed
from context_compaction.archive.records import Record, externalise
from context_compaction.archive.session_state import TranscriptState
from context_compaction.errors import (
    ArchiveDamagedError,
    InvalidMessageError,
    NotFoundError,
    SettingsError,
)
from context_compaction.messages.cache import json_key
from context_compaction.messages.history_hash import content_hash
from context_compaction.messages.model import JsonObject, Message


@dataclass(frozen=True, slots=True)
class PlacedList:
    """Where a list belongs in a session, before anything of it is written.

    Attributes:
        next_number: Number of the session's next record then.
        sources: What is kept of each message ...
        keys: ... its fingerprint, where that is all of it ...
        contents: ... and its content hash.
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


def result_of(
    state: TranscriptState,
    placed: Placed,
    chain: Sequence[str],
    after: str,
    seqs: Sequence[int],
    standing: StandingContext | None,
    count_of: Callable[[bytes], Any],
    fingerprints: Sequence[bytes],
) -> AppendResult:
    """The answer for a list placed as in `placed`, before anything of it is written."""
    heads = (*chain, *(standing.heads if standing else ()))
    own = {*(state.receipts_of(heads) if state.receipts else ())}
    return AppendResult(
        seqs=tuple(seqs),
        written=placed.seqs.count(None),
        head=chain[-1] if chain else after,
        heads=tuple(chain),
        forks_at=placed.forks_at,
        standing=standing,
        receipts=tuple(number in own for number in sorted(state.receipts)),
        parent_session_id=state.parent_session_id,
        is_compacted_before=state.is_compacted_before(after),
        revision=state.revision,
        revision_before=state.revision,
        fingerprints=tuple(fingerprints),
        counts=tuple(map(count_of, fingerprints)),
    )


def shares_too_little(result: AppendResult, least_shared: int) -> bool:
    """Whether a list is a branch that shares fewer than `least_shared` messages with a history."""
    return result.forks_at is not None and result.forks_at < least_shared


def hash_source(
    index: int, source: JsonObject | None, known: Mapping[bytes, str], key: bytes = b""
) -> tuple[bytes, str]:
    """The fingerprint of the message at `index`, and its content hash.

    Args:
        index: For errors.
        source: The host's object.
        known: Content hashes by fingerprint.
        key: Its fingerprint, where the caller has it.

    Raises:
        SettingsError: It has no source.
        InvalidMessageError: It cannot be written as JSON.
    """
    if source is None:
        raise SettingsError(
            f"Message {index} has no source, so there is nothing of the host's to archive. "
            "Append messages as they were parsed, before any layer runs."
        )
    try:
        key = key or json_key(source)
        return key, known.get(key) or content_hash(source, key)
    except (TypeError, ValueError) as error:
        problem = f"it cannot be written as JSON ({error})"
        raise InvalidMessageError(index, problem, "Give plain JSON values only.") from error
    except RecursionError:
        problem = "it nests too deeply to be written as JSON"
        raise InvalidMessageError(index, problem, "Give flatter JSON.") from None


def new_records(
    found: PlacedList,
    messages: Sequence[Message],
    after: str,
    format: str,
    now_seconds: float,
    put: Callable[[bytes], str],
    kept: Callable[[Any], Any],
) -> list[Record]:
    """The records of what is new of a list, in their order.

    `put` keeps their long strings; names of tools are written as `kept`.
    """
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
                "parent": found.chain[at - 1] if at else after,
                "format": format,
                "role": role_of(messages[at]),
                "tools": kept(tools[at - first]),
            },
            partial(externalise, found.sources[at], put),
        )
        for at in new
    }
    repeated = {
        repeat.start: Record({
            "kind": "run",
            "ts": now_seconds,
            "head": found.chain[repeat.stop - 1],
            "parent": found.chain[repeat.start - 1] if repeat.start else after,
            "source": repeat.source,
            "count": repeat.stop - repeat.start,
        })
        for repeat in found.placed.repeats
    }
    return [record for _, record in sorted((written | repeated).items(), key=itemgetter(0))]


def _timestamp(message: Message, now_seconds: float) -> float:
    """The time of a message: its own timestamp, unless that lies more than a day in the future."""
    seconds = message.timestamp_seconds
    is_sane = seconds is not None and isfinite(seconds) and seconds < now_seconds + 86_400.0
    return seconds if seconds is not None and is_sane else now_seconds


def in_own_words(
    state: TranscriptState, context: Sequence[ContextEntry], kept: Callable[[Any], Any]
) -> list[ContextEntry]:
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
            raw = kept(entry.raw)
            entry = entry if raw is entry.raw else replace(entry, raw=raw, known_hash="")
        if record is not None and entry.content != record.content:
            entry = replace(entry, seq=NO_SEQ, source_seq=entry.seq, stands_for="")
        entries.append(entry)
    return entries


def entry_of(entry: ContextEntry) -> list[Any]:
    """An entry of a context record, as records.py describes it."""
    named: list[Any] = [entry.content, entry.seq, entry.source_seq]
    return [*named, entry.stands_for] if entry.stands_for else named


def is_stored(state: TranscriptState, head: JsonObject) -> bool:
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
