"""Counts of messages, kept in the log so that a process that has just begun counts nothing anew.

A record has, for messages of one format as one counter counts them, by fingerprint (`json_key` of
the host's object) the content hash and the count. Both follow from the message alone, so that it
does not matter where in its session a message stands, nor who wrote the record. One that cannot be
read is passed over: what it held is computed as if it had never been, and kept anew.
"""

import marshal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from context_compaction.archive.records import LoggedRecord, Record, ascii_json
from context_compaction.archive.session_state import TranscriptState
from context_compaction.errors import ArchiveDamagedError
from context_compaction.find_secrets import rules_version
from context_compaction.messages.model import is_list

ReadBody: TypeAlias = Callable[[LoggedRecord], Any]
# From a fingerprint to what was counted, None where that is not known.
CountOf: TypeAlias = Callable[[bytes], Any]


def counter_name(counted_by: str, *, redacts: bool) -> str:
    """The name under which counts are kept: where secrets are taken out, another one.

    Under that are counts only of messages in which these very rules found nothing: they count as
    they came, and need not be looked through again.
    """
    return f"{counted_by}/{rules_version()}" if counted_by and redacts else counted_by


def counts_in(state: TranscriptState, counted_by: str, format: str, body: ReadBody) -> CountOf:
    """The counts by one counter that a session holds; what was written since is read first."""
    by = counted_by, format
    left: list[LoggedRecord] = []
    for record in state.unread_counts:
        if (record.head.get("by"), record.head.get("format")) == by:
            _learn(state, by, record, body)
        else:
            left.append(record)
    state.unread_counts = left
    counts = state.counts.get(by, {})

    def count_of(key: bytes) -> Any:
        packed = counts.get(key)
        return None if packed is None else marshal.loads(packed)  # noqa: S302 - made by `_packed`

    return count_of


def _packed(count: Any) -> bytes:
    """`count` as it stays in memory: a tenth of its lists. Equal ones have equal bytes."""
    return marshal.dumps(count, 0)


def counts_record(
    state: TranscriptState,
    counted_by: str,
    format: str,
    counts: Mapping[bytes, Any],
    seconds: float,
) -> Record | None:
    """The record for those of `counts` that the session does not hold; None where it holds all."""
    held = state.counts.get((counted_by, format), {})
    new = [
        [key.hex(), state.contents[key], count]
        for key, count in counts.items()
        if (key not in held or held[key] != _packed(count)) and key in state.contents
    ]
    if not new:
        return None
    head = {"kind": "counts", "ts": seconds, "by": counted_by, "format": format}
    return Record(head, ascii_json(new))


def counts_written(
    state: TranscriptState, counted_by: str, format: str, counts: Mapping[bytes, Any]
) -> None:
    """Know the counts of the record that was written last, without reading it."""
    state.unread_counts.pop()
    known = state.counts.setdefault((counted_by, format), {})
    known.update((key, _packed(count)) for key, count in counts.items())


def _learn(
    state: TranscriptState, by: tuple[str, str], record: LoggedRecord, body: ReadBody
) -> None:
    counts = state.counts.setdefault(by, {})
    try:
        entries = body(record)
    except ArchiveDamagedError:
        return
    for entry in entries if is_list(entries) else ():
        with suppress(TypeError, ValueError):  # written by something else: count anew
            key, content, count = entry
            state.contents[bytes.fromhex(key)] = content
            counts[bytes.fromhex(key)] = _packed(count)
