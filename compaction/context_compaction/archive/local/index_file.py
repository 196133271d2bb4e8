"""The SQLite file of the search index: opened, checked, replaced if damaged, written under a lock.

The folder contains the database, the lock, and `SEAL` (size and time stamp of the database at its
last clean close). A damaged database is replaced by a new file with a higher name, so a process
that still has the old file open does not harm the new one. The file with the highest name is in
use. Every write and every close holds the lock, because SQLite 3.7.0 to 3.51.2 can damage a
database when two connections write and checkpoint at once.

The second part has the tables, and how lines of the log become rows. Row IDs grow in the order of
indexing; within one transaction they are ordered by time.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from context_compaction.archive.documents import MIN_DOC_TERMS, IndexedPart, parts_of_records
from context_compaction.archive.local import durable_files
from context_compaction.archive.local.log import BLOB_REFERENCE, BlobStore, SegmentPart, decode_line
from context_compaction.archive.records import LoggedRecord
from context_compaction.archive.search.filters import INDEX_VERSION, row_values, tags_of
from context_compaction.archive.tokenizer import terms_of
from context_compaction.archive.transcript_state import Description
from context_compaction.errors import ArchiveBusyError, ArchiveError, ArchiveFullError
from context_compaction.messages.model import JsonObject
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

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
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
            connection.execute(f"PRAGMA user_version = {_VERSION}")
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
        if connection.execute("PRAGMA user_version").fetchone() != (_VERSION,):
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
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
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


# Tables and rows ----------------------------------------------------------------------------------


# FTS5 can delete rows of a contentless table since this version.
CAN_DELETE_ROWS: bool = sqlite3.sqlite_version_info >= (3, 43)
# SQLite keeps a number of 31 bits.
_VERSION = zlib.crc32(f"13.{CAN_DELETE_ROWS:d}.{INDEX_VERSION}".encode()) >> 1
BATCH_BYTES = 8 * 1024 * 1024  # log bytes per transaction, so that the lock is never held for long

# A hash table for the words of a whole transaction (default: 1 MB) saves a quarter of the time,
# which merging would take, and a tenth of the size (measured).
_SCHEMA = f"""
CREATE VIRTUAL TABLE fts USING fts5 (words, parts, meta, paths, tokenize='ascii',
    content=''{", contentless_delete=1" if CAN_DELETE_ROWS else ""});
INSERT INTO fts (fts, rank) VALUES ('hashsize', {16 * 1024 * 1024});
CREATE TABLE session (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, parent TEXT,
    last_seconds REAL NOT NULL, description TEXT NOT NULL
);
CREATE TABLE blob_use (
    session INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (session, digest)
) WITHOUT ROWID;
CREATE INDEX session_newest ON session (last_seconds, id);
CREATE INDEX session_name ON session (session_id);
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE TABLE segment (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, name TEXT NOT NULL,
    indexed_to INTEGER NOT NULL, tail_length INTEGER NOT NULL, tail_crc INTEGER NOT NULL,
    UNIQUE (session, name)
);
CREATE TABLE doc (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, segment INTEGER NOT NULL,
    offset INTEGER NOT NULL, length INTEGER NOT NULL,
    seq INTEGER NOT NULL, output_id TEXT, start_byte INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, start_char INTEGER NOT NULL, start_line INTEGER NOT NULL,
    seconds REAL NOT NULL
);
CREATE INDEX doc_of_session ON doc (session, seq);
CREATE INDEX doc_of_output ON doc (output_id) WHERE output_id IS NOT NULL;
CREATE TABLE stamp (folder TEXT PRIMARY KEY, nanoseconds INTEGER NOT NULL) WITHOUT ROWID;
"""

_UPSERT_SESSION = """
INSERT INTO session (key, session_id, parent, last_seconds, description) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id, parent = excluded.parent,
    last_seconds = excluded.last_seconds, description = excluded.description
RETURNING id
"""
_UPSERT_SEGMENT = """
INSERT INTO segment (session, name, indexed_to, tail_length, tail_crc) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (session, name) DO UPDATE SET indexed_to = excluded.indexed_to,
    tail_length = excluded.tail_length, tail_crc = excluded.tail_crc
RETURNING id
"""
# A session and all its descendants.
FAMILY = """
WITH RECURSIVE family (name) AS (
    VALUES (?) UNION SELECT session_id FROM session JOIN family ON parent = name
)
SELECT id FROM session JOIN family ON session_id = name
"""


class StaleIndexError(Exception):
    """The index has rows for lines that the log no longer contains."""


class IndexRow(NamedTuple):
    """A row without its ID.

    Attributes:
        order: Sort key: time, record number, number of the part within the record.
        values: The columns of `doc` without the ID.
        words: The columns of the full-text table.
    """

    order: tuple[float, int, int]
    values: tuple[Any, ...]
    words: tuple[str, ...]


def indexed_to(connection: sqlite3.Connection, session_key: str, segment: str) -> int:
    """Return the offset in bytes up to which a segment is indexed."""
    row = connection.execute(
        "SELECT indexed_to FROM segment JOIN session ON session.id = segment.session"
        " WHERE session.key = ? AND segment.name = ?",
        (session_key, segment),
    ).fetchone()
    return 0 if row is None else int(row[0])


def rows_of_part(
    connection: sqlite3.Connection,
    blobs: BlobStore,
    session_key: str,
    segment_name: str,
    part: SegmentPart,
) -> Iterator[IndexRow]:
    """Update the rows of the session and the segment; yield the rows to insert, without IDs."""
    bodies = (decode_line(line)[1] for line in part.lines)
    texts = list(parts_of_records(zip((r.head for r in part.records), bodies, strict=True), blobs))
    session = _session_of(connection, session_key, part.records)
    (segment,) = connection.execute(
        _UPSERT_SEGMENT, (session, segment_name, part.end, part.tail_length, part.tail_crc)
    ).fetchone()
    digests = {digest.decode() for line in part.lines for digest in BLOB_REFERENCE.findall(line)}
    connection.executemany(
        "INSERT OR IGNORE INTO blob_use VALUES (?, ?)", ((session, digest) for digest in digests)
    )
    for record, parts in zip(part.records, texts, strict=True):
        head, place = record.head, record.place
        for number, text in enumerate(parts):
            line = session, segment, place.offset, place.length
            values = *line, *row_values(head, text)
            yield IndexRow((head["ts"], head["n"], number), values, _words_of(session, head, text))


def _session_of(connection: sqlite3.Connection, key: str, records: Sequence[LoggedRecord]) -> int:
    """Add records to the description of their session; return the session's row ID."""
    row = connection.execute("SELECT description FROM session WHERE key = ?", (key,)).fetchone()
    description = Description() if row is None else Description.from_json(row[0])
    for record in records:
        description.learn_head(record.head)
    values = description.session_id, description.parent_session_id, description.last_seconds
    (session,) = connection.execute(
        _UPSERT_SESSION, (key, *values, description.to_json())
    ).fetchone()
    return int(session)


def insert_rows(connection: sqlite3.Connection, rows: list[IndexRow]) -> None:
    """Insert rows, with growing IDs in the order of time."""
    rows.sort(key=itemgetter(0))
    numbered = [*enumerate(rows, start=last_row_id(connection) + 1)]
    connection.executemany(
        "INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((doc_id, *row.values) for doc_id, row in numbered),
    )
    connection.executemany(
        "INSERT INTO fts (rowid, words, parts, meta, paths) VALUES (?, ?, ?, ?, ?)",
        ((doc_id, *row.words) for doc_id, row in numbered),
    )


def last_row_id(connection: sqlite3.Connection) -> int:
    """Return the number of rows that were ever inserted, including removed rows.

    FTS5 weighs words by the same number, because deleting rows does not change its totals.
    """
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'doc'").fetchone()
    return 0 if row is None else int(row[0])


def remove_sessions(connection: sqlite3.Connection, session_keys: Collection[str]) -> None:
    """Remove all rows of sessions, and merge the full-text table so that their words are erased.

    Raises:
        StaleIndexError: The index should be rebuilt, because this version of SQLite cannot delete
            rows of the full-text table, or because fewer than half of all rows would remain.
    """
    if not CAN_DELETE_ROWS:
        raise StaleIndexError
    keys = (json.dumps(list(session_keys)),)
    sessions = "SELECT id FROM session WHERE key IN (SELECT value FROM json_each(?))"
    rows = f"SELECT id FROM doc WHERE session IN ({sessions})"
    connection.execute(f"DELETE FROM fts WHERE rowid IN ({rows})", keys)
    for table in ("doc", "segment", "blob_use"):
        connection.execute(f"DELETE FROM {table} WHERE session IN ({sessions})", keys)
    connection.execute(f"DELETE FROM session WHERE id IN ({sessions})", keys)
    (row_count,) = connection.execute("SELECT count(*) FROM doc").fetchone()
    if row_count < last_row_id(connection) / 2:
        raise StaleIndexError
    connection.execute("INSERT INTO fts (fts) VALUES ('optimize')")


def _words_of(session: int, head: JsonObject, part: IndexedPart) -> tuple[str, ...]:
    """Return the columns of the full-text table."""
    terms = terms_of(part.text)
    paths = terms_of("\n".join(part.paths)).words if part.paths else ""
    meta = [session_tag(session), *tags_of(head, part)]
    # A tag that no query contains lengthens short texts.
    missing = MIN_DOC_TERMS - terms.word_count - len(terms.parts) - len(meta)
    return terms.words, " ".join(terms.parts), " ".join(meta + ["z"] * missing), paths


def session_tag(session: int) -> str:
    """Return the tag of a session's rows, given the session's row ID."""
    return f"s{session}"
