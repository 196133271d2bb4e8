"""Which rows answer a query best.

1. Each word is looked for by itself, among its newest `CANDIDATES` rows; the scores of BM25 are
   added, each weighed by how rare the word is in the whole archive, not in one table.
2. Where some words are too common to be known in full, the rows of the rarer ones learn whether
   they hold the common ones too.
3. In a longer query a word that is used for another counts half of it.
4. A word that stands in the messages around a row counts in part (surroundings.py). Rows that have
   too little of the query are left out.
5. A day or month that the query names finds what was said then, whatever its words.
6. The best `REREAD` are read, and gain by the small words of the query and by words that stand
   close to each other.

The figures were tuned on LoCoMo and on all of benchmarks/data/retrieval.jsonl, and lie on a plateau
of all of them. Tried there without gain: words that the best rows share (relevance feedback),
WordNet's synonyms, a further weight for the share of the query that a row holds, for its densest
passage, for its role, other constants of BM25.
"""

import heapq
import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from context_compaction.archive.dates import asked_times
from context_compaction.archive.index import SearchIndex
from context_compaction.archive.shards import (
    Filter,
    Shard,
    expression_of,
    expression_of_any,
    load_shards,
    newest_ids,
    time_range_tokens,
)
from context_compaction.archive.surroundings import DISTANCES, place_of, with_surroundings
from context_compaction.archive.synonyms import synonyms_of
from context_compaction.archive.terms import Unit, likely_names, phrase_words, word_places

CANDIDATES = 1000  # matches of one word that are ranked, the newest; measured: 3 to 10 ms
SURROUNDED = 200  # of the best rows, what stands around them is looked at
AROUND_COVERAGE = 0.5  # how much of a word a row has that stands around it only
# A word that is used for another, beside that one; looked for where a query has more words than
# MAX_WORDS_FREELY, since a shorter one is a name more often than a question.
SYNONYM_WEIGHT = 0.5
SYNONYM_CANDIDATES = 500
DATE_WEIGHT = 2.0  # measured: of LoCoMo's questions that name a date, 16 % more are answered
PROXIMITY_GAIN = 0.5
REREAD = 16
REREAD_CHARS = 8_000
# What a small word ("how", "before") is worth beside the rarity of others; it never finds a row.
SMALL_WORD_WORTH = 0.8
# BM25's constants, as FTS5 has them, and the length of an average text, for the small words alone.
_K1, _B, _AVERAGE_CHARS = 1.2, 0.75, 600
# Of more words than these a row must have this share, by rarity, itself or beside it. Measured on
# LoCoMo: it leaves out five rows of six, and none that answers. Without what stands beside, 0.1
# leaves out so many answers that recall@10 falls from .72 to .70.
MAX_WORDS_FREELY = 2
MIN_COVERAGE = 0.2
# A run of an unspaced script is a whole sentence, of which a few words are enough.
MIN_UNSPACED_SHARE = 0.1
# The weight of a word among the parts of identifiers, beside one in the text.
PART_WEIGHT = 0.5
# A row that holds the name asked for earns this, however long it is; BM25 gives 0 to 2.2.
NAME_SHARE = 1.5
_LEAST_IDF = 1e-6  # what FTS5 takes for a word that most rows hold


@dataclass(frozen=True, slots=True)
class Ranking:
    """Row ids in the order of the answer, with their scores; `absent` stands nowhere."""

    ids: Sequence[int]
    scores: dict[int, float]
    is_exact: bool
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Matches:
    """What one expression finds.

    Attributes:
        expression: For FTS5.
        words: Those it looks for, as they are indexed; none for a date.
        shares: How much of BM25's share each row earns.
        worth: By how rare the expression is.
        is_whole: Whether these are all rows.
    """

    expression: str
    words: tuple[str, ...]
    shares: dict[int, float]
    worth: float
    is_whole: bool


class Ranker:
    """Ranks rows of one archive for one query."""

    def __init__(self, index: SearchIndex, connection: sqlite3.Connection, allowed: Filter) -> None:
        self._index = index
        self._connection = connection
        self._allowed = allowed
        self._shards = load_shards(connection)
        self._doc_count = sum(shard.doc_count for shard in self._shards)

    def newest(self, units: Sequence[Unit]) -> Ranking:
        """Rows with all the words, newest first; where there are none, rows with any of them."""
        asked = [expression_of(unit) for unit in units]
        pieces = [expression_of(piece) for unit in units for piece in unit.pieces]
        ids: list[int] = []
        for expression in (" AND ".join(asked), " OR ".join(asked + pieces)):
            ids = newest_ids(self._connection, self._shards, self._allowed, expression, CANDIDATES)
            if ids:
                break
        times = self._connection.execute(
            "SELECT id FROM doc WHERE id IN (SELECT value FROM json_each(?))"
            " ORDER BY seconds DESC, id DESC",
            (json.dumps(self._allowed.in_time(self._connection, ids)),),
        )
        return Ranking([doc_id for (doc_id,) in times], {}, len(ids) < CANDIDATES)

    def best(self, units: Sequence[Unit], text: str) -> Ranking:
        """Rows with any of the words, best first."""
        found: list[_Matches] = []
        absent: list[str] = []
        for unit in units:
            matches = self._matches(unit)
            # The pieces of a name are of interest only where the name itself is found nowhere.
            known = [matches] if matches.shares else self._pieces(unit)
            found += known
            absent += [] if known else [" ".join(unit.runs)]
        found += self._dated(text)
        found = self._completed([matches for matches in found if matches.shares])
        if len(units) > MAX_WORDS_FREELY:
            found = self._with_synonyms(units, found)
        scores = self._scores(found)
        # A name that was found as it stands needs no guess at what else it may be written like.
        if len(found) != 1 or len(units[0].runs) == 1:
            self._add_names(likely_names(text), scores)
        is_exact = all(matches.is_whole for matches in found)
        order = _ordered(scores)
        head = order[:REREAD]
        asked = phrase_words(text)
        if len(asked) > 1:
            self._reread(head, asked, found, scores)
        # Only those that were read again have moved.
        ids = _ordered({doc_id: scores[doc_id] for doc_id in head}) + order[REREAD:]
        return Ranking(ids, scores, is_exact, tuple(absent))

    def _matches(self, unit: Unit) -> _Matches:
        """The newest `CANDIDATES` rows of a unit, in the newest tables that hold so many."""
        expression = expression_of(unit)
        shares: dict[int, float] = {}
        searched = rows_with = 0
        is_whole = True
        for shard in self._shards:
            table = shard.table
            limit = CANDIDATES - len(shares)
            rows = self._connection.execute(
                f"SELECT rowid, bm25({table}, 1.0, {PART_WEIGHT}, 0.0, 0.0)"  # noqa: S608
                f" FROM {table} WHERE {table} MATCH ? AND rowid <= ? ORDER BY rowid DESC LIMIT ?",
                (self._allowed.match(expression), self._allowed.last_id, limit),
            ).fetchall()
            searched += shard.doc_count
            if not rows:
                continue
            count = self._count(shard, expression, len(rows) if len(rows) < limit else None)
            rows_with += count
            local = max(math.log((shard.doc_count - count + 0.5) / (count + 0.5)), _LEAST_IDF)
            allowed = set(self._allowed.in_time(self._connection, [doc_id for doc_id, _ in rows]))
            shares.update((doc_id, -score / local) for doc_id, score in rows if doc_id in allowed)
            if len(rows) == limit:
                is_whole = False
                break
        idf = self._idf(rows_with * self._doc_count / max(searched, 1))
        return _Matches(expression, unit.words, shares, idf * unit.weight, is_whole)

    def _add_names(self, names: Sequence[Unit], scores: dict[int, float]) -> None:
        """Let rows that hold a name which the query may mean earn the same share of its worth."""
        for unit in names:
            ids = newest_ids(
                self._connection, self._shards, self._allowed, expression_of(unit), CANDIDATES
            )
            worth = NAME_SHARE * unit.weight * self._idf(len(ids))
            for doc_id in self._allowed.in_time(self._connection, ids):
                scores[doc_id] = scores.get(doc_id, 0.0) + worth

    def _dated(self, text: str) -> list[_Matches]:
        """What was said on the days that `text` names."""
        tokens = [
            token for first, last in asked_times(text) for token in time_range_tokens(first, last)
        ]
        if not tokens:
            return []
        expression = Filter((tuple(tokens),)).match("")
        ids = newest_ids(self._connection, self._shards, self._allowed, expression, CANDIDATES)
        is_whole = len(ids) < CANDIDATES
        count = sum(self._count(shard, expression, None) for shard in self._shards)
        ids = self._allowed.in_time(self._connection, ids)
        worth = DATE_WEIGHT * self._idf(count)
        return [_Matches(expression, (), dict.fromkeys(ids, 1.0), worth, is_whole)]

    def _idf(self, count: float) -> float:
        return math.log(1 + (self._doc_count - count + 0.5) / (count + 0.5))

    def _pieces(self, unit: Unit) -> list[_Matches]:
        """What the pieces of a unit find, where they are worth enough of it together."""
        least = 0.5 if unit.runs[0].isascii() else MIN_UNSPACED_SHARE
        # What stands nowhere is worth most. So looking for one row spares most of the counting.
        known = [piece for piece in unit.pieces if self._is_known(piece)]
        if _weight(known) <= least * _weight(unit.pieces):
            return []
        found = [self._matches(piece) for piece in known]
        absent = self._idf(0) * (_weight(unit.pieces) - _weight(known))
        worth = sum(matches.worth for matches in found)
        return found if worth >= least * (worth + absent) else []

    def _is_known(self, unit: Unit) -> bool:
        expression = expression_of(unit)
        return bool(newest_ids(self._connection, self._shards, self._allowed, expression, 1))

    def _count(self, shard: Shard, expression: str, known: int | None) -> int:
        """How many rows of a table hold `expression`, whatever the filter."""
        if known is not None and self._allowed.is_open:
            return known
        key = (shard.table, expression)
        doc_count, count = self._index.counts.get(key, (0, 0))
        if doc_count != shard.doc_count:
            (count,) = self._connection.execute(
                f"SELECT count(*) FROM {shard.table} WHERE {shard.table} MATCH ?",  # noqa: S608
                (expression,),
            ).fetchone()
            self._index.counts[key] = (shard.doc_count, count)
        return count

    def _completed(self, found: Sequence[_Matches]) -> list[_Matches]:
        """Let rows of the rare units know whether they hold the common ones as well."""
        rare = [matches.expression for matches in found if matches.is_whole or not matches.words]
        if not rare or all(matches.is_whole for matches in found):
            return list(found)
        return [
            matches if matches.is_whole else self._widened(matches, " OR ".join(rare))
            for matches in found
        ]

    def _widened(self, matches: _Matches, either: str) -> _Matches:
        """`matches` with the rows of `either` that hold the unit; how often is not known."""
        both = f"({matches.expression}) AND ({either})"
        ids = newest_ids(self._connection, self._shards, self._allowed, both, CANDIDATES)
        ids = self._allowed.in_time(self._connection, ids)
        return replace(matches, shares=dict.fromkeys(ids, 1.0) | matches.shares)

    def _with_synonyms(self, units: Sequence[Unit], found: Sequence[_Matches]) -> list[_Matches]:
        """`found`, where a row that lacks a word earns by another that is used for it."""
        synonyms = {
            unit.words: self._rows_with_any(synonyms_of(unit.words[0]))
            for unit in units
            if len(unit.words) == 1 and not unit.is_prefix
        }
        ids = [doc_id for rows in synonyms.values() for doc_id in rows]
        shares = self._shares_of_one_word(ids)
        by_words = {matches.words: matches for matches in found}
        joined: dict[tuple[str, ...], _Matches] = {}
        for words, rows in synonyms.items():
            if not rows:
                continue
            is_whole = len(rows) < SYNONYM_CANDIDATES
            count = len(rows) if is_whole else len(rows) * self._doc_count / (rows[0] - rows[-1] + 1)
            own = by_words.get(words) or _Matches("", words, {}, self._idf(count), True)
            part = SYNONYM_WEIGHT * min(1.0, self._idf(count) / own.worth)
            gained = {doc_id: part * shares[doc_id] for doc_id in rows}
            gained |= {row: max(share, gained.get(row, 0.0)) for row, share in own.shares.items()}
            joined[words] = replace(own, shares=gained, is_whole=own.is_whole and is_whole)
        rest = [matches for words, matches in joined.items() if words not in by_words]
        return [joined.get(matches.words, matches) for matches in found] + rest

    def _rows_with_any(self, words: Sequence[str]) -> list[int]:
        """The newest rows that hold one of `words`, newest first."""
        if not words:
            return []
        expression = expression_of_any(words)
        ids = newest_ids(
            self._connection, self._shards, self._allowed, expression, SYNONYM_CANDIDATES
        )
        return self._allowed.in_time(self._connection, ids)

    def _shares_of_one_word(self, ids: Sequence[int]) -> dict[int, float]:
        """BM25's share of a word that stands once in each row, by the length of the row's line.

        FTS5 would walk over all rows of every synonym to say it.
        """
        sizes = dict(
            self._connection.execute(
                "SELECT id, length FROM doc WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            )
        )
        average = sum(sizes.values()) / max(len(sizes), 1)
        return {
            doc_id: (_K1 + 1) / (1 + _K1 * (1 - _B + _B * size / average))
            for doc_id, size in sizes.items()
        }

    def _scores(self, found: Sequence[_Matches]) -> dict[int, float]:
        """What each row scores; who has too little of a longer query is left out."""
        scores: dict[int, float] = {}
        covered: dict[int, float] = {}
        for matches in found:
            for doc_id, share in matches.shares.items():
                scores[doc_id] = scores.get(doc_id, 0.0) + share * matches.worth
                covered[doc_id] = covered.get(doc_id, 0.0) + matches.worth
        if len(found) > 1:
            best = heapq.nlargest(SURROUNDED, zip(scores.values(), scores, strict=True))
            places = self._places([doc_id for _, doc_id in best])
            known = scores.keys() & places
            scores |= dict.fromkeys(known, 0.0)
            covered |= dict.fromkeys(known, 0.0)
            for matches in found:
                for doc_id, share in with_surroundings(matches.shares, places).items():
                    if doc_id in known:
                        held = 1.0 if doc_id in matches.shares else AROUND_COVERAGE
                        scores[doc_id] += share * matches.worth
                        covered[doc_id] += held * matches.worth
        total = sum(matches.worth for matches in found)
        least = MIN_COVERAGE * total if len(found) > MAX_WORDS_FREELY else 0.0
        return {doc_id: score for doc_id, score in scores.items() if covered[doc_id] >= least}

    def _places(self, ids: Sequence[int]) -> dict[int, int]:
        """Where the messages among these rows stand, and those around them."""
        rows = self._connection.execute(
            "SELECT DISTINCT near.id, near.session, near.seq FROM doc JOIN doc AS near"
            " ON near.session = doc.session AND near.seq BETWEEN doc.seq - ?1 AND doc.seq + ?1"
            " WHERE doc.seq >= 0 AND near.seq >= 0"
            " AND doc.id IN (SELECT value FROM json_each(?2))",
            (max(DISTANCES), json.dumps(ids)),
        )
        return {doc_id: place_of(session, seq) for doc_id, session, seq in rows}

    def _reread(
        self,
        ids: Sequence[int],
        asked: Sequence[str],
        found: Sequence[_Matches],
        scores: dict[int, float],
    ) -> None:
        """Read rows and add what small words and words that stand close together are worth."""
        worth = dict.fromkeys(asked, SMALL_WORD_WORTH)
        worth |= {word: matches.worth for matches in found for word in matches.words}
        small = {word for word in asked if worth[word] == SMALL_WORD_WORTH}
        for doc in self._index.docs(self._connection, ids):
            said = self._index.read(doc)
            if said is None:
                continue
            read = said.text[:REREAD_CHARS]
            places = word_places(read, worth)
            length = 1 - _B + _B * len(read) / _AVERAGE_CHARS
            for word in small:
                count = len(places[word])
                scores[doc.doc_id] += SMALL_WORD_WORTH * count * (_K1 + 1) / (count + _K1 * length)
            for first, second in pairwise(asked):
                distance = _distance(places[first], places[second])
                if distance is not None:
                    nearness = min(worth[first], worth[second]) / (distance + 1)
                    scores[doc.doc_id] += PROXIMITY_GAIN * nearness


def _weight(units: Sequence[Unit]) -> float:
    return sum(unit.weight for unit in units)


def _ordered(scores: Mapping[int, float]) -> list[int]:
    """Best first; among equals the newer."""
    pairs = sorted(zip(scores.values(), scores, strict=True), reverse=True)
    return [doc_id for _, doc_id in pairs]


def _distance(first: Sequence[int], second: Sequence[int]) -> int | None:
    """How many words apart the two stand where they are nearest."""
    return min((abs(here - there) for here in first for there in second), default=None)
