"""Sizes and health of a local archive, and deletion of sessions with all their bytes.

Writers share the archive's lock, and a deletion holds it exclusively. While a deletion decides that
no session refers to a blob, no writer can therefore be about to add a reference. Reading the
logs for their references takes long, so it is done before the lock is taken. Under the lock
only later records are read.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from context_compaction import system
from context_compaction.archive.local import durable_files, log
from context_compaction.archive.local.sessions import LocalState, refresh
from context_compaction.archive.transcript_state import Description
from context_compaction.archive.values import Health
from context_compaction.errors import NotFoundError
from context_compaction.request import check_session_id

_TRASH_NAME = "trash"


class BlobReferences:
    """The digests of the blobs that each session refers to, by session key."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read_to: dict[Path, int] = {}
        self.by_session: dict[str, set[str]] = {}

    def update(self) -> None:
        """Read everything that was logged since the last call.

        Raises:
            ArchiveError: The log cannot be read.
        """
        for folder in log.session_folders(self._root):
            digests = self.by_session.setdefault(folder.name, set())
            for segment, size in log.segment_sizes(folder).items():
                path = folder / segment
                start = self._read_to.get(path, 0)
                with durable_files.explaining(path, "Reading"):
                    data = durable_files.read_at(path, start, size - start)
                self._read_to[path] = start + data.rfind(b"\n") + 1  # reads a torn line again
                digests.update(digest.decode() for digest in log.BLOB_REFERENCE.findall(data))


def delete_sessions(root: Path, session_ids: Sequence[str]) -> int:
    """Remove sessions and every blob without a reference; return the number of freed bytes.

    A session's folder is moved away in one step, so the session is removed as a whole or not at
    all. Remains of killed processes (blobs, temporary files, moved folders) are removed as well.

    Raises:
        SettingsError: An ID is not a valid session ID.
        NotFoundError: A session does not exist; nothing was removed.
        ArchiveBusyError: Other processes kept writing for too long.
        ArchiveError: A folder or file cannot be read or removed.
    """
    keys = [log.session_key(check_session_id(session_id)) for session_id in session_ids]
    for session_id, key in zip(session_ids, keys, strict=True):
        if not refresh(LocalState(log_folder=log.session_folder(root, key))).exists:
            raise NotFoundError.of_session(session_id)
    references = BlobReferences(root)
    references.update()
    with durable_files.locked(root / log.LOCK_NAME):
        return _delete(root, keys, references)


def finish_deletion(root: Path) -> None:
    """Remove the remains of a killed deletion; do nothing if other processes use the archive.

    Raises:
        ArchiveError: A folder or file cannot be read or removed.
    """
    # A user who may only read leaves it to the next user who may write.
    if not (root / _TRASH_NAME).exists() or not os.access(root, os.W_OK):
        return
    lock = durable_files.try_lock(root / log.LOCK_NAME)
    if lock is None:
        return
    try:
        _delete(root, (), BlobReferences(root))
    finally:
        system.unlock_file(lock)


def _delete(root: Path, keys: Sequence[str], references: BlobReferences) -> int:
    """See `delete_sessions`; the caller holds the archive's lock."""
    trash = root / _TRASH_NAME
    freed = 0
    with durable_files.explaining(root, "Deleting in"):
        references.update()
        system.delete_folder(trash)  # from a killed deletion
        durable_files.make_folder(trash)
        for key in keys:
            folder = log.session_folder(root, key)
            freed += sum(log.segment_sizes(folder).values())
            system.delete_folder(root / "hooks" / key)  # notes of the hosts' hooks on the session
            with suppress(FileNotFoundError):
                system.replace_file(folder, trash / key)
                system.sync_folder(folder.parent)
                log.notify_searchers(folder)
            references.by_session.pop(key, None)
        system.sync_folder(trash)
        referenced = set[str]().union(*references.by_session.values())
        for path in (root / "blobs").glob("??/*"):  # also temporary files
            if path.suffix != ".zst" or path.stem not in referenced:
                freed += path.stat().st_size
                system.delete_file(path)
        system.delete_folder(trash)
    return freed


def blob_bytes(root: Path) -> dict[str, int]:
    """Return the size of each blob file in bytes, by digest."""
    with durable_files.explaining(root, "Measuring"):
        return {path.stem: path.stat().st_size for path in (root / "blobs").glob("??/*.zst")}


def examine(root: Path, index_folder: Path) -> Health:
    """See `Archive.health`. Reads the whole log and verifies each line, at about 200 MB/s.

    Raises:
        ArchiveError: A folder or file cannot be read.
    """
    sessions: list[Description] = []
    outputs: set[str] = set()
    problems: list[str] = []
    log_bytes = 0
    for folder in log.session_folders(root):
        sessions.append(Description())
        for segment, size in log.segment_sizes(folder).items():
            log_bytes += size
            part = log.read_segment(folder, segment)
            problems += [
                f"{folder / segment}: line {line} does not match its checksum and is ignored."
                for line in part.damaged_lines
            ]
            if part.end < size:
                problems.append(
                    f"{folder / segment}: the last {size - part.end} bytes are an interrupted "
                    "call. They are ignored; nothing that was acknowledged is lost."
                )
            for record in part.records:
                sessions[-1].learn_head(record.head)
                if record.head["kind"] == "output":
                    outputs.add(record.head["id"])
    # Imported here because only searches and this function need SQLite.
    from context_compaction.archive.local.index_file import index_bytes

    return Health(
        location=str(root),
        session_count=sum(bool(session.session_id) for session in sessions),
        message_count=sum(session.message_count for session in sessions),
        output_count=len(outputs),
        log_bytes=log_bytes,
        blob_bytes=sum(blob_bytes(root).values()),
        index_bytes=index_bytes(index_folder),
        problems=tuple(problems),
    )
