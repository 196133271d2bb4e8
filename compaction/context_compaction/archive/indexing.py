"""How the log becomes rows of the index: what is new, in one transaction, and what no longer holds.

Rows of one transaction are inserted in the order of their ids: FTS5 writes out its buffer whenever
an id is smaller than the one before.
"""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from context_compaction.archive.blobs import BlobStore
from context_compaction.archive.documents import (
    IndexedPart,
    message_text,
    output_parts,
    storable,
    title_of,
)
from context_compaction.archive.files import explaining, read_at
from context_compaction.archive.log import LoggedRecord, SegmentPart, read_body, session_folder
from context_compaction.archive.outputs import StoredOutput, decode_text, info_of
from context_compaction.archive.terms import terms_of
from context_compaction.errors import ArchiveDamagedError, NotFoundError

ID_COUNTER_BITS = 20  # below the milliseconds of a row id: a million rows in each
MAX_MILLISECONDS = 1 << 42  # the year 2109

# Rows whose log proved to be other than indexed keep their id, so that it is not given to another
# text while the full-text table still knows the old one. This number of a segment marks them.
NO_SEGMENT = 0

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE session (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, parent TEXT,
    format TEXT NOT NULL, title TEXT NOT NULL, title_seq INTEGER NOT NULL,
    first_seconds REAL NOT NULL, last_seconds REAL NOT NULL
);
CREATE INDEX session_newest ON session (last_seconds, id);
CREATE TABLE segment (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, name TEXT NOT NULL,
    indexed_to INTEGER NOT NULL, tail_length INTEGER NOT NULL, tail_crc INTEGER NOT NULL,
    UNIQUE (session, name)
);
CREATE TABLE doc (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, segment INTEGER NOT NULL,
    offset INTEGER NOT NULL, length INTEGER NOT NULL, seq INTEGER NOT NULL, output_id TEXT,
    role TEXT NOT NULL, tool TEXT, seconds REAL NOT NULL,
    start_byte INTEGER NOT NULL, size_bytes INTEGER NOT NULL,
    start_char INTEGER NOT NULL, start_line INTEGER NOT NULL
);
CREATE INDEX doc_of_segment ON doc (segment);
CREATE INDEX message_of_session ON doc (session) WHERE output_id IS NULL;
CREATE INDEX doc_of_output ON doc (output_id) WHERE output_id IS NOT NULL;
CREATE VIRTUAL TABLE fts USING fts5 (words, parts, meta, content='', tokenize='ascii');
"""

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
_UPSERT_SEGMENT = """
INSERT INTO segment (session, name, indexed_to, tail_length, tail_crc) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (session, name) DO UPDATE SET indexed_to = excluded.indexed_to,
    tail_length = excluded.tail_length, tail_crc = excluded.tail_crc
RETURNING id
"""
_INSERT_DOC = "INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_TERMS = "INSERT INTO fts (rowid, words, parts, meta) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class News:
    """A part of a segment that the index does not hold yet.

    Attributes:
        session_key: Names the session's folder.
        segment: The segment's file name.
        start: Where the part begins, in bytes.
        part: The heads of its records.
    """

    session_key: str
    segment: str
    start: int
    part: SegmentPart


@dataclass(frozen=True, slots=True)
class _Row:
    """A row without its id. `order` sorts rows by time, then as they were logged."""

    order: tuple[int, int, int]
    session: int
    segment: int
    record: LoggedRecord
    output_id: str | None
    tools: Sequence[str]
    role: str
    part: IndexedPart
    session_key: str


def first_doc_id(seconds: float) -> int:
    """The smallest row id of a time."""
    return _milliseconds(seconds) << ID_COUNTER_BITS


def session_token(session_key: str) -> str:
    """The token of the rows of a session."""
    return "s" + session_key


def role_token(role: str) -> str:
    """The token of the rows of a role."""
    return "r" + role


def tool_token(tool: str) -> str:
    """The token of the rows of a tool; a hash, as a tool's name may hold anything."""
    name = tool.encode("utf-8", "surrogatepass")
    return "t" + blake2b(name, digest_size=8).hexdigest()


def insert_news(
    connection: sqlite3.Connection, root: Path, blobs: BlobStore, batch: Sequence[News]
) -> bool:
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
        rows += _take_in(connection, root, blobs, news)
    rows.sort(key=lambda row: row.order)
    for doc_id, row in zip(_free_ids(connection, rows), rows, strict=True):
        _insert_row(connection, doc_id, row)
    return is_whole


def indexed_to(connection: sqlite3.Connection, session_key: str, segment: str) -> int:
    """Up to which byte a segment is indexed."""
    row = connection.execute(
        "SELECT indexed_to FROM segment JOIN session ON session.id = segment.session"
        " WHERE session.key = ? AND segment.name = ?",
        (session_key, segment),
    ).fetchone()
    return 0 if row is None else int(row[0])


def drop_stale_rows(connection: sqlite3.Connection, root: Path) -> None:
    """Forget every segment that is gone, shorter than indexed, or other than indexed.

    After a power loss the index may hold rows of lines that never reached the disk.
    """
    segments = connection.execute(
        "SELECT segment.id, session.key, name, indexed_to, tail_length, tail_crc"
        " FROM segment JOIN session ON session.id = segment.session"
    ).fetchall()
    for segment, key, name, end, tail_length, tail_crc in segments:
        path = session_folder(root, key) / name
        with explaining(path, "Reading"):
            tail = read_at(path, end - tail_length, tail_length) if path.exists() else b""
        if len(tail) != tail_length or zlib.crc32(tail) != tail_crc:
            connection.execute(
                "UPDATE doc SET segment = ? WHERE segment = ?", (NO_SEGMENT, segment)
            )
            connection.execute("DELETE FROM segment WHERE id = ?", (segment,))


def _take_in(
    connection: sqlite3.Connection, root: Path, blobs: BlobStore, news: News
) -> Iterator[_Row]:
    """Note the session and how far its segment is indexed; give the rows to insert."""
    folder = session_folder(root, news.session_key)
    part = news.part
    texts = [_texts(folder, blobs, record) for record in part.records]
    (session,) = connection.execute(_UPSERT_SESSION, _session_row(news, texts)).fetchone()
    (segment,) = connection.execute(
        _UPSERT_SEGMENT, (session, news.segment, part.end, part.tail_length, part.tail_crc)
    ).fetchone()
    for record, parts in zip(part.records, texts, strict=True):
        head = record.head
        is_output = head["kind"] == "output"
        tools = [head["tool"]] if is_output and head["tool"] else head.get("tools", [])
        for count, text in enumerate(parts):
            yield _Row(
                order=(_milliseconds(head["ts"]), head["n"], count),
                session=session,
                segment=segment,
                record=record,
                output_id=head["id"] if is_output else None,
                tools=tools,
                role="tool" if is_output else head["role"],
                part=text,
                session_key=news.session_key,
            )


def _texts(folder: Path, blobs: BlobStore, record: LoggedRecord) -> list[IndexedPart]:
    """What is found of a record: nothing but messages and outputs."""
    head = record.head
    if head["kind"] not in {"message", "output"}:
        return []
    try:
        body = read_body(folder, record.place, blobs.read_whole)
        if head["kind"] == "message":
            return [IndexedPart(message_text(body, head["format"]))]
        data = StoredOutput(info_of(head, ""), body, blobs).read_whole()
    except (ArchiveDamagedError, NotFoundError):
        # A damaged blob hides its own text only; the doctor reports it.
        return [IndexedPart("")]
    return list(output_parts(decode_text(data) or ""))


def _session_row(news: News, texts: Sequence[Sequence[IndexedPart]]) -> dict[str, Any]:
    """What the records of `news` say of their session."""
    row: dict[str, Any] = {"key": news.session_key, "session_id": "", "parent": None, "format": ""}
    row |= {"title": "", "title_seq": _NO_TITLE}
    for record, parts in zip(news.part.records, texts, strict=True):
        head = record.head
        if head["kind"] == "session":
            row |= {"session_id": head["session"], "parent": head["parent"]}
        elif head["kind"] == "message":
            row["format"] = head["format"]
            if head["role"] == "user" and head["seq"] < row["title_seq"]:
                row |= {"title": title_of(parts[0].text), "title_seq": head["seq"]}
    times = [float(record.head["ts"]) for record in news.part.records]
    return row | {"first": min(times, default=0.0), "last": max(times, default=0.0)}


def _free_ids(connection: sqlite3.Connection, rows: Sequence[_Row]) -> Iterator[int]:
    """An id for each row, rising, the first free ones of its millisecond."""
    previous = -1
    for row in rows:
        first = row.order[0] << ID_COUNTER_BITS
        if previous < first:
            stop = first + (1 << ID_COUNTER_BITS)
            (taken,) = connection.execute(
                "SELECT max(id) FROM doc WHERE id >= ? AND id < ?", (first, stop)
            ).fetchone()
            previous = first - 1 if taken is None else taken
        previous += 1
        yield previous


def _insert_row(connection: sqlite3.Connection, doc_id: int, row: _Row) -> None:
    head = row.record.head
    place = row.record.place
    part = row.part
    connection.execute(
        _INSERT_DOC,
        (
            doc_id,
            row.session,
            row.segment,
            place.offset,
            place.length,
            head.get("seq", -1),
            row.output_id,
            row.role,
            storable(row.tools[0]) if row.tools else None,
            float(head["ts"]),
            part.start_byte,
            part.size_bytes,
            part.start_char,
            part.start_line,
        ),
    )
    terms = terms_of(part.text)
    tokens = [session_token(row.session_key), role_token(row.role), *map(tool_token, row.tools)]
    connection.execute(
        _INSERT_TERMS, (doc_id, " ".join(terms.words), " ".join(terms.parts), " ".join(tokens))
    )


def _milliseconds(seconds: float) -> int:
    return int(min(max(seconds * 1000, 0), MAX_MILLISECONDS))
