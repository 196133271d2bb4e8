"""The search index: what the log holds, by words, derived and thrown away when in doubt.

It is kept on a local disk, keyed by the archive's path, and holds no text: each row names where a
record's line is, and the full-text table is contentless. Before each search it catches up with what
any process has logged since.

A table without contents forgets a row only when it is given the very words of that row again. So
before a session's log is removed, its words are made from the log, and compared with a checksum of
those that were indexed. Where the log no longer holds what was indexed
(a deletion that was killed, a power loss), the whole index is rebuilt.
"""

import json
import math
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from context_compaction.archive import NO_SEQ, History, SessionInfo
from context_compaction.archive.documents import DocText, doc_text
from context_compaction.archive.local.durable_files import MissingFileError, explaining, read_at
from context_compaction.archive.local.index_file import IndexFile
from context_compaction.archive.local.index_rows import (
    BATCH_BYTES,
    FAMILY,
    SCHEMA,
    VERSION,
    IndexRow,
    News,
    StaleIndexError,
    indexed_to,
    insert_rows,
    remove_words,
    session_tag,
    take_in,
    time_range_tags,
)
from context_compaction.archive.local.log import (
    BlobStore,
    decode_body,
    decode_head,
    last_notice,
    read_segment,
    segment_sizes,
    session_folder,
    session_folders,
)
from context_compaction.archive.records import BLOB_MARK, internalise
from context_compaction.archive.search.filters import (
    CANDIDATES,
    NEIGHBOR_MESSAGES,
    Filter,
    Matches,
    Row,
    session_cursor,
    session_page,
)
from context_compaction.archive.tokenizer import QueryTerm, stems_of_prefix
from context_compaction.errors import ArchiveDamagedError, ArchiveError, NotFoundError

# A folder's time stamp is trusted to show later changes only when it is older than this: some
# file systems keep whole seconds.
STAMP_NANOSECONDS = 2_000_000_000
# What was put there by others than writers (a session copied back from a backup) shows in no stamp
# of the outer folder, so each of these is looked at this often, which takes about a millisecond.
FULL_LOOK_SECONDS = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Doc(Row):
    """A row, and where its record's line is.

    Attributes:
        session_key: The hash that names the session's folder.
        segment: The segment that holds the line, from byte `offset`, `length` bytes.
    """

    session_key: str
    segment: str
    offset: int
    length: int


class SearchIndex:
    """The index of one archive. Every method blocks; one thread at a time."""

    def __init__(self, root: Path, index_root: Path) -> None:
        key = blake2b(str(root).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self.root = root
        self.blobs: BlobStore = BlobStore(root / "blobs")
        self._file = IndexFile(index_root / key, SCHEMA, VERSION)
        self._last_notice: int | None = None
        self._look_until_seconds = 0.0
        self._seen_stamps: dict[str, int] = {}
        self._caught_up: sqlite3.Connection | None = None
        # How many rows match an expression, as counted when the index had so many rows.
        self.counts: dict[str, tuple[int, int]] = {}

    @property
    def folder(self) -> Path:
        """Where the index is kept."""
        return self._file.folder

    def close(self) -> None:
        """Close the database."""
        self._file.close()

    def discard(self) -> None:
        """Remove the index with all words in it; the next search makes it anew."""
        self._file.discard()

    def delete(self, session_keys: Collection[str], delete_log: Callable[[], int]) -> int:
        """Remove sessions with all their words; what `delete_log` returns, which removes the logs.

        It is called before the index is committed, so that nobody finds the one without the other.
        Where the words cannot be removed, or a rebuild takes less time, the whole index goes.
        """
        freed: list[int] = []
        has_begun = False

        def delete_once() -> None:
            nonlocal has_begun
            has_begun = True
            if not freed:
                freed.append(delete_log())

        try:
            if self.folder.is_dir():
                self._file.run(partial(self._delete, session_keys, delete_once))
            delete_once()
        except (ArchiveError, StaleIndexError):
            if has_begun and not freed:
                raise  # the log could not be deleted, and the index is as it was
            delete_once()
            self.discard()
        self.counts = {}
        return freed[0]

    def _delete(
        self,
        session_keys: Collection[str],
        delete_log: Callable[[], None],
        connection: sqlite3.Connection,
    ) -> None:
        with self._file.rewriting(connection):
            sessions = connection.execute(
                "SELECT id, key, (SELECT count(*) FROM doc WHERE session = session.id) FROM session"
                " WHERE key IN (SELECT value FROM json_each(?))",
                (json.dumps(list(session_keys)),),
            ).fetchall()
            (row_count,) = connection.execute("SELECT count(*) FROM doc").fetchone()
            if sum(count for _, _, count in sessions) > row_count / 2:  # a rebuild is faster
                raise StaleIndexError
            for session, key, _ in sessions:
                remove_words(connection, self.blobs, session, session_folder(self.root, key))
                for table in ("doc", "segment"):
                    connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
                connection.execute("DELETE FROM session WHERE id = ?", (session,))
            if sessions:
                # Until its parts are merged, the table keeps the words and the note of their end.
                connection.execute("INSERT INTO fts (fts) VALUES ('optimize')")
            delete_log()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns of the index, once that has caught up with the log."""

        def caught_up(connection: sqlite3.Connection) -> T:
            self._catch_up(connection)
            return work(connection)

        while True:
            try:
                return self._file.run(caught_up)
            except StaleIndexError:
                self.discard()

    def find_output(self, output_id: str) -> str | None:
        """A session that holds an output, as far as the index has come; else None."""

        def find(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(
                "SELECT session_id FROM doc JOIN session ON session.id = doc.session"
                " WHERE output_id = ? LIMIT 1",
                (output_id,),
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
        before = session_cursor(limit, cursor)

        def select(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            family = "" if family_of is None else f" AND id IN ({FAMILY})"
            named = () if family_of is None else (family_of,)
            return connection.execute(
                "SELECT id, session_id, parent, format, (SELECT count(*) FROM doc"
                f" WHERE doc.session = session.id AND seq != {NO_SEQ} AND start_byte = 0),"
                " first_seconds, last_seconds, title FROM session"
                f" WHERE (last_seconds, id) < (?, ?){family}"
                " ORDER BY last_seconds DESC, id DESC LIMIT ?",
                (*before, *named, limit + 1),
            ).fetchall()

        return session_page(self.run(select), limit)

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Index whatever any process has logged and the index does not hold."""
        noticed = last_notice(self.root)
        is_long_ago = time.time_ns() - noticed > STAMP_NANOSECONDS
        if connection is not self._caught_up:
            self._last_notice = None
            self._seen_stamps = dict(connection.execute("SELECT folder, nanoseconds FROM stamp"))
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
                connection.execute("DELETE FROM stamp")
                connection.executemany("INSERT INTO stamp VALUES (?, ?)", stamps.items())
        self._seen_stamps = stamps
        self._last_notice = noticed if is_long_ago else None
        self._look_until_seconds = time.monotonic() + FULL_LOOK_SECONDS

    def _news(self, connection: sqlite3.Connection, stamps: dict[str, int]) -> Iterator[News]:
        """What is new in the folders whose time stamp has moved; notes the stamps to trust."""
        written = self._folder_stamps()
        moved = {name for name, _ in written.items() ^ self._seen_stamps.items()}
        trusted_from = time.time_ns() - STAMP_NANOSECONDS
        stamps.update(item for item in written.items() if item[1] < trusted_from)
        self._check_rows(connection, moved)
        changed = session_folders(self.root, sorted(moved & written.keys()))
        # A rebuilt index gets the sessions in about the order in which they were written.
        for folder in sorted(changed, key=_written_nanoseconds) if len(changed) > 1 else changed:
            yield from self._session_news(connection, folder)

    def _folder_stamps(self) -> dict[str, int]:
        """When each outer folder of the log was last written to, Unix nanoseconds."""
        sessions = self.root / "sessions"
        with explaining(sessions, "Reading"):
            try:
                with os.scandir(sessions) as entries:
                    return {entry.name: entry.stat().st_mtime_ns for entry in entries}
            except FileNotFoundError:
                return {}

    def _check_rows(self, connection: sqlite3.Connection, folders: Collection[str]) -> None:
        """Compare the rows of sessions in these outer folders of the log with the log.

        Raises:
            StaleIndexError: A segment is gone, shorter than indexed, or other than indexed.
        """
        for folder in folders:
            for row in self._segments(connection, folder):
                key, name, end, tail_length, tail_crc = row
                path = session_folder(self.root, key) / name
                tail = _read_log(path, end - tail_length, tail_length)
                if len(tail) != tail_length or zlib.crc32(tail) != tail_crc:
                    # A deletion may have removed the log, and not committed the index yet.
                    self._file.wait()
                    if row in self._segments(connection, folder):
                        raise StaleIndexError

    def _segments(self, connection: sqlite3.Connection, folder: str) -> list[tuple[Any, ...]]:
        """The rows of the segments of sessions in an outer folder of the log."""
        return connection.execute(
            "SELECT session.key, name, indexed_to, tail_length, tail_crc"
            " FROM segment JOIN session ON session.id = segment.session"
            " WHERE session.key BETWEEN ?1 AND ?1 || 'g'",  # keys are hexadecimal
            (folder,),
        ).fetchall()

    def _session_news(self, connection: sqlite3.Connection, folder: Path) -> Iterator[News]:
        for segment, size in segment_sizes(folder).items():
            start = indexed_to(connection, folder.name, segment)
            while start < size:
                try:
                    part = read_segment(
                        folder, segment, start, limit_bytes=BATCH_BYTES, with_lines=True
                    )
                except MissingFileError:
                    break
                if part.end == start:
                    break  # somebody is still writing there, or was killed while writing
                yield News(folder.name, segment, start, part)
                start = part.end

    def _insert(self, connection: sqlite3.Connection, batch: Sequence[News]) -> bool:
        """Index `batch`; return whether it was all still to be indexed, and still there."""
        if not batch:
            return True
        is_whole = True
        rows: list[IndexRow] = []
        try:
            with self._file.transaction(connection):
                for news in batch:
                    known_to = indexed_to(connection, news.session_key, news.segment)
                    path = session_folder(self.root, news.session_key) / news.segment
                    if known_to == news.start and path.exists():
                        rows += take_in(connection, self.blobs, news)
                    else:
                        is_whole = False  # another process was faster, or deleted it
                insert_rows(connection, rows)
        except MissingFileError:
            return False
        return is_whole


def _read_log(path: Path, offset: int, size_bytes: int) -> bytes:
    """Bytes of a segment; none where it is gone."""
    with suppress(MissingFileError), explaining(path, "Reading"):
        return read_at(path, offset, size_bytes)
    return b""


def _written_nanoseconds(folder: Path) -> int:
    """When the newest segment of a session was last written."""
    with suppress(MissingFileError), explaining(folder, "Reading"), os.scandir(folder) as entries:
        return max((entry.stat().st_mtime_ns for entry in entries), default=0)
    return 0


@contextmanager
def interrupted_by(connection: sqlite3.Connection, check: Callable[[], None]) -> Generator[None]:
    """End the block's work in SQLite when `check` raises, and raise that."""
    # So many steps of SQLite's machine take less than a millisecond. What is raised in there
    # interrupts SQLite, and is not passed on.
    connection.set_progress_handler(check, 10_000)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            check()
        raise
    finally:
        connection.set_progress_handler(None, 0)


class IndexRows:
    """The rows of one archive that a filter lets through, for one search: see `Rows`."""

    def __init__(self, index: SearchIndex, connection: sqlite3.Connection, allowed: Filter) -> None:
        """Prepare the filter.

        Raises:
            NotFoundError: There is no session of the name that is given.
        """
        self._index = index
        self._connection = connection
        self._allowed = allowed
        self._match = _match_of(connection, allowed)
        self._ids = None if allowed.within is None else _rows_of(connection, allowed)
        (row_count,) = connection.execute("SELECT coalesce(max(id), 0) FROM doc").fetchone()
        self.row_count: int = row_count

    def candidates(self, term: QueryTerm) -> Matches:
        """See `Rows.candidates`."""
        expression = _expression_of(term)
        rows = self._select(expression, CANDIDATES, "bm25(fts, 1.0, 1.0, 0.0, 0.0)")
        if not rows:
            return Matches({}, self._count(expression), is_whole=True)
        is_whole = len(rows) < CANDIDATES
        count = len(rows) if is_whole and self._allowed.is_open else self._count(expression)
        # FTS5 has weighted it already, at least so much.
        weight = max(math.log((self.row_count - count + 0.5) / (count + 0.5)), 1e-6)
        return Matches({doc_id: -score / weight for doc_id, score in rows}, count, is_whole)

    def within_times(self, times: Sequence[tuple[float, float]]) -> Matches:
        """See `Rows.within_times`."""
        tags = chain.from_iterable(time_range_tags(first, last) for first, last in times)
        expression = _any_tag(list(tags))
        rows = self._select(expression, CANDIDATES)
        shares = {doc_id: 1.0 for doc_id, _ in rows}
        return Matches(shares, self._count(expression), len(rows) < CANDIDATES)

    def newest(self, terms: Sequence[QueryTerm], limit: int, *, every: bool = False) -> list[int]:
        """See `Rows.newest`."""
        expression = (" AND " if every else " OR ").join(map(_expression_of, terms))
        return [doc_id for doc_id, _ in self._select(expression, limit)]

    def by_time(self, ids: Sequence[int]) -> list[int]:
        """See `Rows.by_time`."""
        times = self._connection.execute(
            "SELECT id FROM doc WHERE id IN (SELECT value FROM json_each(?))"
            " ORDER BY seconds DESC, id DESC",
            (json.dumps(ids),),
        )
        return [doc_id for (doc_id,) in times]

    def docs(self, ids: Sequence[int]) -> list[Doc]:
        """See `Rows.docs`."""
        rows = self._connection.execute(
            "SELECT doc.id, session_id, seq, output_id, start_byte, size_bytes, start_char,"
            " start_line, seconds, key, segment.name, offset, length"
            " FROM doc JOIN session ON session.id = doc.session"
            " JOIN segment ON segment.id = doc.segment"
            " WHERE doc.id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        )
        found = {row[0]: Doc(*row) for row in rows}
        return [found[doc_id] for doc_id in ids if doc_id in found]

    def next_doc(self, doc: Doc) -> Doc | None:
        """See `Rows.next_doc`."""
        row = self._connection.execute(
            "SELECT next.id FROM doc JOIN doc AS next ON next.session = doc.session"
            " AND next.seq = doc.seq + 1 WHERE doc.id = ?",
            (doc.doc_id,),
        ).fetchone()
        return None if row is None else next(iter(self.docs(row)), None)

    def read(self, doc: Doc) -> DocText | None:
        """See `Rows.read`."""
        blobs = self._index.blobs
        path = session_folder(self._index.root, doc.session_key) / doc.segment
        line = _read_log(path, doc.offset, doc.length)
        try:
            head = decode_head(line)
            named = head and (head.get("seq", NO_SEQ), head.get("id"))
            if head is None or named != (doc.seq, doc.output_id):
                return None
            body = decode_body(line)
            if BLOB_MARK in line:
                body = internalise(body, blobs.read_whole)
            return doc_text(head, body, doc.start_byte, doc.size_bytes, blobs)
        except (ArchiveDamagedError, NotFoundError, MissingFileError):
            # The doctor reports damaged lines and missing files; a search passes them over.
            return None

    def near(self, ids: Sequence[int]) -> dict[int, dict[int, int]]:
        """See `Rows.near`."""
        found = self._connection.execute(
            "SELECT doc.id, near.id, abs(near.seq - doc.seq) FROM doc JOIN doc AS near"
            " ON near.session = doc.session AND near.seq BETWEEN doc.seq - ?1 AND doc.seq + ?1"
            " WHERE doc.seq >= 0 AND near.seq >= 0 AND near.seq != doc.seq"
            " AND doc.id IN (SELECT value FROM json_each(?2))"
            " AND (?3 IS NULL OR near.id IN (SELECT value FROM json_each(?3)))",
            (NEIGHBOR_MESSAGES, json.dumps(ids), self._ids),
        )
        near: dict[int, dict[int, int]] = {}
        for doc_id, other, distance in found:
            near.setdefault(doc_id, {})[other] = distance
        return near

    def newest_docs(self, terms: Sequence[QueryTerm], limit: int) -> list[Doc]:
        """See `Rows.newest_docs`."""
        expression = " AND ".join(map(_expression_of, terms))
        return self.docs([doc_id for doc_id, _ in self._select(expression, limit)])

    def _select(self, expression: str, limit: int, score: str = "0") -> list[tuple[Any, ...]]:
        """The last `limit` rows that match an FTS5 expression, last first, and a score of each."""
        match = " AND ".join(f"({part})" for part in (expression, self._match) if part)
        excluded = _any_tag(self._allowed.without_tags)
        if not match:
            source, doc_id, score = "doc WHERE ?1 = ''", "id", "0"
            if excluded:
                source = "doc WHERE id NOT IN (SELECT rowid FROM fts WHERE fts MATCH ?1)"
                match = excluded
        else:
            # The other order would look up every row of the archive.
            source = "fts CROSS JOIN doc ON doc.id = fts.rowid WHERE fts MATCH ?1"
            doc_id = "fts.rowid"
            match = f"({match}) NOT ({excluded})" if excluded else match
        allowed = self._allowed
        times = allowed.since_seconds, allowed.until_seconds
        return self._connection.execute(
            f"SELECT {doc_id}, {score} FROM {source}"
            f" AND {doc_id} <= ?2 AND seconds BETWEEN ?3 AND ?4"
            f" AND (?5 IS NULL OR {doc_id} IN (SELECT value FROM json_each(?5)))"
            f" ORDER BY {doc_id} DESC LIMIT ?6",
            (match, allowed.last_id, *times, self._ids, limit),
        ).fetchall()

    def _count(self, expression: str) -> int:
        """How many rows match `expression`, whatever the filter."""
        row_count, count = self._index.counts.get(expression, (-1, 0))
        if row_count != self.row_count:
            (count,) = self._connection.execute(
                "SELECT count(*) FROM fts WHERE fts MATCH ?", (expression,)
            ).fetchone()
            if len(self._index.counts) > 10_000:
                self._index.counts.clear()
            self._index.counts[expression] = (self.row_count, count)
        return count


def _match_of(connection: sqlite3.Connection, allowed: Filter) -> str:
    """The FTS5 expression of a filter; empty where it lets everything through."""
    groups: list[str] = []
    if allowed.session_id is not None:
        family = connection.execute(FAMILY, (allowed.session_id,)).fetchall()
        if not family:
            raise NotFoundError.of_session(allowed.session_id)
        groups.append(_any_tag([session_tag(session) for (session,) in family]))
    groups += [_any_tag([tag]) for tag in allowed.tags]
    since, until = allowed.since_seconds, allowed.until_seconds
    if (since, until) != (-math.inf, math.inf):
        first, last = connection.execute(
            "SELECT coalesce(min(first_seconds), 0), coalesce(max(last_seconds), 0) FROM session"
        ).fetchone()
        groups.append(_any_tag(time_range_tags(max(since, first), min(until, last)) or ["none"]))
    if allowed.path is not None:
        groups.append(f'{{words paths}} : "{" ".join(allowed.path.words)}"')
    return " AND ".join(f"({group})" for group in groups)


def _any_tag(tags: Sequence[str]) -> str:
    """The FTS5 expression of rows with any of the tags; empty for none."""
    return f"meta : ({' OR '.join(tags)})" if tags else ""


def _expression_of(term: QueryTerm) -> str:
    """The FTS5 expression of a term; its words are letters and digits only, so quotes are safe."""
    columns = "words" if len(term.words) > 1 else "{words parts}"
    if not term.is_prefix:
        return f'({columns} : "{" ".join(term.words)}")'
    *before, last = list(term.words)
    expressions = [f'({columns} : "{" ".join(term.words)}" *)']
    # What is indexed is the stem, which may be shorter than the prefix, or end otherwise.
    expressions += [
        f'({columns} : "{" ".join([*before, stem])}")' for stem in stems_of_prefix(last)
    ]
    return f"({' OR '.join(expressions)})"


def _rows_of(connection: sqlite3.Connection, allowed: Filter) -> str:
    """The rows of the messages and outputs of one history of a session, as a JSON list."""
    history = allowed.within or History("", ())
    rows = connection.execute(
        "SELECT doc.id FROM doc JOIN session ON session.id = doc.session WHERE session_id = ?"
        " AND iif(output_id IS NULL, seq IN (SELECT value FROM json_each(?)),"
        " output_id IN (SELECT value FROM json_each(?)))",
        (allowed.session_id, json.dumps(history.seqs), json.dumps(sorted(history.output_ids))),
    )
    return json.dumps([doc_id for (doc_id,) in rows])
