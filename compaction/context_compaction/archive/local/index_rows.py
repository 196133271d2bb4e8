"""The tables of the search index, and how the lines of the log become rows of these tables.

Row IDs grow in the order of indexing; within one transaction they are ordered by time.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from context_compaction.archive.documents import MIN_DOC_TERMS, IndexedPart, parts_of_records
from context_compaction.archive.local.log import BLOB_REFERENCE, BlobStore, SegmentPart, decode_line
from context_compaction.archive.records import LoggedRecord
from context_compaction.archive.search.filters import INDEX_VERSION, row_values, tags_of
from context_compaction.archive.tokenizer import terms_of
from context_compaction.archive.transcript_state import Description
from context_compaction.messages.model import JsonObject

# FTS5 can delete rows of a contentless table since this version.
CAN_DELETE_ROWS: bool = sqlite3.sqlite_version_info >= (3, 43)
VERSION = f"13.{CAN_DELETE_ROWS:d}.{INDEX_VERSION}"
BATCH_BYTES = 8 * 1024 * 1024  # log bytes per transaction, so that the lock is never held for long

# A hash table for the words of a whole transaction (default: 1 MB) saves a quarter of the time,
# which merging would take, and a tenth of the size (measured).
SCHEMA = f"""
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
