"""Durable files and folders, file locks, and errors that say what to do.

All functions block; `archive.py` calls them in threads. Folders get mode 0700 and files 0600,
because transcripts contain whatever the host's tools have read. `context_compaction.system` has
what differs between operating systems.
"""

import errno
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from context_compaction import system
from context_compaction.errors import ArchiveBusyError, ArchiveError, ArchiveFullError

# Long enough for a queue of writers on a slow disk, short enough for a caller to see the error.
LOCK_TIMEOUT_SECONDS = 20.0

# EFBIG is the limit on the size of one file (`ulimit -f`), EDQUOT the user's disk quota.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NOT_PERMITTED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class MissingFileError(ArchiveError):
    """A file to read is missing, usually because another process deleted the session."""


@contextmanager
def explaining(path: Path, action: str) -> Generator[None]:
    """Replace an `OSError` in the block by an archive error that names `path` and `action`."""
    try:
        yield
    except OSError as error:
        reason = f"{action} {path} failed: {error.strerror or error}"
        if error.errno in _FULL:
            raise ArchiveFullError(
                f"{reason}. Nothing of this call was stored. Free some space and call again."
            ) from error
        kind = MissingFileError if isinstance(error, FileNotFoundError) else ArchiveError
        raise kind(
            f"{reason}. Check that the folder exists and that you may read and write it."
        ) from error


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Generator[None]:
    """Hold the lock file `path` exclusively, or together with other `shared` holders.

    Raises:
        ArchiveBusyError: Others held the lock for longer than `LOCK_TIMEOUT_SECONDS`.
        ArchiveError: The lock file cannot be opened.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while (handle := try_lock(path, shared=shared)) is None:
        if time.monotonic() > deadline:
            raise ArchiveBusyError(
                f"Another process has held the lock {path} for {LOCK_TIMEOUT_SECONDS:g} seconds. "
                "Nothing was changed. Call again, or stop the process that hangs."
            )
        time.sleep(0.001)
    try:
        yield
    finally:
        system.unlock_file(handle)


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Return an open file that holds the lock until `unlock_file`; None if others hold the lock.

    Raises:
        ArchiveError: The lock file cannot be opened.
    """
    with explaining(path, "Locking"):
        handle = system.open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if system.lock_file(handle, shared=shared):
                return handle
        except BaseException:
            os.close(handle)
            raise
    os.close(handle)
    return None


def sync_folders(folder: Path, root: Path) -> None:
    """Make the names in `folder` and in its parents up to `root` durable.

    The parents are included because a process may have been killed after it created a folder and
    before it synced the parent. If nothing changed, this takes about 0.1 ms (measured on ext4).
    """
    for inner in (folder, *folder.parents):
        system.sync_folder(inner)
        if inner == root:
            return


def make_folder(folder: Path, *, durable: bool = True) -> None:
    """Create `folder` and its missing parents; `durable` syncs the names of the new folders."""
    if folder.is_dir():
        return
    make_folder(folder.parent, durable=durable)
    folder.mkdir(mode=system.FOLDER_MODE, exist_ok=True)
    if durable:
        system.sync_folder(folder.parent)


def restrict_to_user(folder: Path, own_names: frozenset[str]) -> None:
    """Remove other users' access to `folder`, if it contains nothing except `own_names`.

    Raises:
        ArchiveError: Other users may write to the folder, and its mode must not be changed because
            the folder contains other files or belongs to another user.
        OSError: The folder cannot be read.
    """
    status = folder.stat()
    rights = system.rights_of_others(status)
    if not rights:
        return
    is_user_folder = status.st_uid == os.geteuid()
    if is_user_folder and {path.name for path in folder.iterdir()} <= own_names:
        folder.chmod(system.FOLDER_MODE)
    elif rights & 0o022:
        raise ArchiveError(
            f"Other users may write to the archive folder {folder}, so they could replace "
            "conversations. Use a folder of its own, or remove the permission: "
            f"chmod go-w {folder}"
        )


def put_file(path: Path, data: bytes) -> None:
    """Write a whole file: after a crash it is complete or absent.

    Raises:
        OSError: The disk is full or refuses the write; no part of the file remains.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    handle = system.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(handle, "wb") as file:  # writes the rest after a short write, or raises
            file.write(data)
            file.flush()
            system.sync_file(handle)
        system.replace_file(temporary, path)
    except BaseException:
        system.delete_file(temporary)
        raise
    system.sync_folder(path.parent)


def read_at(path: Path, offset: int, size_bytes: int) -> bytes:
    """Return `size_bytes` of a file from `offset`; fewer if the file ends earlier."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size_bytes)
