"""Searches of the SQLite index: words ranked or newest first, phrases, and regular expressions.

A query is never handed to FTS5 as it is, so no text of a user is a syntax error.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from context_compaction.archive import History
from context_compaction.archive.documents import DocText
from context_compaction.archive.local.index import Doc, SearchIndex
from context_compaction.archive.local.index_rows import FAMILY, session_tag, time_range_tags
from context_compaction.archive.search.filters import Filter, no_session
from context_compaction.archive.search.word_search import (
    CANDIDATES,
    NEIGHBOR_MESSAGES,
    Candidates,
)
from context_compaction.archive.tokenizer import QueryTerm, stems_of_prefix


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

    def candidates(self, term: QueryTerm) -> Candidates:
        """See `Rows.candidates`."""
        expression = _expression_of(term)
        rows = self._select(expression, CANDIDATES, "bm25(fts, 1.0, 1.0, 0.0, 0.0)")
        if not rows:
            return Candidates({}, self._count(expression), is_whole=True)
        is_whole = len(rows) < CANDIDATES
        count = len(rows) if is_whole and self._allowed.is_open else self._count(expression)
        # FTS5 has weighted it already, at least so much.
        weight = max(math.log((self.row_count - count + 0.5) / (count + 0.5)), 1e-6)
        return Candidates({doc_id: -score / weight for doc_id, score in rows}, count, is_whole)

    def said_within(self, times: Sequence[tuple[float, float]]) -> Candidates:
        """See `Rows.said_within`."""
        tags = chain.from_iterable(time_range_tags(first, last) for first, last in times)
        expression = _any_tag(list(tags))
        rows = self._select(expression, CANDIDATES)
        shares = {doc_id: 1.0 for doc_id, _ in rows}
        return Candidates(shares, self._count(expression), len(rows) < CANDIDATES)

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
        return self._index.docs(self._connection, ids)

    def next_doc(self, doc: Doc) -> Doc | None:
        """See `Rows.next_doc`."""
        return self._index.next_doc(self._connection, doc)

    def read(self, doc: Doc) -> DocText | None:
        """See `Rows.read`."""
        return self._index.read(doc)

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
            raise no_session(allowed.session_id)
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
