"""The archive that a place names, a folder of this machine or a database; and copying archives.

Records are copied in their order, and those that the target holds already are passed over: so a
copy that was broken off goes on where it stopped, and one that is run again takes over what is new.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from context_compaction.archive import Archive, SessionInfo, shown_address
from context_compaction.errors import ArchiveError, SettingsError
from context_compaction.redaction import RedactionMode

if TYPE_CHECKING:
    from context_compaction.archive.local.archive import LocalArchive

_RECORDS = 1_000  # a call

Report = Callable[[SessionInfo, int], None]


@overload
def open_archive(
    location: Path, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> "AbstractAsyncContextManager[LocalArchive]": ...
@overload
def open_archive(
    location: Path | str, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> AbstractAsyncContextManager[Archive]: ...
def open_archive(
    location: Path | str, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> AbstractAsyncContextManager[Archive]:
    """The archive at `location`, made when it is missing; it is closed with the block.

    Args:
        location: A folder, which several processes of a machine may open at once, or
            `postgresql://…` with the extra `postgres`: see docs/how-to/postgresql.md.
        index_root: For a folder, another one on a local disk for search indexes, by default the
            user's cache folder.
        redaction: How secrets are treated: "off" looks for none, "warn" keeps everything as it is
            and has compactions report them, "on" removes them from whatever is written.

    Raises:
        SettingsError: There is no such kind of archive.
        ArchiveError: It cannot be opened.
    """
    if not isinstance(location, str) or "://" not in location:
        from context_compaction.archive.local.archive import open_archive as open_local

        return open_local(Path(location), index_root=index_root, redaction=redaction)
    if location.partition(":")[0] not in {"postgresql", "postgres"}:
        raise SettingsError(
            f"The archive {shown_address(location)} is an address of no kind that is known. Name a "
            "folder, or postgresql://…"
        )
    try:
        from context_compaction.archive.postgres.archive import open_archive as open_postgres
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"An archive in PostgreSQL needs {error.name}. Install mcp-server-compaction[postgres]."
        ) from error
    return open_postgres(location, redaction=redaction)


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
    sessions, cursor = await source.sessions()
    while cursor is not None:
        page, cursor = await source.sessions(cursor=cursor)
        sessions += page
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
