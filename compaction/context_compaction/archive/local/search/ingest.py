"""How the log becomes rows of the index, in one transaction, and how rows are removed.

A row's id is its place in the order of indexing, by time within a transaction.

A full-text table without contents forgets a row only when it is given every word of it again. The
text is gone by then, and to derive the words anew would have to give exactly what an older version
or another cut of the log gave. So they are read from the table itself: `fts5vocab` lists every
word of every row. One session of 40 costs a quarter to a third of making the index anew (measured
by benchmarks/archive_faults.py), nearly all of it for the list, so many at once cost little more.
"""

import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

from context_compaction.archive import NO_SEQ
from context_compaction.archive.documents import IndexedPart, title_of
from context_compaction.archive.local.blobs import BlobStore
from context_compaction.archive.local.durable_files import explaining, read_at
from context_compaction.archive.local.log import SegmentPart, session_folder
from context_compaction.archive.local.records import parse_body
from context_compaction.archive.local.search.fts_tables import (
    FILLER,
    HAS_DEAD_ROWS,
    NO_SEGMENT,
    OWN,
    PARTITION_SCHEMA,
    TermsRow,
    insert_terms,
    role_token,
    session_token,
    time_tokens,
)
from context_compaction.archive.records import BLOB_MARK, LoggedRecord, internalise
from context_compaction.archive.search.parts import (
    MIN_DOC_TERMS,
    parts_of_records,
    role_in,
    tool_token,
    tools_in,
)
from context_compaction.archive.tokenizer import terms_of

SCHEMA = (
    PARTITION_SCHEMA
    + """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE session (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, parent TEXT,
    format TEXT NOT NULL, title TEXT NOT NULL, title_seq INTEGER NOT NULL,
    first_seconds REAL NOT NULL, last_seconds REAL NOT NULL
);
CREATE INDEX session_newest ON session (last_seconds, id);
CREATE INDEX session_name ON session (session_id);
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE TABLE segment (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, name TEXT NOT NULL,
    indexed_to INTEGER NOT NULL, tail_length INTEGER NOT NULL, tail_crc INTEGER NOT NULL,
    UNIQUE (session, name)
);
CREATE TABLE doc (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, segment INTEGER NOT NULL,
    offset INTEGER NOT NULL, length INTEGER NOT NULL, seq INTEGER NOT NULL, seconds REAL NOT NULL
);
CREATE INDEX doc_of_session ON doc (session, seq);
CREATE TABLE part (
    id INTEGER PRIMARY KEY, output_id TEXT NOT NULL, start_byte INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, start_char INTEGER NOT NULL, start_line INTEGER NOT NULL
);
CREATE INDEX part_of_output ON part (output_id);
CREATE TABLE stamp (folder TEXT PRIMARY KEY, nanoseconds INTEGER NOT NULL) WITHOUT ROWID;
"""
)

_NO_TITLE = 1 << 62
_UPSERT_SESSION = """
INSERT INTO session (key, session_id, parent, format, title, title_seq, first_seconds, last_seconds)
VALUES (:key, :session_id, :parent, :format, :title, :title_seq, :first, :last)
ON CONFLICT (key) DO UPDATE SET
    session_id = coalesce(nullif(excluded.session_id, ''), session_id),
    parent = coalesce(parent, excluded.parent),
    format = coalesce(nullif(excluded.format, ''), format),
    title = iif(excluded.title_seq < title_seq, excluded.title, title),
    title_seq = min(title_seq, excluded.title_seq),
    first_seconds = min(first_seconds, excluded.first_seconds),
    last_seconds = max(last_seconds, excluded.last_seconds)
RETURNING id
"""
# What is known of a session of which nothing is indexed any more is known of another log.
_FORGET_SESSIONS = """
UPDATE session SET parent = NULL, title = '', title_seq = ?, first_seconds = ?, last_seconds = ?
WHERE NOT EXISTS (SELECT 1 FROM segment WHERE segment.session = session.id)
"""
_UPSERT_SEGMENT = """
INSERT INTO segment (session, name, indexed_to, tail_length, tail_crc) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (session, name) DO UPDATE SET indexed_to = excluded.indexed_to,
    tail_length = excluded.tail_length, tail_crc = excluded.tail_crc
RETURNING id
"""
_INSERT_DOC = "INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_PART = "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class News:
    """A part of a segment that the index does not hold yet.

    Attributes:
        session_key: Names the session's folder.
        segment: The segment's file name.
        start: Where the part begins, in bytes.
        part: Its records, with their lines.
    """

    session_key: str
    segment: str
    start: int
    part: SegmentPart


@dataclass(frozen=True, slots=True)
class _Row:
    """A row without its id. `order` sorts rows by time, then as they were logged."""

    order: tuple[float, int, int]
    session: int
    segment: int
    record: LoggedRecord
    output_id: str | None
    tokens: Sequence[str]
    part: IndexedPart


def insert_news(connection: sqlite3.Connection, blobs: BlobStore, batch: Sequence[News]) -> bool:
    """Index `batch` within the transaction that is open.

    Returns:
        False where another process had indexed some of it, which was then passed over.

    Raises:
        ArchiveError: The log cannot be read.
    """
    rows: list[_Row] = []
    is_whole = True
    for news in batch:
        if indexed_to(connection, news.session_key, news.segment) != news.start:
            is_whole = False
            continue
        rows += _take_in(connection, blobs, news)
    rows.sort(key=lambda row: row.order)
    (first_id,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM doc").fetchone()
    numbered = list(enumerate(rows, start=first_id))
    connection.executemany(_INSERT_DOC, (_doc_row(doc_id, row) for doc_id, row in numbered))
    connection.executemany(
        _INSERT_PART,
        (_part_row(doc_id, row) for doc_id, row in numbered if row.output_id is not None),
    )
    insert_terms(
        connection,
        [_terms_row(doc_id, row) for doc_id, row in numbered],
        [float(row.record.head["ts"]) for row in rows],
    )
    return is_whole


def indexed_to(connection: sqlite3.Connection, session_key: str, segment: str) -> int:
    """Up to which byte a segment is indexed."""
    row = connection.execute(
        "SELECT indexed_to FROM segment JOIN session ON session.id = segment.session"
        " WHERE session.key = ? AND segment.name = ?",
        (session_key, segment),
    ).fetchone()
    return 0 if row is None else int(row[0])


def seen_stamps(connection: sqlite3.Connection) -> dict[str, int]:
    """The time stamp of each outer folder of the log whose sessions are indexed whole."""
    return dict(connection.execute("SELECT folder, nanoseconds FROM stamp"))


def keep_stamps(connection: sqlite3.Connection, stamps: Mapping[str, int]) -> None:
    """Note the stamps of folders that were indexed whole, within the transaction that is open."""
    connection.execute("DELETE FROM stamp")
    connection.executemany("INSERT INTO stamp VALUES (?, ?)", stamps.items())


def drop_stale_rows(
    connection: sqlite3.Connection, root: Path, folders: Collection[str] = ("",)
) -> None:
    """Remove the rows of every segment that is gone, shorter than indexed, or other than indexed.

    After a power loss the index may hold rows of lines that never reached the disk. With `folders`
    only sessions in those outer folders of the log are looked at.
    """
    segments = [
        row
        for folder in folders
        for row in connection.execute(
            "SELECT segment.id, session.key, name, indexed_to, tail_length, tail_crc"
            " FROM segment JOIN session ON session.id = segment.session"
            " WHERE session.key BETWEEN ?1 AND ?1 || 'g'",  # keys are hexadecimal
            (folder,),
        )
    ]
    is_stale = False
    for segment, key, name, end, tail_length, tail_crc in segments:
        path = session_folder(root, key) / name
        with explaining(path, "Reading"):
            try:
                tail = read_at(path, end - tail_length, tail_length)
            except FileNotFoundError:
                tail = b""
        if len(tail) != tail_length or zlib.crc32(tail) != tail_crc:
            connection.execute(
                "UPDATE doc SET segment = ? WHERE segment = ?", (NO_SEGMENT, segment)
            )
            connection.execute("DELETE FROM segment WHERE id = ?", (segment,))
            is_stale = True
    if is_stale:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, 'yes')", (HAS_DEAD_ROWS,))
        connection.execute(_FORGET_SESSIONS, (_NO_TITLE, inf, -inf))


def _take_in(connection: sqlite3.Connection, blobs: BlobStore, news: News) -> Iterator[_Row]:
    """Note the session and how far its segment is indexed; yield the rows to insert."""
    part = news.part
    texts = list(_texts(blobs, news))
    (session,) = connection.execute(_UPSERT_SESSION, _session_row(news, texts)).fetchone()
    (segment,) = connection.execute(
        _UPSERT_SEGMENT, (session, news.segment, part.end, part.tail_length, part.tail_crc)
    ).fetchone()
    for record, parts in zip(part.records, texts, strict=True):
        head = record.head
        is_output = head["kind"] == "output"
        tokens = [
            session_token(session),
            role_token(role_in(head)),
            *map(tool_token, tools_in(head)),
            *time_tokens(head["ts"]),
        ]
        for count, text in enumerate(parts):
            yield _Row(
                order=(head["ts"], head["n"], count),
                session=session,
                segment=segment,
                record=record,
                output_id=head["id"] if is_output else None,
                tokens=[*tokens, OWN] if text.is_own else tokens,
                part=text,
            )


def _texts(blobs: BlobStore, news: News) -> Iterator[list[IndexedPart]]:
    """What is found of each record."""
    lines = zip(news.part.records, news.part.lines, strict=True)
    bodies = ((record.head, partial(_body, line, blobs)) for record, line in lines)
    return parts_of_records(bodies, blobs)


def _body(line: bytes, blobs: BlobStore) -> Any:
    body = parse_body(line)
    return internalise(body, blobs.read_whole) if BLOB_MARK in line else body


def _session_row(news: News, texts: Sequence[Sequence[IndexedPart]]) -> dict[str, Any]:
    """The columns of their session that the records of `news` set."""
    row: dict[str, Any] = {"key": news.session_key, "session_id": "", "parent": None, "format": ""}
    row |= {"title": "", "title_seq": _NO_TITLE}
    for record, parts in zip(news.part.records, texts, strict=True):
        head = record.head
        if head["kind"] == "session":
            row |= {"session_id": head["session"], "parent": head["parent"]}
        elif head["kind"] == "message":
            row["format"] = head["format"]
            if head["role"] == "user" and head["seq"] < row["title_seq"]:
                title = title_of(parts[0].text)
                row |= {"title": title, "title_seq": head["seq"]} if title else {}
    times = [float(record.head["ts"]) for record in news.part.records]
    return row | {"first": min(times, default=0.0), "last": max(times, default=0.0)}


def _doc_row(doc_id: int, row: _Row) -> tuple[Any, ...]:
    head = row.record.head
    place = row.record.place
    seq = head.get("seq", NO_SEQ)
    seconds = float(head["ts"])
    return doc_id, row.session, row.segment, place.offset, place.length, seq, seconds


def _part_row(doc_id: int, row: _Row) -> tuple[Any, ...]:
    part = row.part
    where = (part.start_byte, part.size_bytes, part.start_char, part.start_line)
    return doc_id, row.output_id, *where


def _terms_row(doc_id: int, row: _Row) -> TermsRow:
    terms = terms_of(row.part.text)
    paths = terms_of("\n".join(row.part.paths)).words if row.part.paths else ""
    missing = MIN_DOC_TERMS - terms.word_count - len(terms.parts) - len(row.tokens)
    meta = [*row.tokens, *[FILLER] * missing]
    return (
        doc_id,
        terms.words,
        " ".join(terms.parts),
        " ".join(meta),
        paths,
    )


def holds_deleted_session(connection: sqlite3.Connection, root: Path) -> bool:
    """Whether a session is deleted whose words are still here: the deletion was killed between.

    Rows that a power loss made stale are no reason: their session is still there, and nobody asked
    for their words to go.
    """
    rows = connection.execute(
        "SELECT key FROM session"
        " WHERE NOT EXISTS (SELECT 1 FROM segment WHERE segment.session = session.id)"
    )
    return any(not session_folder(root, key).exists() for (key,) in rows)


def is_mostly_dead(connection: sqlite3.Connection) -> bool:
    """Whether making the index anew costs less than removing its dead rows."""
    dead, all_rows = connection.execute(
        "SELECT count(*) FILTER (WHERE segment = ?), count(*) FROM doc", (NO_SEGMENT,)
    ).fetchone()
    return int(dead) * 2 > int(all_rows)


def remove_dead_rows(connection: sqlite3.Connection) -> None:
    """Remove the rows that no segment holds any more, within the transaction that is open.

    Their bytes are overwritten only when the file is written anew.
    """
    for (number,) in connection.execute("SELECT id FROM fts_partition").fetchall():
        count = _forget_words(connection, f"fts_{number}")
        connection.execute(
            "UPDATE fts_partition SET doc_count = doc_count - ? WHERE id = ?", (count, number)
        )
    connection.execute(
        "DELETE FROM part WHERE id IN (SELECT id FROM doc WHERE segment = ?)", (NO_SEGMENT,)
    )
    connection.execute("DELETE FROM doc WHERE segment = ?", (NO_SEGMENT,))
    connection.execute("DELETE FROM session WHERE id NOT IN (SELECT session FROM segment)")
    connection.execute("DELETE FROM meta WHERE key = ?", (HAS_DEAD_ROWS,))


def _forget_words(connection: sqlite3.Connection, table: str) -> int:
    """Remove the dead rows from one full-text table; return their number."""
    dead = (
        f"SELECT id FROM doc WHERE segment = {NO_SEGMENT}"  # noqa: S608
        f" AND id IN (SELECT id FROM {table}_docsize)"
    )
    first, last, count = connection.execute(
        f"SELECT min(id), max(id), count(*) FROM ({dead})"  # noqa: S608
    ).fetchone()
    if not count:
        return 0
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info ({table})")]
    marks = ", ".join("?" * len(columns))
    # In their order, which stands for their places. It is sorted as a whole before the first row
    # comes out, so that nothing is read from the table while it is written to.
    words = connection.execute(
        f"SELECT doc, col, term FROM {_vocabulary(connection, table)}"  # noqa: S608
        f" WHERE doc BETWEEN ? AND ? AND doc IN ({dead}) ORDER BY doc, offset",
        (first, last),
    )
    connection.executemany(
        f"INSERT INTO {table} ({table}, rowid, {', '.join(columns)})"  # noqa: S608
        f" VALUES ('delete', ?, {marks})",
        _rows(words, columns),
    )
    # Until its segments are merged, the table keeps both the words and the note that they are gone.
    connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608
    return int(count)


def _vocabulary(connection: sqlite3.Connection, table: str) -> str:
    """The name of a table that lists the words of `table`, known to this connection only."""
    name = f"temp.{table}_words"
    connection.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5vocab ('main', '{table}', 'instance')"
    )
    return name


def _rows(words: sqlite3.Cursor, columns: list[str]) -> Iterator[tuple[int | str, ...]]:
    """Each row's id and, by column, its words."""
    for doc_id, group in groupby(words, key=itemgetter(0)):
        by_column: dict[str, list[str]] = {column: [] for column in columns}
        for _, column, word in group:
            by_column[column].append(word)
        yield (doc_id, *(" ".join(by_column[column]) for column in columns))
