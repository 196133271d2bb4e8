"""Searches for words and phrases in the SQLite index: which rows, and in which order.

Each word is looked for by itself, among its newest `CANDIDATES` rows; `archive/ranking.py` weighs
what they contain.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from context_compaction.archive.dates import asked_times
from context_compaction.archive.local.search.fts_tables import (
    IN_HISTORY,
    Filter,
    Partition,
    expression_of,
    load_partitions,
    newest_ids,
    time_range_tokens,
)
from context_compaction.archive.local.search.index import Doc, DocText, SearchIndex
from context_compaction.archive.ranking import (
    NEIGHBOR_MESSAGES,
    Matches,
    add_scores,
    best_first,
    idf,
    neighbor_context,
    scores_of,
    small_word_score,
)
from context_compaction.archive.tokenizer import (
    MAX_QUERY_TERMS,
    MAX_QUERY_WORDS,
    QueryTerm,
    likely_names,
    phrase_words,
)

CANDIDATES = 800  # matches of one word that are ranked, the newest; measured: 3 to 8 ms
NEIGHBORS_READ = 100  # rows, the best, that the messages around them count for
REREAD = 24  # rows, the best, whose text is read for the small words of the query

# Where a name is found nowhere, this much of its pieces must be, by how rare they are. A run of an
# unspaced script is a whole sentence, of which a few words are enough.
MIN_PIECES_SHARE = 0.5
MIN_UNSPACED_SHARE = 0.1

# A row that contains the name asked for earns this, however long it is; BM25 gives 0 to 2.2.
NAME_SHARE = 1.5
_LEAST_IDF = 1e-6  # what FTS5 takes for a word that most rows contain


@dataclass(frozen=True, slots=True)
class Ranking:
    """Row ids in the order of the answer, with their scores.

    Attributes:
        ids: The rows.
        scores: Of each.
        is_exact: Whether these are all.
        missing_terms: What none of the rows contains that the filter lets through.
        has_any: Whether no row has all the words, so that these have any of them.
    """

    ids: Sequence[int]
    scores: dict[int, float]
    is_exact: bool
    missing_terms: tuple[QueryTerm, ...] = ()
    has_any: bool = False


class Ranker:
    """Ranks rows of one archive for one query."""

    def __init__(
        self,
        index: SearchIndex,
        connection: sqlite3.Connection,
        allowed: Filter,
        check: Callable[[], None],
    ) -> None:
        """`check` is called before each text is read, and may raise."""
        self._check = check
        self._index = index
        self._connection = connection
        self._allowed = allowed
        self._partitions = load_partitions(connection)
        self._row_count = sum(partition.doc_count for partition in self._partitions)
        self._read: dict[int, DocText | None] = {}

    def read(self, doc: Doc) -> DocText | None:
        """See `SearchIndex.read`; what was read for its rank is not read again."""
        self._check()
        if doc.doc_id not in self._read:
            self._read[doc.doc_id] = self._index.read(doc)
        return self._read[doc.doc_id]

    def newest(self, terms: Sequence[QueryTerm]) -> Ranking:
        """Rows with all the terms, newest first; where there are none, rows with any of them."""
        asked = [expression_of(term) for term in terms]
        pieces = [expression_of(piece) for term in terms for piece in term.pieces]
        ids: list[int] = []
        has_any = False
        for expression in (" AND ".join(asked), " OR ".join(asked + pieces)):
            ids = self._newest_ids(expression, CANDIDATES)
            if ids:
                break
            has_any = len(terms) > 1
        times = self._connection.execute(
            "SELECT id FROM doc WHERE id IN (SELECT value FROM json_each(?))"
            " ORDER BY seconds DESC, id DESC",
            (json.dumps(self._allowed.in_time(self._connection, ids)),),
        )
        missing = tuple(term for term in terms if has_any and not self.is_found(term))
        rows = [doc_id for (doc_id,) in times]
        return Ranking(rows, {}, len(ids) < CANDIDATES, missing, has_any and bool(rows))

    def best(self, terms: Sequence[QueryTerm], text: str) -> Ranking:
        """Rows with any of the terms, best first."""
        found: list[Matches] = []
        missing: list[QueryTerm] = []
        for term in terms:
            matches = self._matches(term)
            # The pieces of a name are of interest only where the name itself is found nowhere.
            known = [matches] if matches.shares else self._pieces(term)
            found += known
            missing += [] if known else [term]
        found += self._dated(text)
        scores = scores_of([*found, *self._names(terms, text, found)])
        order = best_first(scores)
        if len(found) > 1:
            near = self._neighbors(order[:NEIGHBORS_READ])
            order = add_scores(order, scores, neighbor_context(near, found))
        asked = {word for term in terms for word in term.words}
        small = {*phrase_words(text)[:MAX_QUERY_WORDS]} - asked
        if small:
            added = self._small_words(order[:REREAD], small)
            order = add_scores(order, scores, added)
        is_exact = all(matches.is_whole for matches in found)
        return Ranking(order, scores, is_exact, tuple(missing))

    def is_found(self, term: QueryTerm) -> bool:
        """Whether a row that the filter lets through has a term, or enough of its pieces."""
        return self._is_known(term) or bool(self._pieces(term))

    def _newest_ids(self, expression: str, limit: int) -> list[int]:
        return newest_ids(self._connection, self._partitions, self._allowed, expression, limit)

    def _matches(self, term: QueryTerm) -> Matches:
        """The newest `CANDIDATES` rows of a term, in the newest partitions that hold so many."""
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
            allowed = set(self._allowed.in_time(self._connection, [doc_id for doc_id, _ in rows]))
            shares.update((doc_id, -score / within) for doc_id, score in rows if doc_id in allowed)
            if len(rows) == limit:
                is_whole = False
                break
        weight = term.weight * idf(self._row_count, rows_with * self._row_count / max(searched, 1))
        return Matches(shares, weight, is_whole)

    def _names(
        self, terms: Sequence[QueryTerm], text: str, found: Sequence[Matches]
    ) -> list[Matches]:
        """Rows that contain a name which the query may mean."""
        if len(found) == 1 and len(terms[0].runs) > 1:
            return []  # a name that was found as it is written needs no guess
        names: list[Matches] = []
        for term in likely_names(text):
            ids = self._newest_ids(expression_of(term), CANDIDATES)
            weight = term.weight * idf(self._row_count, len(ids))
            ids = self._allowed.in_time(self._connection, ids)
            names.append(Matches(dict.fromkeys(ids, NAME_SHARE), weight, True))
        return names

    def _dated(self, text: str) -> list[Matches]:
        """What was said on the days that `text` names."""
        times = list(dict.fromkeys(asked_times(text)))[:MAX_QUERY_TERMS]
        tokens = [token for first, last in times for token in time_range_tokens(first, last)]
        if not tokens:
            return []
        expression = Filter((tuple(tokens),)).match("")
        ids = self._newest_ids(expression, CANDIDATES)
        count = sum(self._count(partition, expression, None) for partition in self._partitions)
        shares = dict.fromkeys(self._allowed.in_time(self._connection, ids), 1.0)
        weight = idf(self._row_count, count)
        return [Matches(shares, weight, len(ids) < CANDIDATES)] if shares else []

    def _pieces(self, term: QueryTerm) -> list[Matches]:
        """What the pieces of a term find, where they are enough of it together."""
        least = MIN_PIECES_SHARE if term.runs[0].isascii() else MIN_UNSPACED_SHARE
        # What is found nowhere weighs most. So looking for one row spares most of the counting.
        known = [piece for piece in term.pieces if self._is_known(piece)]
        whole, part = (sum(piece.weight for piece in of) for of in (term.pieces, known))
        if part <= least * whole:
            return []
        found = [self._matches(piece) for piece in known]
        weight = sum(matches.weight for matches in found)
        unknown = (whole - part) * idf(self._row_count, 0)
        return found if weight >= least * (weight + unknown) else []

    def _is_known(self, term: QueryTerm) -> bool:
        return bool(self._newest_ids(expression_of(term), 1))

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

    def _small_words(self, ids: Sequence[int], words: Set[str]) -> dict[int, float]:
        """What the small words of the query add to the scores of rows."""
        added: dict[int, float] = {}
        for doc in self._index.docs(self._connection, ids):
            text = self.read(doc)
            if text is not None:
                added[doc.doc_id] = small_word_score(text.text, words)
        return added

    def _neighbors(self, ids: Sequence[int]) -> dict[int, dict[int, int]]:
        """For each message among these rows, the rows around it and how far away each is."""
        found = self._connection.execute(
            "SELECT doc.id, near.id, abs(near.seq - doc.seq) FROM doc JOIN doc AS near"
            " ON near.session = doc.session AND near.seq BETWEEN doc.seq - ?1 AND doc.seq + ?1"
            " WHERE doc.seq >= 0 AND near.seq >= 0 AND near.id != doc.id"
            " AND doc.id IN (SELECT value FROM json_each(?2))"
            " AND (?3 IS NULL OR near.id IN (SELECT value FROM json_each(?3)))",
            (NEIGHBOR_MESSAGES, json.dumps(ids), self._allowed.ids),
        )
        near: dict[int, dict[int, int]] = {}
        for doc_id, other, distance in found:
            near.setdefault(doc_id, {})[other] = distance
        return near
