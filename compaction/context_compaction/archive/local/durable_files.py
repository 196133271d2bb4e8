"""Durable files: folders and files that survive power loss, locks, and errors that name the remedy.

Everything blocks; `archive.py` calls it in a thread. Folders are 0700 and files 0600, since
transcripts hold whatever the host's tools have read.
"""

import errno
import os
import stat
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from context_compaction.errors import ArchiveBusyError, ArchiveError, ArchiveFullError

try:
    import fcntl
except ModuleNotFoundError as _error:
    raise ArchiveError(
        "The archive needs the file locks of Linux or macOS (Python's module fcntl), which this "
        "system lacks. On Windows, run the program in WSL."
    ) from _error

FOLDER_MODE = 0o700
FILE_MODE = 0o600
# Long enough for a queue of writers behind a slow disk, short enough for a caller to learn of it.
LOCK_TIMEOUT_SECONDS = 20.0

# EFBIG is the limit on one file's size (`ulimit -f`), EDQUOT the user's share of the disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class MissingFileError(ArchiveError):
    """What was to be read is there no more: another process has deleted it."""


def explain(error: OSError, path: Path, doing: str) -> ArchiveError:
    """The archive's error for an error of the operating system."""
    reason = f"{doing} {path} failed: {error.strerror or error}"
    if error.errno in _FULL:
        return ArchiveFullError(
            f"{reason}. Nothing of this call was kept; free some space and call again."
        )
    kind = MissingFileError if isinstance(error, FileNotFoundError) else ArchiveError
    return kind(f"{reason}. Check that the folder exists and may be read and written.")


@contextmanager
def explaining(path: Path, doing: str) -> Generator[None]:
    """Turn an `OSError` of the block into the archive's error, naming `path`."""
    try:
        yield
    except OSError as error:
        raise explain(error, path, doing) from error


@contextmanager
def may_be_refused() -> Generator[None]:
    """Pass over it where the block may not write; other errors are raised."""
    try:
        yield
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Generator[None]:
    """Hold the lock file `path` against other processes and threads, or together with others.

    By flock itself: the library filelock (4.2) has no lock that several may share without a
    database behind it, and takes 130 to 190 us for what takes 4 here, twice an append, which has
    350 us in all (measured).

    Raises:
        ArchiveBusyError: Others held it for longer than `LOCK_TIMEOUT_SECONDS`.
        ArchiveError: The lock file cannot be opened.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while (handle := try_lock(path, shared=shared)) is None:
        if time.monotonic() > deadline:
            raise ArchiveBusyError(
                f"Another process has held {path} for {LOCK_TIMEOUT_SECONDS:g} seconds. Nothing "
                "was changed; call again, or stop the process that hangs."
            )
        time.sleep(0.001)
    try:
        yield
    finally:
        os.close(handle)


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """An open file that holds the lock file `path` until it is closed; None where others hold it.

    Raises:
        ArchiveError: The lock file cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
    except BlockingIOError:
        return None
    except OSError as error:
        raise explain(error, path, "Locking") from error
    return handle


def sync_file(handle: int) -> None:
    """Bring the bytes of an open file to the device.

    macOS leaves them in the drive's cache unless F_FULLFSYNC is asked for.
    """
    if sys.platform == "darwin":
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a new file's name is lost with the power otherwise."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folders(folder: Path, root: Path) -> None:
    """Make durable the names in `folder` and in its parents up to `root`.

    A folder that is there may have been made by a process that was killed before it synced the
    parent; only then does this cost more than some 0.1 ms (measured, ext4).
    """
    for inner in (folder, *folder.parents):
        sync_folder(inner)
        if inner == root:
            return


def make_folder(folder: Path, *, durable: bool = True) -> None:
    """Make `folder` and its parents where they are missing, durably if that is asked for."""
    if folder.is_dir():
        return
    make_folder(folder.parent, durable=durable)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if durable:
        sync_folder(folder.parent)


def close_to_others(folder: Path, names: frozenset[str]) -> None:
    """Restrict `folder` to the user, where all in it is ours (`names`).

    Raises:
        ArchiveError: Others may write there, and it holds other things too, so that its mode is
            not ours to change; or it belongs to somebody else.
        OSError: The folder cannot be read.
    """
    status = folder.stat()
    if not stat.S_IMODE(status.st_mode) & 0o077:
        return
    is_ours = status.st_uid == os.geteuid() and {path.name for path in folder.iterdir()} <= names
    if is_ours:
        folder.chmod(FOLDER_MODE)
    elif stat.S_IMODE(status.st_mode) & 0o022:
        raise ArchiveError(
            f"The archive's folder {folder} may be written by others, who could put other "
            "conversations in its place. Name a folder of its own, or take the right away "
            f"(chmod go-w {folder})."
        )


def write_all(handle: int, data: bytes) -> None:
    """Write every byte of `data`.

    A full disk shows as a short write without an error; the write of
    the rest then raises.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def put_file(path: Path, data: bytes) -> None:
    """Write a whole file under `path`: after a crash it is there in full, or not at all.

    Raises:
        OSError: The disk is full or refuses; no part of the file stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        try:
            write_all(handle, data)
            sync_file(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_at(path: Path, offset: int, size_bytes: int) -> bytes:
    """`size_bytes` of a file from `offset`, fewer where it ends earlier."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size_bytes)
