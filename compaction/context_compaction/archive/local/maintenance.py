"""What a folder holds, whether it is whole, and how the bytes of deleted sessions are removed.

Writers hold the archive's lock together, a deletion holds it alone. So while a deletion decides
that nothing names a blob any more, nobody can be about to name it. The long part, reading the logs
for the blobs that they name, is done before the lock is taken; under it, only what came since.
"""

import mmap
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from context_compaction.archive import Health
from context_compaction.archive.local.durable_files import (
    explaining,
    locked,
    make_folder,
    sync_folder,
    try_lock,
)
from context_compaction.archive.local.log import (
    LOCK_NAME,
    read_segment,
    segment_sizes,
    session_folder,
    session_folders,
    session_key,
)
from context_compaction.archive.local.sessions import LocalState, refresh
from context_compaction.archive.retention import Stored, StoredSession
from context_compaction.errors import NotFoundError
from context_compaction.request import check_session_id

_TRASH_NAME = "trash"
# As records.py writes them. A quote within a string of the host's is escaped, so only a key of its
# own can look like this; its blob is then kept without need.
_REFERENCE = re.compile(rb'blob":"([0-9a-f]{64})"')


class References:
    """Which blobs each session names, by the hash that is its folder's name."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read_to: dict[Path, int] = {}
        self.by_session: dict[str, set[str]] = {}

    def update(self) -> None:
        """Read what was logged since the last call.

        Raises:
            ArchiveError: The log cannot be read.
        """
        for folder in session_folders(self._root):
            named = self.by_session.setdefault(folder.name, set())
            for segment, size in segment_sizes(folder).items():
                named |= self._read(folder / segment, size)

    def _read(self, path: Path, size: int) -> set[str]:
        start = self._read_to.get(path, 0)
        if size <= start:
            return set()
        with (
            explaining(path, "Reading"),
            path.open("rb") as file,
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data,
        ):
            self._read_to[path] = data.rfind(b"\n") + 1  # a torn line is read again
            return {digest.decode() for digest in _REFERENCE.findall(data, start)}


def measure(root: Path) -> Stored:
    """How much room each session takes. Reads the whole log.

    Raises:
        ArchiveError: A folder or file cannot be read.
    """
    references = References(root)
    references.update()
    blob_bytes = _blob_bytes(root)
    sessions: list[StoredSession] = []
    for key, named in references.by_session.items():
        state = refresh(LocalState(folder=session_folder(root, key)))
        if state.exists:
            sessions.append(
                StoredSession(
                    session_id=state.session_id,
                    parent_session_id=state.parent_session_id,
                    is_retained=state.is_retained,
                    message_count=len(state.messages),
                    last_seconds=state.archived_seconds,
                    log_bytes=sum(segment_sizes(state.folder).values()),
                    blobs=frozenset(named & blob_bytes.keys()),
                )
            )
    return Stored(sessions, blob_bytes)


def delete_sessions(root: Path, session_ids: Sequence[str]) -> int:
    """Remove sessions and every blob that no session names; the bytes freed.

    A session is gone as a whole or not at all: its folder is moved away in one step. What a killed
    process left behind on the way (blobs, parts of files, moved folders) goes too.

    Raises:
        SettingsError: An id cannot name a session.
        NotFoundError: There is no such session; nothing was removed.
        ArchiveBusyError: Others kept writing for too long.
        ArchiveError: A folder or file cannot be read or removed.
    """
    keys = [session_key(check_session_id(session_id)) for session_id in session_ids]
    for session_id, key in zip(session_ids, keys, strict=True):
        if not refresh(LocalState(folder=session_folder(root, key))).exists:
            raise NotFoundError.of_session(session_id)
    references = References(root)
    references.update()
    with locked(root / LOCK_NAME):
        return _delete(root, keys, references)


def finish_deletion(root: Path) -> None:
    """Remove what a deletion that was killed has left; nothing where others are at work.

    Raises:
        ArchiveError: A folder or file cannot be read or removed.
    """
    # Whoever may only read leaves it to the next who may write.
    if not (root / _TRASH_NAME).exists() or not os.access(root, os.W_OK):
        return
    lock = try_lock(root / LOCK_NAME)
    if lock is None:
        return
    try:
        _delete(root, (), References(root))
    finally:
        os.close(lock)


def _delete(root: Path, keys: Sequence[str], references: References) -> int:
    """See `delete_sessions`; the caller holds the archive's lock."""
    trash = root / _TRASH_NAME
    freed = 0
    with explaining(root, "Deleting in"):
        references.update()
        if trash.exists():  # a deletion was killed here
            shutil.rmtree(trash)
        make_folder(trash)
        for key in keys:
            folder = session_folder(root, key)
            freed += sum(segment_sizes(folder).values())
            with suppress(FileNotFoundError):  # what hooks of hosts noted of it
                shutil.rmtree(root / "hooks" / key)
            with suppress(FileNotFoundError):
                folder.rename(trash / key)
                sync_folder(folder.parent)
            references.by_session.pop(key, None)
        sync_folder(trash)
        named = {digest for found in references.by_session.values() for digest in found}
        freed += _remove_unnamed(root, named)
        shutil.rmtree(trash)
    return freed


def _remove_unnamed(root: Path, named: Iterable[str]) -> int:
    """Remove the blobs that are not `named`, and temporary files; the bytes of the blobs."""
    kept = {f"{digest}.zst" for digest in named}
    freed = 0
    for path in (root / "blobs").glob("??/*"):
        if path.name not in kept:
            freed += path.stat().st_size
            path.unlink()
    return freed


def _blob_bytes(root: Path) -> dict[str, int]:
    with explaining(root, "Measuring"):
        return {path.stem: path.stat().st_size for path in (root / "blobs").glob("??/*.zst")}


def examine(root: Path, index_folder: Path) -> Health:
    """See `Archive.health`. Reads the whole log and checks each line, at some 200 MB a second.

    Raises:
        ArchiveError: A folder or file cannot be read.
    """
    messages: set[tuple[str, int]] = set()
    outputs: set[str] = set()
    problems: list[str] = []
    sessions: set[str] = set()
    log_bytes = 0
    for folder in session_folders(root):
        for segment, size in segment_sizes(folder).items():
            log_bytes += size
            part = read_segment(folder, segment)
            problems += [
                f"{folder / segment}: line {line} does not match its checksum and is left out."
                for line in part.damaged
            ]
            if part.end < size:
                problems.append(
                    f"{folder / segment}: the last {size - part.end} bytes are a call that "
                    "was cut off; they are left out, and nothing that was acknowledged is lost."
                )
            heads = [record.head for record in part.records]
            sessions.update(folder.name for head in heads if head["kind"] == "session")
            messages.update(
                (folder.name, head["seq"]) for head in heads if head["kind"] == "message"
            )
            outputs.update(head["id"] for head in heads if head["kind"] == "output")
    # Imported here because only searches and this need SQLite.
    import sqlite3

    from context_compaction.archive.local.index_file import FIRST_SAFE_SQLITE, index_bytes

    if sqlite3.sqlite_version_info < FIRST_SAFE_SQLITE:
        problems.append(
            f"Note: SQLite {sqlite3.sqlite_version} has a bug (3.7.0 to 3.51.2) that can damage "
            "the search index under concurrent use. Its writes are kept apart by a lock, and a "
            "damaged index is rebuilt; the archive itself is not concerned."
        )
    with explaining(root, "Measuring"):
        blob_bytes = sum(path.stat().st_size for path in (root / "blobs").glob("??/*.zst"))
    return Health(
        location=str(root),
        session_count=len(sessions),
        message_count=len(messages),
        output_count=len(outputs),
        log_bytes=log_bytes,
        blob_bytes=blob_bytes,
        index_bytes=index_bytes(index_folder),
        problems=tuple(problems),
    )
