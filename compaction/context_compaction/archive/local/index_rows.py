"""The rows of the index: its tables, and how the lines of the log become rows and go again.

A row's id is its place in the order of indexing, by time within a transaction.
"""

import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from context_compaction.archive import NO_SEQ
from context_compaction.archive.documents import (
    MIN_DOC_TERMS,
    TITLE_TOOL,
    IndexedPart,
    parts_of_records,
    title_of,
)
from context_compaction.archive.local.log import BlobStore, SegmentPart, parse_body, read_segment
from context_compaction.archive.records import BLOB_MARK, LoggedRecord, internalise
from context_compaction.archive.search.filters import INDEX_VERSION, tags_of
from context_compaction.archive.tokenizer import terms_of

VERSION = f"7.{INDEX_VERSION}"  # of the tables, and of the words and tags in them
BATCH_BYTES = 8 * 1024 * 1024  # log bytes a transaction, so that nobody waits long for the lock

_DAYS_A_BLOCK = 32

# Room for the words of a whole transaction (1 MB by default) saves a quarter of its time, which
# goes into merging, and a tenth of the size (measured).
SCHEMA = f"""
CREATE VIRTUAL TABLE fts USING fts5 (words, parts, meta, paths, content='', tokenize='ascii');
INSERT INTO fts (fts, rank) VALUES ('hashsize', {16 * 1024 * 1024});
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
    offset INTEGER NOT NULL, length INTEGER NOT NULL, words_crc INTEGER NOT NULL,
    seq INTEGER NOT NULL, seconds REAL NOT NULL,
    output_id TEXT, start_byte INTEGER, size_bytes INTEGER, start_char INTEGER, start_line INTEGER
);
CREATE INDEX doc_of_session ON doc (session, seq);
CREATE INDEX doc_of_output ON doc (output_id) WHERE output_id IS NOT NULL;
CREATE TABLE stamp (folder TEXT PRIMARY KEY, nanoseconds INTEGER NOT NULL) WITHOUT ROWID;
"""

_UPSERT_SESSION = """
INSERT INTO session (key, session_id, parent, format, title, title_seq, first_seconds, last_seconds)
VALUES (:key, :session_id, :parent, :format, :title, :title_seq, :first, :last)
ON CONFLICT (key) DO UPDATE SET
    session_id = coalesce(nullif(excluded.session_id, ''), session_id),
    parent = coalesce(parent, excluded.parent),
    format = coalesce(nullif(excluded.format, ''), format),
    title = iif(excluded.title_seq <= title_seq, excluded.title, title),
    title_seq = min(title_seq, excluded.title_seq),
    first_seconds = min(first_seconds, excluded.first_seconds),
    last_seconds = max(last_seconds, excluded.last_seconds)
RETURNING id
"""
_UPSERT_SEGMENT = """
INSERT INTO segment (session, name, indexed_to, tail_length, tail_crc) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (session, name) DO UPDATE SET indexed_to = excluded.indexed_to,
    tail_length = excluded.tail_length, tail_crc = excluded.tail_crc
RETURNING id
"""
# A session and all that descend from it, by what they named as their parent.
FAMILY = """
WITH RECURSIVE family (name) AS (
    VALUES (?) UNION SELECT session_id FROM session JOIN family ON parent = name
)
SELECT id FROM session JOIN family ON session_id = name
"""


@dataclass(frozen=True, slots=True)
class News:
    """A part of a segment that the index does not hold yet, from byte `start`, with its lines."""

    session_key: str
    segment: str
    start: int
    part: SegmentPart


class StaleIndexError(Exception):
    """The log no longer holds what was indexed."""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A row without its id. `order` sorts rows by time, then as they were logged."""

    order: tuple[float, int, int]
    session: int
    segment: int
    record: LoggedRecord
    part: IndexedPart


def indexed_to(connection: sqlite3.Connection, session_key: str, segment: str) -> int:
    """Up to which byte a segment is indexed."""
    row = connection.execute(
        "SELECT indexed_to FROM segment JOIN session ON session.id = segment.session"
        " WHERE session.key = ? AND segment.name = ?",
        (session_key, segment),
    ).fetchone()
    return 0 if row is None else int(row[0])


def take_in(connection: sqlite3.Connection, blobs: BlobStore, news: News) -> Iterator[IndexRow]:
    """Note the session and how far its segment is indexed; yield the rows to insert."""
    part = news.part
    texts = _texts_of(part, blobs)
    (session,) = connection.execute(_UPSERT_SESSION, _session_row(news, texts)).fetchone()
    (segment,) = connection.execute(
        _UPSERT_SEGMENT, (session, news.segment, part.end, part.tail_length, part.tail_crc)
    ).fetchone()
    for record, parts in zip(part.records, texts, strict=True):
        for count, text in enumerate(parts):
            order = record.head["ts"], record.head["n"], count
            yield IndexRow(order, session, segment, record, text)


def _texts_of(part: SegmentPart, blobs: BlobStore) -> list[list[IndexedPart]]:
    """What is found of each record of `part`."""
    lines = zip(part.records, part.lines, strict=True)
    bodies = ((record.head, partial(_body, line, blobs)) for record, line in lines)
    return list(parts_of_records(bodies, blobs))


def _body(line: bytes, blobs: BlobStore) -> Any:
    body = parse_body(line)
    return internalise(body, blobs.read_whole) if BLOB_MARK in line else body


def _session_row(news: News, texts: Sequence[Sequence[IndexedPart]]) -> Mapping[str, Any]:
    """The columns of their session that the records of `news` set."""
    row: dict[str, Any] = {"key": news.session_key, "session_id": "", "parent": None, "format": ""}
    row |= {"title": "", "title_seq": 1 << 62}
    for record, parts in zip(news.part.records, texts, strict=True):
        head = record.head
        if head["kind"] == "session":
            row |= {"session_id": head["session"], "parent": head["parent"]}
        elif head["kind"] == "message":
            row["format"] = head["format"]
            if head["role"] == "user" and head["seq"] < row["title_seq"]:
                title = title_of(parts[0].text)
                row |= {"title": title, "title_seq": head["seq"]} if title else {}
        elif head["kind"] == "output" and head["tool"] == TITLE_TOOL:
            row |= {"title": title_of(parts[0].text), "title_seq": -1}
    times = [float(record.head["ts"]) for record in news.part.records]
    return row | {"first": min(times, default=0.0), "last": max(times, default=0.0)}


def insert_rows(connection: sqlite3.Connection, rows: list[IndexRow]) -> None:
    """Add rows with ids by their time, which rise."""
    rows.sort(key=lambda row: row.order)
    (first_id,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM doc").fetchone()
    for doc_id, row in enumerate(rows, start=first_id):
        words = _words_of(row.session, row.record, row.part)
        head, place, part = row.record.head, row.record.place, row.part
        connection.execute(
            "INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                doc_id,
                row.session,
                row.segment,
                place.offset,
                place.length,
                _crc_of(words),
                head.get("seq", NO_SEQ),
                float(head["ts"]),
                head["id"] if head["kind"] == "output" else None,
                part.start_byte,
                part.size_bytes,
                part.start_char,
                part.start_line,
            ),
        )
        connection.execute(
            "INSERT INTO fts (rowid, words, parts, meta, paths) VALUES (?, ?, ?, ?, ?)",
            (doc_id, *words),
        )


def remove_words(
    connection: sqlite3.Connection, blobs: BlobStore, session: int, folder: Path
) -> None:
    """Remove a session's rows from the full-text table, with the words that its log still holds.

    Raises:
        StaleIndexError: These are not the words that were indexed.
    """
    segments = connection.execute(
        "SELECT id, name, indexed_to FROM segment WHERE session = ?", (session,)
    ).fetchall()
    for segment, name, end in segments:
        places = connection.execute(
            "SELECT offset, start_byte, id, words_crc FROM doc WHERE segment = ?", (segment,)
        )
        indexed = {(offset, byte): (doc_id, crc) for offset, byte, doc_id, crc in places}
        start = 0
        while start < end:
            limit_bytes = min(BATCH_BYTES, end - start)
            part = read_segment(folder, name, start, limit_bytes=limit_bytes, with_lines=True)
            if part.end == start:
                raise StaleIndexError
            start = part.end
            for record, texts in zip(part.records, _texts_of(part, blobs), strict=True):
                for text in texts:
                    words = _words_of(session, record, text)
                    place = record.place.offset, text.start_byte
                    doc_id, crc = indexed.pop(place, (0, None))
                    if crc != _crc_of(words):
                        raise StaleIndexError
                    connection.execute(
                        "INSERT INTO fts (fts, rowid, words, parts, meta, paths)"
                        " VALUES ('delete', ?, ?, ?, ?, ?)",
                        (doc_id, *words),
                    )
        if indexed:
            raise StaleIndexError


def _words_of(session: int, record: LoggedRecord, part: IndexedPart) -> tuple[str, str, str, str]:
    """The columns of the full-text table."""
    terms = terms_of(part.text)
    paths = terms_of("\n".join(part.paths)).words if part.paths else ""
    seconds = record.head["ts"]
    meta = [session_tag(session), *time_tags(seconds), *tags_of(record.head, part)]
    # A tag that no query asks for fills up what is too short.
    missing = MIN_DOC_TERMS - terms.word_count - len(terms.parts) - len(meta)
    return terms.words, " ".join(terms.parts), " ".join(meta + ["z"] * missing), paths


def _crc_of(words: Sequence[str]) -> int:
    return zlib.crc32("\n".join(words).encode("utf-8", "surrogatepass"))


def session_tag(session: int) -> str:
    """The tag of the rows of a session, given its row id."""
    return f"s{session}"


def time_tags(seconds: float) -> tuple[str, str]:
    """The tags of a row's day, and of its block of days."""
    day = _day(seconds)
    return f"d{day}", f"b{day // _DAYS_A_BLOCK}"


def time_range_tags(since_seconds: float, until_seconds: float) -> list[str]:
    """Tags of which each row between two times has at least one: whole blocks, and days."""
    day, last = _day(since_seconds), _day(until_seconds)
    tags: list[str] = []
    while day <= last:
        if day % _DAYS_A_BLOCK == 0 and day + _DAYS_A_BLOCK - 1 <= last:
            tags.append(f"b{day // _DAYS_A_BLOCK}")
            day += _DAYS_A_BLOCK
        else:
            tags.append(f"d{day}")
            day += 1
    return tags


def _day(seconds: float) -> int:
    # Up to the year 2328; a time filter past it means no limit.
    return int(min(max(seconds // 86_400, 0), 1 << 17))
