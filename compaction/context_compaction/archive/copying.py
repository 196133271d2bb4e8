"""Copying the sessions of one archive into another, whatever stores them.

Records are copied in their order, and those that the target holds already are passed over: so a
copy that was broken off goes on where it stopped, and one that is run again takes over what is new.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from context_compaction.archive import Archive, CopiedRecord, SessionInfo
from context_compaction.archive.frames import Blobs
from context_compaction.archive.outputs import StoredOutput, encode_content, info_of
from context_compaction.archive.records import LoggedRecord, Record, ascii_json, externalise
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.errors import ArchiveError, SettingsError
from context_compaction.messages.model import JsonObject
from context_compaction.request import check_session_id

_RECORDS = 1_000  # a call
_SESSIONS = 100  # a page of the list

Report = Callable[[SessionInfo, int], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """The counts of a copy.

    Attributes:
        session_count: The sessions of the source.
        record_count: Their records, each found to be the same in the target.
        new_count: Those that the target did not hold before.
    """

    session_count: int
    record_count: int
    new_count: int


async def copy_archive(
    source: Archive, target: Archive, *, report: Report = lambda _session, _records: None
) -> Copied:
    """Copy every session of `source`, oldest first, and compare each record afterwards.

    Args:
        source: It is only read.
        target: It may hold other sessions, and beginnings of these.
        report: Called with each copied session and the number of its records.

    Raises:
        ArchiveError: An archive failed, or the target holds another session of the same name.
    """
    sessions = [session async for session in _sessions_of(source)]
    records = new = 0
    for session in reversed(sessions):
        held = await _compared(source, target, session)
        after = held
        while part := await source.records(session.session_id, after=after, limit=_RECORDS):
            await target.add_records(
                session.session_id,
                part,
                after=after,
                parent_session_id=session.parent_session_id,
            )
            after += len(part)
        count = await _compared(source, target, session, after=held)
        if count != after:
            raise ArchiveError(
                f"Session {session.session_id!r} grew while it was copied: {count} records of "
                f"{after} were found. Run it again when nobody writes to it."
            )
        records += count
        new += count - held
        report(session, count)
    return Copied(len(sessions), records, new)


async def _sessions_of(archive: Archive) -> AsyncGenerator[SessionInfo]:
    cursor: str | None = None
    while True:
        page, cursor = await archive.sessions(limit=_SESSIONS, cursor=cursor)
        for session in page:
            yield session
        if cursor is None:
            return


async def _compared(source: Archive, target: Archive, session: SessionInfo, after: int = 0) -> int:
    """How many records of a session the target holds, each the same as in the source."""
    name = session.session_id
    while there := await target.records(name, after=after, limit=_RECORDS):
        here = await source.records(name, after=after, limit=len(there))
        # Either side may give fewer, where they are large.
        count = min(len(there), len(here))
        if there[:count] != here[:count] or not here:
            raise ArchiveError(
                f"The target holds another session {name!r}: they differ after {after} records. "
                "Nothing was written over it. Delete the one that is not wanted there."
            )
        after += count
    return after


def read_records(
    store: TranscriptStore[Any], session_id: str, *, after: int, limit: int
) -> list[CopiedRecord]:
    """See `Archive.records`."""
    state = store.sessions.state(check_session_id(session_id))
    chosen: list[LoggedRecord] = []
    size_bytes = 0
    for record in store.sessions.all_records(state)[after:][:limit]:
        if size_bytes > 16 * 1024 * 1024:
            break
        size_bytes += record.head.get("bytes", 0)
        chosen.append(record)
    bodies = store.sessions.bodies(state, chosen)
    return [
        CopiedRecord(
            {name: value for name, value in record.head.items() if name not in {"n", "last"}},
            _content(record.head, body, store.blobs),
        )
        for record, body in zip(chosen, bodies, strict=True)
    ]


def add_records(
    store: TranscriptStore[Any],
    session_id: str,
    records: Sequence[CopiedRecord],
    *,
    after: int,
    parent_session_id: str | None = None,
) -> None:
    """See `Archive.add_records`."""
    check_session_id(session_id)
    sessions = store.sessions
    with sessions.writing(session_id, opens=bool(records) and not after) as state:
        sessions.secure(state)
        held = len(sessions.all_records(state))
        if held != after:
            raise SettingsError(
                f"Session {session_id!r} holds {held} records there, and not {after}: somebody "
                "else writes to it. Run it again when nobody does."
            )
        new = [Record(record.head, _body(record, store.blobs)) for record in records]
        if new:
            sessions.write(state, session_id, parent_session_id, new)


def _content(head: JsonObject, body: Any, blobs: Blobs) -> Any:
    if head["kind"] != "output":
        return body
    return StoredOutput(info_of(head, ""), body, blobs).read_whole()


def _body(record: CopiedRecord, blobs: Blobs) -> str:
    if record.head["kind"] == "output":
        return ascii_json(encode_content(record.content, blobs))
    return externalise(record.content, blobs.put)
