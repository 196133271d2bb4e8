"""The search index: what the log holds, by words, derived and thrown away when in doubt.

It is kept on a local disk, keyed by the archive's path, and holds no text: each row names where a
record's line is, and the full-text tables are contentless. Before each search it catches up
with what any process has logged since.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TypeVar

from context_compaction.archive import NO_SEQ, SessionInfo
from context_compaction.archive.cursors import decode_cursor, encode_cursor
from context_compaction.archive.documents import is_own_tool, read_stored
from context_compaction.archive.local.blobs import BlobStore
from context_compaction.archive.local.durable_files import explaining, is_gone, read_at
from context_compaction.archive.local.log import (
    last_notice,
    read_segment,
    segment_sizes,
    session_folder,
    session_folders,
)
from context_compaction.archive.local.records import decode_body, decode_head
from context_compaction.archive.local.search.fts_tables import NO_SEGMENT
from context_compaction.archive.local.search.ingest import (
    SCHEMA,
    News,
    drop_stale_rows,
    holds_deleted_session,
    indexed_to,
    insert_news,
    is_mostly_dead,
    keep_stamps,
    remove_dead_rows,
    seen_stamps,
)
from context_compaction.archive.local.search.sqlite_file import IndexFile
from context_compaction.archive.outputs import StoredOutput, decode_text, info_of
from context_compaction.archive.records import BLOB_MARK, internalise
from context_compaction.archive.search.hits import DocText
from context_compaction.archive.tokenizer import TERMS_VERSION
from context_compaction.errors import ArchiveDamagedError, ArchiveError, NotFoundError, QueryError
from context_compaction.messages.history_hash import chain_hash

SCHEMA_VERSION = 5
BATCH_BYTES = 8 * 1024 * 1024  # log bytes a transaction, so that nobody waits long for the lock

_MOST_UNWANTED = 4  # times as much as is wanted may be read at once

# A folder's time stamp is trusted to show later changes only when it is older than this: some
# file systems keep whole seconds.
STAMP_NANOSECONDS = 2_000_000_000
# What was put there by others than writers (a session copied back from a backup) shows in no stamp
# of the outer folder, so each of these is looked at this often, which takes about a millisecond.
FULL_LOOK_SECONDS = 10.0

# A session and all that descend from it, by what they named as their parent.
FAMILY = """
WITH RECURSIVE family (name) AS (
    VALUES (?) UNION SELECT session_id FROM session JOIN family ON parent = name
)
SELECT id FROM session JOIN family ON session_id = name
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Doc:
    """One row of the index: a message, or a part of an output, and where it is read.

    Attributes:
        doc_id: Row id; larger is newer, as far as things were indexed in the order of their time.
        session_key: The hash that names the session's folder.
        segment: The segment that holds the record's line, from byte `offset`, `length` bytes.
        seq: The message's number; -1 for an output.
        output_id: The output's id; None for a message.
        seconds: Its time, in Unix time.
        start_byte: Where the part begins in the output; size_bytes, start_char and start_line mean
            likewise what `IndexedPart` does.
    """

    doc_id: int
    session_key: str
    session_id: str
    segment: str
    offset: int
    length: int
    seq: int
    seconds: float
    output_id: str | None
    start_byte: int
    size_bytes: int
    start_char: int
    start_line: int


class SearchIndex:
    """The index of one archive. Every method blocks; one thread at a time."""

    def __init__(self, root: Path, index_root: Path) -> None:
        key = blake2b(str(root).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self._root = root
        self._blobs = BlobStore(root / "blobs")
        version = f"{SCHEMA_VERSION}.{TERMS_VERSION}"
        self._file = IndexFile(index_root / key, root, SCHEMA, version, self._verify)
        self._last_notice: int | None = None
        self._look_until_seconds = 0.0
        self._seen_stamps: dict[str, int] = {}
        self._torn_sizes: dict[tuple[str, str], int] = {}
        self._compared: set[str] = set()  # outer folders whose rows were compared with the log
        self._caught_up: sqlite3.Connection | None = None
        # How many rows of a table hold an expression, as counted when it had so many rows.
        self.counts: dict[tuple[str, str], tuple[int, int]] = {}

    @property
    def folder(self) -> Path:
        """Where the index is kept."""
        return self._file.folder

    def close(self) -> None:
        """Close the database."""
        self._file.close()

    def forget(self) -> None:
        """Remove whatever the log no longer holds from the index, and its bytes from the disk."""
        if not self.folder.is_dir():
            return

        if not self._file.run(self._clean):
            self._file.discard()

    def _clean(self, connection: sqlite3.Connection) -> bool:
        """Remove dead rows; return False where making the index anew costs less."""
        with self._file.transaction(connection):
            drop_stale_rows(connection, self._root)
            if is_mostly_dead(connection):
                return False
            remove_dead_rows(connection)
        self._file.rewrite(connection)
        return True

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Catch up with the log, then do `work`; see `IndexFile.run` for what it raises."""

        def caught_up(connection: sqlite3.Connection) -> tuple[T] | None:
            is_new = connection is not self._caught_up
            self._catch_up(connection)
            if is_new and holds_deleted_session(connection, self._root):
                return None
            return (work(connection),)

        while (done := self._file.run(caught_up)) is None:
            self.forget()
        return done[0]

    def find_output(self, output_id: str) -> str | None:
        """The key of a session that holds an output, as far as the index has come; else None."""

        def find(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(
                "SELECT key FROM part JOIN doc ON doc.id = part.id"
                " JOIN session ON session.id = doc.session"
                " WHERE output_id = ? AND segment != ? LIMIT 1",
                (output_id, NO_SEGMENT),
            ).fetchone()
            return None if row is None else str(row[0])

        # The first look saves the walk over the log: an output that was found once stays there.
        return self._file.run(find) or self.run(find)

    def list_sessions(
        self, limit: int, cursor: str | None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """See `Archive.sessions`.

        Raises:
            QueryError: `limit` is below 1, or the cursor is none of ours.
        """
        if limit < 1:
            raise QueryError(f"limit={limit} cannot be used. Give a number from 1.")
        last_seconds, last_id = decode_cursor(cursor) if cursor else (inf, 0)

        def select(connection: sqlite3.Connection) -> list[tuple[int, SessionInfo]]:
            ids: str | None = None
            if family_of is not None:
                ids = json.dumps([row[0] for row in connection.execute(FAMILY, (family_of,))])
            rows = connection.execute(
                "SELECT id, session_id, parent, format,"
                " (SELECT count(*) FROM doc WHERE doc.session = session.id"
                "  AND seq != -1 AND segment != ?),"
                " first_seconds, last_seconds, title FROM session"
                " WHERE (last_seconds, id) < (?, ?)"
                " AND EXISTS (SELECT 1 FROM segment WHERE segment.session = session.id)"
                " AND (? IS NULL OR id IN (SELECT value FROM json_each(?)))"
                " ORDER BY last_seconds DESC, id DESC LIMIT ?",
                (NO_SEGMENT, last_seconds, last_id, ids, ids, limit + 1),
            )
            return [(row[0], SessionInfo(*row[1:])) for row in rows]

        found = self.run(select)
        infos = [info for _, info in found[:limit]]
        if len(found) <= limit:
            return infos, None
        return infos, encode_cursor([infos[-1].last_seconds, found[limit - 1][0]])

    def _verify(self, connection: sqlite3.Connection) -> None:
        drop_stale_rows(connection, self._root)

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Index whatever any process has logged and the index does not hold."""
        noticed = last_notice(self._root)
        is_long_ago = time.time_ns() - noticed > STAMP_NANOSECONDS
        if connection is not self._caught_up:
            self._last_notice = None
            self._seen_stamps = seen_stamps(connection)
            self._torn_sizes = {}
            self._compared = set()
            self.counts = {}
            self._caught_up = connection
        if noticed == self._last_notice and time.monotonic() < self._look_until_seconds:
            return
        stamps: dict[str, int] = {}
        is_whole = False
        while not is_whole:
            is_whole = True
            stamps = {}
            batch: list[News] = []
            size_bytes = 0
            for news in self._news(connection, stamps):
                batch.append(news)
                size_bytes += news.part.end - news.start
                if size_bytes >= BATCH_BYTES:
                    is_whole &= self._insert(connection, batch)
                    batch, size_bytes = [], 0
            is_whole &= self._insert(connection, batch)
        if stamps != self._seen_stamps:
            with self._file.transaction(connection):
                keep_stamps(connection, stamps)
        self._seen_stamps = stamps
        self._last_notice = noticed if is_long_ago else None
        self._look_until_seconds = time.monotonic() + FULL_LOOK_SECONDS

    def _insert(self, connection: sqlite3.Connection, batch: Sequence[News]) -> bool:
        if not batch:
            return True
        try:
            with self._file.transaction(connection):
                return insert_news(connection, self._blobs, batch)
        except ArchiveError as error:
            if is_gone(error):
                return False
            raise

    def _news(self, connection: sqlite3.Connection, stamps: dict[str, int]) -> Iterator[News]:
        """What is new in the folders whose time stamp has moved; notes the stamps to trust."""
        written = self._folder_stamps()
        moved = {name for name, _ in written.items() ^ self._seen_stamps.items()}
        trusted_from = time.time_ns() - STAMP_NANOSECONDS
        stamps.update(item for item in written.items() if item[1] < trusted_from)
        if unknown := moved - self._compared:
            with self._file.transaction(connection):
                drop_stale_rows(connection, self._root, unknown)
            self._compared |= unknown
        changed = session_folders(self._root, sorted(moved & written.keys()))
        # A rebuilt index gets the sessions in about the order in which they were written.
        for folder in sorted(changed, key=_written_nanoseconds) if len(changed) > 1 else changed:
            yield from self._session_news(connection, folder)

    def _folder_stamps(self) -> dict[str, int]:
        """When each outer folder of the log was last written to, Unix nanoseconds."""
        sessions = self._root / "sessions"
        with explaining(sessions, "Reading"):
            try:
                with os.scandir(sessions) as entries:
                    return {entry.name: entry.stat().st_mtime_ns for entry in entries}
            except FileNotFoundError:
                return {}

    def _session_news(self, connection: sqlite3.Connection, folder: Path) -> Iterator[News]:
        for segment, size in segment_sizes(folder).items():
            start = indexed_to(connection, folder.name, segment)
            while start < size and self._torn_sizes.get((folder.name, segment)) != size:
                try:
                    part = read_segment(
                        folder, segment, start, limit_bytes=BATCH_BYTES, with_lines=True
                    )
                except ArchiveError as error:
                    if is_gone(error):
                        break
                    raise
                if part.end == start:
                    # Somebody is still writing there, or was killed while writing.
                    self._torn_sizes[folder.name, segment] = size
                    break
                yield News(folder.name, segment, start, part)
                start = part.end

    def next_doc(self, connection: sqlite3.Connection, doc: Doc) -> Doc | None:
        """The row of the message with the next number in the same session."""
        row = connection.execute(
            "SELECT next.id FROM doc JOIN doc AS next ON next.session = doc.session"
            " AND next.seq = doc.seq + 1 AND next.segment != ? WHERE doc.id = ?",
            (NO_SEGMENT, doc.doc_id),
        ).fetchone()
        return None if row is None else next(iter(self.docs(connection, [row[0]])), None)

    def docs(self, connection: sqlite3.Connection, ids: Sequence[int]) -> list[Doc]:
        """The rows of `ids`, in their order; those whose log has gone are left out."""
        rows = connection.execute(
            "SELECT doc.id, session.key, session.session_id, segment.name, offset, length, seq,"
            " seconds, output_id, coalesce(start_byte, 0), coalesce(size_bytes, 0),"
            " coalesce(start_char, 0), coalesce(start_line, 1)"
            " FROM doc JOIN session ON session.id = doc.session"
            " JOIN segment ON segment.id = doc.segment LEFT JOIN part ON part.id = doc.id"
            " WHERE doc.id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        )
        found = {row[0]: Doc(*row) for row in rows}
        return [found[doc_id] for doc_id in ids if doc_id in found]

    def lines(self, docs: Iterable[Doc]) -> Iterator[tuple[Doc, bytes]]:
        """Each row with its line of the log; empty where the log no longer holds it.

        Successive rows are mostly adjacent in the log, and are read at once.
        """
        for (key, segment), neighbors in groupby(docs, lambda doc: (doc.session_key, doc.segment)):
            group = list(neighbors)
            path = session_folder(self._root, key) / segment
            start = min(doc.offset for doc in group)
            end = max(doc.offset + doc.length for doc in group)
            if end - start > _MOST_UNWANTED * sum(doc.length for doc in group):
                for doc in group:
                    yield doc, _read_log(path, doc.offset, doc.length)
                continue
            data = _read_log(path, start, end - start)
            for doc in group:
                yield doc, data[doc.offset - start : doc.offset - start + doc.length]

    def read(self, doc: Doc) -> DocText | None:
        """The text of a row, from the log; None where the log no longer holds it."""
        ((_, line),) = self.lines([doc])
        return self.text(doc, line)

    def text(self, doc: Doc, line: bytes) -> DocText | None:
        """What the line of a row contains; None where the log no longer holds it."""
        try:
            head = decode_head(line)
            if (
                head is None
                or head.get("seq", NO_SEQ) != doc.seq
                or head.get("id") != doc.output_id
            ):
                return None
            body = decode_body(line)
            if BLOB_MARK in line:
                body = internalise(body, self._blobs.read_whole)
            if doc.output_id is None:
                tools = head["tools"]
                stored = read_stored(body, head["format"], tools)
                return DocText(
                    stored.text,
                    head["role"],
                    tools[0] if tools else None,
                    stored.is_own,
                    chain_hash(head["parent"], head["hash"]),
                    head["parent"],
                )
            output = StoredOutput(info_of(head, doc.session_id), body, self._blobs)
            part = decode_text(output.read_bytes(doc.start_byte, doc.size_bytes).data)
            if part is None:
                return None
            return DocText(part, "tool", head["tool"], is_own_tool(head["tool"] or ""))
        except (ArchiveDamagedError, NotFoundError):
            # The doctor reports damaged lines and missing files; a search passes them over.
            return None
        except ArchiveError as error:
            if is_gone(error):
                return None
            raise


def _read_log(path: Path, offset: int, size_bytes: int) -> bytes:
    """Bytes of a segment; none where it is gone."""
    try:
        with explaining(path, "Reading"):
            return read_at(path, offset, size_bytes)
    except ArchiveError as error:
        if is_gone(error):
            return b""
        raise


def _written_nanoseconds(folder: Path) -> int:
    """When the newest segment of a session was last written."""
    try:
        with explaining(folder, "Reading"), os.scandir(folder) as entries:
            return max((entry.stat().st_mtime_ns for entry in entries), default=0)
    except ArchiveError as error:
        if is_gone(error):
            return 0
        raise
