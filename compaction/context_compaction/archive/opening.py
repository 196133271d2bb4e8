"""Open an archive by its location (a local folder or a database), and copy archives.

A copy transfers records in order and skips records that the target already has. An interrupted copy
therefore continues where it stopped, and a repeated copy transfers only new records.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from context_compaction.archive.archive import Archive
from context_compaction.archive.values import SessionInfo, shown_address
from context_compaction.errors import ArchiveError, SettingsError
from context_compaction.redaction import RedactionMode

Report = Callable[[SessionInfo, int], None]


def open_archive(
    location: Path | str, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> AbstractAsyncContextManager[Archive]:
    """Open the archive at `location`, and create it if it is missing; for use with `async with`.

    Args:
        location: A folder, which several processes on one machine can open at the same time, or
            `postgresql://…` with the extra `postgres`: see docs/how-to/postgresql.md.
        index_root: For a local archive, the folder for search indexes; it must be on a local disk.
            Default: the user's cache folder.
        redaction: Treatment of secrets. "off" does not search for them, "warn" stores them and
            lists them in the reports of compactions, "on" removes them from everything written.

    Raises:
        SettingsError: The location is not a supported kind of archive.
        ArchiveError: The archive cannot be opened.
    """
    if not isinstance(location, str) or "://" not in location:
        from context_compaction.archive.local.archive import open_archive as open_local

        return open_local(Path(location), index_root=index_root, redaction=redaction)
    if location.partition(":")[0] not in {"postgresql", "postgres"}:
        raise SettingsError(
            f"Unknown kind of archive: {shown_address(location)}. Use a folder or a postgresql:// "
            "address."
        )
    try:
        from context_compaction.archive.postgres.archive import open_archive as open_postgres
    except ModuleNotFoundError as error:
        raise SettingsError.of_postgres(error) from error
    return open_postgres(location, redaction=redaction)


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a copy.

    Attributes:
        session_count: Number of sessions in the source.
        record_count: Number of records in these sessions, all verified to be equal in the target.
        new_count: Number of records that were missing in the target before the copy.
    """

    session_count: int
    record_count: int
    new_count: int


async def copy_archive(
    source: Archive, target: Archive, *, report: Report = lambda _session, _records: None
) -> Copied:
    """Copy every session of `source`, oldest first, and compare each record afterwards.

    Args:
        source: The archive to copy; it is only read.
        target: The archive to copy to. It may contain other sessions, and earlier copies.
        report: Called with each copied session and the number of its records.

    Raises:
        ArchiveError: An archive failed, or the target has a different session with the same ID.
    """
    sessions, cursor = await source.sessions()
    while cursor is not None:
        page, cursor = await source.sessions(cursor=cursor)
        sessions += page
    records = new = 0
    for session in reversed(sessions):
        count, new_count = await _copy(source, target, session)
        if await _copy(source, target, session) != (count, 0):
            raise ArchiveError(
                f"The session {session.session_id!r} changed during the copy. Copy again when no "
                "program writes to the session."
            )
        records += count
        new += new_count
        report(session, count)
    return Copied(len(sessions), records, new)


async def _copy(source: Archive, target: Archive, session: SessionInfo) -> tuple[int, int]:
    """Copy a session; return the number of its records, and how many were new in the target.

    Raises:
        ArchiveError: A record of the target differs from the source.
    """
    name, count, new_count = session.session_id, 0, 0
    while part := await source.records(name, after=count):
        new_count += await target.add_records(
            name, part, after=count, parent_session_id=session.parent_session_id
        )
        count += len(part)
    return count, new_count
