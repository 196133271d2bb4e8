"""The SQLite file of the search index: opened, checked, replaced if damaged, written under a lock.

The folder contains the database, the lock, and `SEAL` (size and time stamp of the database at its
last clean close). A damaged database is replaced by a new file with a higher name, so a process
that still has the old file open does not harm the new one. The file with the highest name is in
use. Every write and every close holds the lock, because SQLite 3.7.0 to 3.51.2 can damage a
database when two connections write and checkpoint at once.
"""

import os
import sqlite3
import zlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from context_compaction.archive.local import durable_files
from context_compaction.errors import ArchiveBusyError, ArchiveError, ArchiveFullError
from context_compaction.system import FILE_MODE, delete_if_closed

# Primary result codes after which the file is not trusted: a missing table, a failed read
# (truncated), a malformed page, not a database.
_DAMAGED = frozenset({
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
})

T = TypeVar("T")


class IndexFile:
    """The database in a folder. All methods block; one thread at a time.

    Attributes:
        folder: Folder of the database.
    """

    def __init__(self, folder: Path, schema: str, version: str) -> None:
        """`schema` creates an empty index of `version`."""
        self.folder: Path = folder
        self._schema = schema
        self._version = zlib.crc32(version.encode()) >> 1  # SQLite keeps a number of 31 bits
        self._connection: sqlite3.Connection | None = None
        self._name = ""

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`. If the index is damaged, replace it and run `work` again.

        Raises:
            ArchiveFullError: The disk of the index is full.
            ArchiveBusyError: Another process holds the index.
            ArchiveError: The index cannot be used.
        """
        is_repeated = False
        while True:
            try:
                return work(self._current())
            except sqlite3.DatabaseError as error:
                if is_repeated or not _is_damage(error):
                    raise self._explain(error) from error
            self.discard()
            is_repeated = True

    def lock(self) -> AbstractContextManager[None]:
        """Return a context manager that prevents other processes from writing to the index."""
        return durable_files.locked(self.folder / "index.lock")

    @contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Generator[None]:
        """Hold the lock and write everything in the block, or nothing if the block fails."""
        with self.lock(), connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def erasing(self, connection: sqlite3.Connection) -> Generator[None]:
        """Run the block in a transaction, then rewrite the file without deleted content.

        If the process is killed after the transaction, the file has no version and is not used.
        """
        with self.lock():
            before = connection.total_changes
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                yield
                if connection.total_changes == before:
                    return
                connection.execute("PRAGMA user_version = 0")
            connection.execute("VACUUM")
            connection.execute(f"PRAGMA user_version = {self._version}")
            connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")

    def close(self) -> None:
        """Close the database, and seal it if no other process has it open."""
        if self._connection is None:
            return
        with self.lock():
            path = self.folder / self._name
            self._disconnect()
            # SQLite removes the write-ahead log when the last connection closes.
            if path.exists() and not _wal_path(path).exists():
                durable_files.put_file(self.folder / "SEAL", _seal(path))

    def discard(self) -> None:
        """Remove the database. A process that has it open creates a new one at its next call."""
        if not self.folder.is_dir():
            return
        with self.lock(), durable_files.explaining(self.folder, "Deleting in"):
            self._disconnect()
            self._remove()
            if self._current_name() is not None:  # another process has it open on Windows
                (self.folder / self._next_name()).touch(mode=FILE_MODE)

    def _current(self) -> sqlite3.Connection:
        """Return a connection to the current database; reconnect if the file was replaced."""
        if self._connection is not None and self._current_name() == self._name:
            return self._connection
        with durable_files.explaining(self.folder, "Creating"):
            durable_files.make_folder(self.folder)
        with self.lock():
            self._disconnect()
            try:
                return self._open()
            except BaseException:
                self._disconnect()
                raise

    def _open(self) -> sqlite3.Connection:
        """Connect to the existing database if it is valid, otherwise create a new one."""
        name = self._current_name()
        if name is not None:
            path = self.folder / name
            seal = self.folder / "SEAL"
            is_sealed = not _wal_path(path).exists() and seal.exists()
            is_sealed = is_sealed and seal.read_bytes() == _seal(path)
            try:
                connection = self._connect(name)
                if self._is_usable(connection, is_sealed=is_sealed):
                    return connection
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
            self._disconnect()
        return self._replace()

    def _is_usable(self, connection: sqlite3.Connection, *, is_sealed: bool) -> bool:
        """Whether the database has the current version and passes SQLite's quick check.

        A sealed database skips the check, which reads the whole file.
        """
        if connection.execute("PRAGMA user_version").fetchone() != (self._version,):
            return False
        return is_sealed or connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)

    def _current_name(self) -> str | None:
        return max((path.name for path in self.folder.glob("*.db")), default=None)

    def _next_name(self) -> str:
        number = int((self._current_name() or "0-").partition("-")[0], 16) + 1
        return f"{number:08x}-{os.urandom(4).hex()}.db"

    def _replace(self) -> sqlite3.Connection:
        """Create an empty database with a new name and remove the others."""
        with durable_files.explaining(self.folder, "Writing"):
            durable_files.make_folder(self.folder)
            self._remove()
            connection = self._connect(self._next_name())
            connection.executescript(f"BEGIN; {self._schema} COMMIT;")
            connection.execute(f"PRAGMA user_version = {self._version}")
        return connection

    def _connect(self, name: str) -> sqlite3.Connection:
        path = self.folder / name
        with durable_files.explaining(path, "Creating"):
            path.touch(mode=FILE_MODE)
        self._name = name
        self._connection = connection = sqlite3.connect(
            path, timeout=30.0, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _remove(self) -> None:
        for path in self.folder.glob("*.db*"):
            delete_if_closed(path)

    def _explain(self, error: sqlite3.DatabaseError) -> ArchiveError:
        code = error.sqlite_errorcode & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return ArchiveFullError(
                f"The disk of the search index {self.folder} is full. The archive itself is not "
                "affected. Free some space and call again."
            )
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return ArchiveBusyError(
                f"Another process holds the search index {self.folder}. Call again."
            )
        return ArchiveError(
            f"The search index {self.folder} cannot be used: {error}. The archive itself is not "
            "affected. Check that you may write to the folder, or delete it, and call again."
        )


def index_bytes(folder: Path) -> int:
    """Return the size of the index on disk in bytes."""
    return sum(path.stat().st_size for path in folder.glob("*.db*"))


def _wal_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _seal(path: Path) -> bytes:
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}".encode()


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = error.sqlite_errorcode
    # The low byte is the primary code. A short read means that the file was truncated.
    return code & 0xFF in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ
