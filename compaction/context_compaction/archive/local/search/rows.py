"""The rows of the SQLite index that a filter lets through: see `Rows`."""

import json
import math
import sqlite3
from collections.abc import Sequence

from context_compaction.archive.local.search.fts_tables import (
    IN_HISTORY,
    NO_SEGMENT,
    Filter,
    Partition,
    expression_of,
    load_partitions,
    newest_ids,
    time_range_tokens,
)
from context_compaction.archive.local.search.index import Doc, SearchIndex
from context_compaction.archive.ranking import NEIGHBOR_MESSAGES
from context_compaction.archive.search.hits import DocText
from context_compaction.archive.search.word_search import CANDIDATES, Candidates
from context_compaction.archive.tokenizer import QueryTerm

_LEAST_IDF = 1e-6  # what FTS5 takes for a word that most rows contain


class IndexRows:
    """The rows of one archive, for one search."""

    def __init__(self, index: SearchIndex, connection: sqlite3.Connection, allowed: Filter) -> None:
        self._index = index
        self._connection = connection
        self._allowed = allowed
        self._partitions = load_partitions(connection)

    @property
    def row_count(self) -> int:
        """See `Rows.row_count`."""
        return sum(partition.doc_count for partition in self._partitions)

    def candidates(self, term: QueryTerm) -> Candidates:
        """See `Rows.candidates`: in the newest partitions that hold so many."""
        expression = expression_of(term)
        shares: dict[int, float] = {}
        searched = rows_with = 0
        is_whole = True
        for partition in self._partitions:
            table = partition.table
            limit = CANDIDATES - len(shares)
            rows = self._connection.execute(
                f"SELECT rowid, bm25({table}, 1.0, 1.0, 0.0, 0.0)"  # noqa: S608
                f" FROM {table} WHERE {table} MATCH ?1 AND rowid <= ?2 AND {IN_HISTORY}"
                " ORDER BY rowid DESC LIMIT ?3",
                (self._allowed.match(expression), self._allowed.last_id, limit, self._allowed.ids),
            ).fetchall()
            searched += partition.doc_count
            if not rows:
                continue
            count = self._count(partition, expression, len(rows) if len(rows) < limit else None)
            rows_with += count
            # FTS5 has weighted it within this table; the weight is to be that of all rows.
            within = max(math.log((partition.doc_count - count + 0.5) / (count + 0.5)), _LEAST_IDF)
            allowed = set(self._allowed.living(self._connection, [doc_id for doc_id, _ in rows]))
            shares.update((doc_id, -score / within) for doc_id, score in rows if doc_id in allowed)
            if len(rows) == limit:
                is_whole = False
                break
        row_count = rows_with * self.row_count / max(searched, 1)
        return Candidates(shares, row_count, is_whole)

    def said_within(self, times: Sequence[tuple[float, float]]) -> Candidates:
        """See `Rows.said_within`."""
        tokens = [token for first, last in times for token in time_range_tokens(first, last)]
        if not tokens:
            return Candidates({}, 0, True)
        expression = Filter((tuple(tokens),)).match("")
        ids = newest_ids(self._connection, self._partitions, self._allowed, expression, CANDIDATES)
        count = sum(self._count(partition, expression, None) for partition in self._partitions)
        shares = dict.fromkeys(self._allowed.living(self._connection, ids), 1.0)
        return Candidates(shares, count, len(ids) < CANDIDATES)

    def newest(
        self, terms: Sequence[QueryTerm], limit: int, *, every: bool = False
    ) -> tuple[list[int], int]:
        """See `Rows.newest`."""
        expression = (" AND " if every else " OR ").join(map(expression_of, terms))
        ids = newest_ids(self._connection, self._partitions, self._allowed, expression, limit)
        return self._allowed.living(self._connection, ids), len(ids)

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
            " WHERE doc.seq >= 0 AND near.seq >= 0 AND near.seq != doc.seq AND near.segment != ?4"
            " AND doc.id IN (SELECT value FROM json_each(?2))"
            " AND (?3 IS NULL OR near.id IN (SELECT value FROM json_each(?3)))",
            (NEIGHBOR_MESSAGES, json.dumps(ids), self._allowed.ids, NO_SEGMENT),
        )
        near: dict[int, dict[int, int]] = {}
        for doc_id, other, distance in found:
            near.setdefault(doc_id, {})[other] = distance
        return near

    def _count(self, partition: Partition, expression: str, known: int | None) -> int:
        """How many rows of a partition match `expression`, whatever the filter."""
        if known is not None and self._allowed.is_open:
            return known
        key = (partition.table, expression)
        doc_count, count = self._index.counts.get(key, (0, 0))
        if doc_count != partition.doc_count:
            (count,) = self._connection.execute(
                f"SELECT count(*) FROM {partition.table} WHERE {partition.table} MATCH ?",  # noqa: S608
                (expression,),
            ).fetchone()
            self._index.counts[key] = (partition.doc_count, count)
        return count
