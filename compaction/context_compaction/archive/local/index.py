"""The search index of a local archive: derived from the log, and rebuilt if it is in doubt.

The index is kept on a local disk, in a folder named by a hash of the archive's path. It contains no
text: each row refers to the line of a record in the log, and the full-text table is contentless.
Before each search the index catches up with everything that any process has logged.

If the log no longer contains an indexed line (a deletion, a power loss, a restored backup), the
rows of that session are removed and its remaining lines are indexed again. Before version 3.43,
SQLite cannot remove such rows, so the whole index is rebuilt instead (measured: 20,000 messages are
indexed in 14 s, and 400 of them removed in 1 s).
"""

import json
import math
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from context_compaction.archive.archive import StoredSizes
from context_compaction.archive.documents import DocText, doc_text
from context_compaction.archive.local import index_file, log
from context_compaction.archive.local.durable_files import MissingFileError, explaining, read_at
from context_compaction.archive.local.log import report_work
from context_compaction.archive.records import parse_body
from context_compaction.archive.search import filters
from context_compaction.archive.tokenizer import QueryTerm, stems_of_prefix
from context_compaction.archive.transcript_state import Description
from context_compaction.archive.values import NO_SEQ, History, SessionInfo
from context_compaction.errors import ArchiveDamagedError, ArchiveError, NotFoundError

# A folder's time stamp reliably shows later changes only if it is older than this, because some
# file systems store whole seconds.
STAMP_NANOSECONDS = 2_000_000_000

T = TypeVar("T")


class SearchIndex:
    """The index of one archive. All methods block; one thread at a time.

    Attributes:
        root: Folder of the archive.
        blobs: Large contents of the archive.
    """

    def __init__(self, root: Path, index_root: Path) -> None:
        key = blake2b(str(root).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self.root: Path = root
        self.blobs: log.BlobStore = log.BlobStore(root / "blobs")
        self._file = index_file.IndexFile(index_root / key)

    @property
    def folder(self) -> Path:
        """Folder of the index."""
        return self._file.folder

    def close(self) -> None:
        """Close the database."""
        self._file.close()

    def delete(self, delete_log: Callable[[], int]) -> int:
        """Return the result of `delete_log`, and erase the words of the sessions that it deletes.

        If the words cannot be erased, the whole index is removed; the next search rebuilds it.
        """
        freed = delete_log()
        try:
            if self.folder.is_dir():
                with self._file.lock():
                    pass  # a process that read the log before the deletion may still be writing
                self._file.run(self._catch_up)
        except (ArchiveError, index_file.StaleIndexError):
            self._file.discard()
        return freed

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, after the index has caught up with the log."""

        def caught_up(connection: sqlite3.Connection) -> T:
            self._catch_up(connection)
            return work(connection)

        while True:
            try:
                return self._file.run(caught_up)
            except index_file.StaleIndexError:
                self._file.discard()

    def find_output(self, output_id: str) -> str | None:
        """Return the ID of a session that contains an output. None if the output is not indexed."""

        def find(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(
                "SELECT session_id FROM doc JOIN session ON session.id = doc.session"
                " WHERE output_id = ? LIMIT 1",
                (output_id,),
            ).fetchone()
            return None if row is None else str(row[0])

        # An output never leaves its session, so catching up is needed only if it is not found.
        return self._file.run(find) or self.run(find)

    def list_sessions(
        self, limit: int, cursor: str | None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """See `Archive.sessions`.

        Raises:
            QueryError: `limit` is below 1, or the cursor is invalid.
        """
        before = filters.session_cursor(limit, cursor)
        family = "" if family_of is None else f" AND id IN ({index_file.FAMILY})"
        parameters = () if family_of is None else (family_of,)
        rows = self._select(
            f"SELECT id, description FROM session WHERE (last_seconds, id) < (?, ?){family}"
            " ORDER BY last_seconds DESC, id DESC LIMIT ?",
            (*before, *parameters, limit + 1),
        )
        return filters.session_page(rows, limit)

    def stored_sizes(self, blob_bytes: Mapping[str, int]) -> StoredSizes:
        """Return the sizes of all sessions, given the sizes of all large contents by digest."""
        sessions = self._select(
            "SELECT description, sum(indexed_to) FROM session"
            " JOIN segment ON segment.session = session.id GROUP BY session.id"
        )
        uses = self._select(
            "SELECT session_id, digest FROM blob_use JOIN session ON session.id = session"
        )
        usage = (Description.from_json(text).usage(size) for text, size in sessions)
        return StoredSizes(usage, uses, blob_bytes)

    def _select(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of one statement, after the index has caught up with the log."""
        return self.run(lambda connection: connection.execute(sql, parameters).fetchall())

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Index everything that any process has logged and the index does not contain.

        Raises:
            StaleIndexError: The index must be rebuilt.
        """
        seen = dict(connection.execute("SELECT folder, nanoseconds FROM stamp"))
        stamps = log.folder_stamps(self.root)
        changed = {name for name, _ in stamps.items() ^ seen.items()}
        reliable_until = time.time_ns() - STAMP_NANOSECONDS
        self._remove_stale_sessions(connection, changed)
        folders = [
            folder
            for folder in log.session_folders(self.root, sorted(changed & stamps.keys()))
            if any(size > start for _, start, size in _new_ends(connection, folder))
        ]
        if len(folders) > 1:
            # A rebuilt index gets the sessions roughly in the order in which they were written.
            folders.sort(key=_last_write_nanoseconds)
        parts = _new_parts(connection, folders)
        while folders and self._insert(connection, parts):
            pass
        reliable = {name: stamp for name, stamp in stamps.items() if stamp < reliable_until}
        if reliable != seen:
            with self._file.transaction(connection):
                connection.execute("DELETE FROM stamp")
                connection.executemany("INSERT INTO stamp VALUES (?, ?)", reliable.items())

    def _remove_stale_sessions(
        self, connection: sqlite3.Connection, outer_folders: Collection[str]
    ) -> None:
        """Remove the rows of sessions whose segments are missing, shorter or different.

        The sessions' remaining lines are indexed again like new lines.

        Raises:
            StaleIndexError: The index should be rebuilt instead.
        """
        stale: set[str] = set()
        for folder in outer_folders:
            segments = connection.execute(
                "SELECT session.key, name, indexed_to, tail_length, tail_crc"
                " FROM segment JOIN session ON session.id = segment.session"
                " WHERE session.key BETWEEN ?1 AND ?1 || 'g'",  # keys are hexadecimal
                (folder,),
            )
            for key, name, end, tail_length, tail_crc in segments.fetchall():
                path = log.session_folder(self.root, key) / name
                tail = _read_log(path, end - tail_length, tail_length)
                if len(tail) != tail_length or zlib.crc32(tail) != tail_crc:
                    stale.add(key)
        if stale:
            with self._file.erasing(connection):
                index_file.remove_sessions(connection, stale)

    def _insert(
        self, connection: sqlite3.Connection, parts: Iterator[tuple[Path, str, log.SegmentPart]]
    ) -> bool:
        """Index parts of about `BATCH_BYTES` together; return whether there may be more.

        The parts are read under the lock of the index, so no other process indexes them as well.
        """
        size_bytes = 0
        rows: list[index_file.IndexRow] = []
        with self._file.transaction(connection):
            for folder, segment, part in parts:
                rows += index_file.rows_of_part(connection, self.blobs, folder.name, segment, part)
                size_bytes += part.size_bytes
                if size_bytes >= index_file.BATCH_BYTES:
                    break
            index_file.insert_rows(connection, rows)
        return size_bytes >= index_file.BATCH_BYTES


def _new_ends(connection: sqlite3.Connection, folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield for each segment of a session where the index ends, and where the segment ends."""
    for segment, size in log.segment_sizes(folder).items():
        yield segment, index_file.indexed_to(connection, folder.name, segment), size


def _new_parts(
    connection: sqlite3.Connection, folders: Sequence[Path]
) -> Iterator[tuple[Path, str, log.SegmentPart]]:
    """Yield parts of segments that the index lacks, after the previous part was indexed."""
    for number, folder in enumerate(folders):
        if len(folders) > 1:
            report_work(number, len(folders), "sessions indexed")
        for segment, start, size in _new_ends(connection, folder):
            while start < size:
                try:
                    part = log.read_segment(
                        folder, segment, start, limit_bytes=index_file.BATCH_BYTES, with_lines=True
                    )
                except MissingFileError:
                    break
                if not part.size_bytes:
                    break  # a process is still writing, or was killed while writing
                if size > index_file.BATCH_BYTES:
                    report_work(start >> 20, size >> 20, "MB of a session indexed")
                yield folder, segment, part
                # Another process may have indexed more before the next batch.
                start = index_file.indexed_to(connection, folder.name, segment)


def _read_log(path: Path, offset: int, size_bytes: int) -> bytes:
    """Return bytes of a segment; empty if the segment is missing."""
    with suppress(MissingFileError), explaining(path, "Reading"):
        return read_at(path, offset, size_bytes)
    return b""


def _last_write_nanoseconds(folder: Path) -> int:
    """Return when the newest segment of a session was last written, in Unix nanoseconds."""
    segments = log.statuses(folder, folder.parents[2]).values()
    return max((status.st_mtime_ns for status in segments), default=0)


@contextmanager
def interrupted_by(connection: sqlite3.Connection, check: Callable[[], None]) -> Generator[None]:
    """Stop SQLite's work in the block when `check` raises, and raise that error."""
    # SQLite takes less than 1 ms for this many steps. It ignores which error the handler raises,
    # so `check` is called again outside of SQLite.
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
    """The rows that pass a filter, for one search; see `Rows`.

    Attributes:
        row_count: Number of rows, including removed rows.
    """

    def __init__(
        self, index: SearchIndex, connection: sqlite3.Connection, allowed: filters.Filter
    ) -> None:
        """Compile the filter.

        Raises:
            NotFoundError: The filter's session does not exist.
        """
        self._index = index
        self._connection = connection
        self._allowed = allowed
        self._match = _match_of(connection, allowed)
        self._ids = None if allowed.within is None else _rows_of(connection, allowed)
        self.row_count: int = index_file.last_row_id(connection)

    def candidates(self, term: QueryTerm) -> filters.Matches:
        """See `Rows.candidates`."""
        expression = _expression_of(term)
        rows = self._select(expression, filters.CANDIDATES, "bm25(fts, 1.0, 1.0, 0.0, 0.0)")
        if not rows:
            return filters.Matches({}, self._count(expression), is_complete=True)
        is_complete = len(rows) < filters.CANDIDATES
        count = len(rows) if is_complete and self._allowed.is_open else self._count(expression)
        # FTS5 has already multiplied by this weight, which is at least 1e-6.
        weight = max(math.log((self.row_count - count + 0.5) / (count + 0.5)), 1e-6)
        shares = {doc_id: -score / weight for doc_id, _, score in rows}
        return filters.Matches(shares, count, is_complete)

    def newest(
        self, terms: Sequence[QueryTerm], limit: int, *, every: bool = False
    ) -> dict[int, float]:
        """See `Rows.newest`."""
        expression = (" AND " if every else " OR ").join(map(_expression_of, terms))
        return {doc_id: seconds for doc_id, seconds, _ in self._select(expression, limit)}

    def docs(self, ids: Sequence[int]) -> list[filters.Row]:
        """See `Rows.docs`."""
        rows = self._connection.execute(
            "SELECT doc.id, session_id, seq, output_id, start_byte, size_bytes, start_char,"
            " start_line, seconds, key, segment.name, offset, length"
            " FROM doc JOIN session ON session.id = doc.session"
            " JOIN segment ON segment.id = doc.segment"
            " WHERE doc.id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        )
        docs = {row[0]: filters.Row(row[9:], *row[:9]) for row in rows}
        return [docs[doc_id] for doc_id in ids if doc_id in docs]

    def read(self, doc: filters.Row) -> DocText | None:
        """See `Rows.read`."""
        blobs, (session_key, segment, offset, length) = self._index.blobs, doc.record
        path = log.session_folder(self._index.root, session_key) / segment
        line = _read_log(path, offset, length)
        try:
            head_json, body = log.decode_line(line)
            head = json.loads(head_json)
            if (head.get("seq", NO_SEQ), head.get("id")) != (doc.seq, doc.output_id):
                return None
            return doc_text(
                head, parse_body(body, blobs.get), doc.start_byte, doc.size_bytes, blobs
            )
        except (ArchiveDamagedError, NotFoundError, MissingFileError):
            return None  # the doctor command reports damage; a search ignores it

    def near(self, ids: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """See `Rows.near`."""
        return self._connection.execute(
            "SELECT doc.id, near.id, near.seq - doc.seq FROM doc JOIN doc AS near"
            " ON near.session = doc.session AND near.seq BETWEEN doc.seq - ?1 AND doc.seq + ?1"
            " WHERE doc.seq >= 0 AND near.seq >= 0 AND near.seq != doc.seq"
            " AND doc.id IN (SELECT value FROM json_each(?2))"
            " AND (?3 IS NULL OR near.id IN (SELECT value FROM json_each(?3)))",
            (filters.NEIGHBOR_MESSAGES, json.dumps(ids), self._ids),
        )

    def _select(self, expression: str, limit: int, score: str = "0") -> list[tuple[Any, ...]]:
        """Return ID, time and score of the newest `limit` matches of an FTS5 expression."""
        match = " AND ".join(f"({part})" for part in (expression, self._match) if part)
        excluded = _any_tag(self._allowed.without_tags)
        if not match:
            source, doc_id, score = "doc WHERE ?1 = ''", "id", "0"
            if excluded:
                source = "doc WHERE id NOT IN (SELECT rowid FROM fts WHERE fts MATCH ?1)"
                match = excluded
        else:
            # CROSS JOIN fixes the order; the other one would look up every row of the archive.
            source = "fts CROSS JOIN doc ON doc.id = fts.rowid WHERE fts MATCH ?1"
            doc_id = "fts.rowid"
            match = f"({match}) NOT ({excluded})" if excluded else match
        allowed = self._allowed
        times = allowed.since_seconds, allowed.until_seconds
        return self._connection.execute(
            f"SELECT {doc_id}, seconds, {score} FROM {source}"
            f" AND {doc_id} <= ?2 AND seconds BETWEEN ?3 AND ?4"
            f" AND (?5 IS NULL OR {doc_id} IN (SELECT value FROM json_each(?5)))"
            f" ORDER BY {doc_id} DESC LIMIT ?6",
            (match, allowed.last_id, *times, self._ids, limit),
        ).fetchall()

    def _count(self, expression: str) -> int:
        """Return how many rows match `expression` without any filter."""
        (count,) = self._connection.execute(
            "SELECT count(*) FROM fts WHERE fts MATCH ?", (expression,)
        ).fetchone()
        return int(count)


def _match_of(connection: sqlite3.Connection, allowed: filters.Filter) -> str:
    """Return the FTS5 expression of a filter; empty if the filter passes all rows."""
    groups: list[str] = []
    if allowed.session_id is not None:
        family = connection.execute(index_file.FAMILY, (allowed.session_id,)).fetchall()
        if not family:
            raise NotFoundError.of_session(allowed.session_id)
        groups.append(_any_tag([index_file.session_tag(session) for (session,) in family]))
    groups += [_any_tag([tag]) for tag in allowed.tags]
    if allowed.path is not None:
        groups.append(f'{{words paths}} : "{" ".join(allowed.path.words)}"')
    return " AND ".join(f"({group})" for group in groups)


def _any_tag(tags: Sequence[str]) -> str:
    """Return the FTS5 expression for rows with any of the tags; empty without tags."""
    return f"meta : ({' OR '.join(tags)})" if tags else ""


def _expression_of(term: QueryTerm) -> str:
    """Return the FTS5 expression of a term. Words contain no quotes, so quoting them is safe."""
    columns = "words" if len(term.words) > 1 else "{words parts}"
    if not term.is_prefix:
        return f'({columns} : "{" ".join(term.words)}")'
    *before, last = list(term.words)
    expressions = [f'({columns} : "{" ".join(term.words)}" *)']
    # The index contains stems, which may be shorter than the prefix or end differently.
    expressions += [
        f'({columns} : "{" ".join([*before, stem])}")' for stem in stems_of_prefix(last)
    ]
    return f"({' OR '.join(expressions)})"


def _rows_of(connection: sqlite3.Connection, allowed: filters.Filter) -> str:
    """Return the row IDs of the messages and outputs of one branch, as a JSON list."""
    history = allowed.within or History("", ())
    rows = connection.execute(
        "SELECT doc.id FROM doc JOIN session ON session.id = doc.session WHERE session_id = ?"
        " AND iif(output_id IS NULL, seq IN (SELECT value FROM json_each(?)),"
        " output_id IN (SELECT value FROM json_each(?)))",
        (allowed.session_id, json.dumps(history.seqs), json.dumps(sorted(history.output_ids))),
    )
    return json.dumps([doc_id for (doc_id,) in rows])
