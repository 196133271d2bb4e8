"""Which rows answer a query best.

1. Each word is looked for by itself, among its newest `CANDIDATES` rows; the scores of BM25 are
   added, each weighed by how rare the word is in the whole archive, not in one table.
2. Where some words are too common to be known in full, the rows of the rarer ones learn whether
   they hold the common ones too.
3. In a longer query a word that is used for another counts half of it.
4. A word that stands in the messages around a row counts in part: an answer seldom repeats the
   words of its question. It counts more where the row lacks it than where the row has it too.
   Measured on LoCoMo, where turns are short, and on questions about transcripts of agents, where
   they are long: the one wants more of it, the others less. Rows that have too little of the query
   are left out.
5. A day or month that the query names finds what was said then, whatever its words.
6. The best `REREAD` are read, and gain by small words and by words that stand close together.

The figures were tuned on LoCoMo and on all of benchmarks/data/retrieval.jsonl, and lie on a plateau
of all of them. Tried there without gain: words that the best rows share (relevance feedback),
WordNet's synonyms, a further weight for the share of the query that a row holds, for its densest
passage, for its role, other constants of BM25.
"""

import heapq
import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from context_compaction.archive.dates import asked_times
from context_compaction.archive.local.search.fts_tables import (
    IN_HISTORY,
    Filter,
    Partition,
    expression_of,
    expression_of_any,
    load_partitions,
    newest_ids,
    time_range_tokens,
)
from context_compaction.archive.local.search.index import Doc, DocText, SearchIndex
from context_compaction.archive.synonyms import synonyms_of
from context_compaction.archive.tokenizer import (
    MAX_QUERY_UNITS,
    MAX_QUERY_WORDS,
    QueryTerm,
    likely_names,
    phrase_words,
    word_places,
)

READ_CHARS = 8_000
NEARNESS_GAIN = 0.5


# What a small word ("how", "before") is worth beside the rarity of others; it never finds a row.
SMALL_WORD_WORTH = 0.8


# BM25's constants, as FTS5 has them, and the length of an average text, for the small words alone.
K1, B, AVERAGE_CHARS = 1.2, 0.75, 600


def rerank_score(text: str, asked: Sequence[str], worth: Mapping[str, float]) -> float:
    """What a text adds to its score.

    Args:
        text: Its first `READ_CHARS` are read.
        asked: The words of the query in their order, as they are indexed.
        worth: Of those that are looked for; the others are small words.
    """
    read = text[:READ_CHARS]
    places = word_places(read, {*asked})
    length = 1 - B + B * len(read) / AVERAGE_CHARS
    gain = 0.0
    for word in {*asked} - worth.keys():
        count = len(places[word])
        gain += SMALL_WORD_WORTH * count * (K1 + 1) / (count + K1 * length)
    for first, second in pairwise(asked):
        distance = _distance(places[first], places[second])
        if distance is not None:
            both = (worth.get(first, SMALL_WORD_WORTH), worth.get(second, SMALL_WORD_WORTH))
            gain += NEARNESS_GAIN * min(both) / (distance + 1)
    return gain


def _distance(first: Sequence[int], second: Sequence[int]) -> int | None:
    """How many words apart the two stand where they are nearest."""
    nearest: int | None = None
    at = 0  # both are in order, so one walk over the two does
    for here in first:
        while at < len(second) and second[at] < here:
            at += 1
        for there in second[max(0, at - 1) : at + 1]:
            if nearest is None or abs(here - there) < nearest:
                nearest = abs(here - there)
    return nearest


# What a word counts at so many messages' distance.
DISTANCES = {1: 1.0, 2: 0.6, 3: 0.4}
LACKED_SHARE = 0.45
HELD_SHARE = 0.25
_MESSAGES = 1 << 40  # more than a session has
Around = Sequence[tuple[int, float]]


def place_of(session: int, seq: int) -> int:
    """A number for a message, which is next to that of the message beside it."""
    return session * _MESSAGES + seq


def around(place: int, rows: Mapping[int, int]) -> Around:
    """The rows around a place, given the rows by their places, and what each of them counts."""
    return [
        (rows[near], part)
        for distance, part in DISTANCES.items()
        for near in (place - distance, place + distance)
        if near in rows
    ]


def with_neighbor_context(row: int, near: Around, shares: Mapping[int, float]) -> float:
    """What a word adds to a row, given what it adds to each row that holds it."""
    held = shares.get(row, 0.0)
    gain = 0.0
    for other, part in near:
        if other in shares:
            gain = max(gain, part * shares[other])
    return held + (HELD_SHARE if held else LACKED_SHARE) * gain


CANDIDATES = 800  # matches of one word that are ranked, the newest; measured: 3 to 8 ms
SURROUNDED = 100  # of the best rows, what stands around them is looked at
AROUND_COVERAGE = 0.5  # how much of a word a row has that stands around it only


# A word that is used for another, beside that one; looked for where a query has more words than
# MAX_WORDS_FREELY, since a shorter one is a name more often than a question.
SYNONYM_WEIGHT = 0.5
SYNONYM_CANDIDATES = 400
DATE_WEIGHT = 2.0  # measured: of LoCoMo's questions that name a date, 16 % more are answered
REREAD = 16


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
    """Row ids in the order of the answer, with their scores.

    Attributes:
        ids: The rows.
        scores: Of each.
        is_exact: Whether these are all.
        absent: What stands in none of the rows that the filter lets through.
        has_any: Whether no row has all the words, so that these have any of them.
    """

    ids: Sequence[int]
    scores: dict[int, float]
    is_exact: bool
    absent: tuple[QueryTerm, ...] = ()
    has_any: bool = False


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
        self._shards = load_partitions(connection)
        self._doc_count = sum(shard.doc_count for shard in self._shards)
        self._read: dict[int, DocText | None] = {}

    def read(self, doc: Doc) -> DocText | None:
        """See `SearchIndex.read`; what was read for its rank is not read again."""
        self._check()
        if doc.doc_id not in self._read:
            self._read[doc.doc_id] = self._index.read(doc)
        return self._read[doc.doc_id]

    def newest(self, units: Sequence[QueryTerm]) -> Ranking:
        """Rows with all the words, newest first; where there are none, rows with any of them."""
        asked = [expression_of(unit) for unit in units]
        pieces = [expression_of(piece) for unit in units for piece in unit.pieces]
        ids: list[int] = []
        has_any = False
        for expression in (" AND ".join(asked), " OR ".join(asked + pieces)):
            ids = newest_ids(self._connection, self._shards, self._allowed, expression, CANDIDATES)
            if ids:
                break
            has_any = len(units) > 1
        times = self._connection.execute(
            "SELECT id FROM doc WHERE id IN (SELECT value FROM json_each(?))"
            " ORDER BY seconds DESC, id DESC",
            (json.dumps(self._allowed.in_time(self._connection, ids)),),
        )
        absent = tuple(unit for unit in units if has_any and not self.is_found(unit))
        rows = [doc_id for (doc_id,) in times]
        return Ranking(rows, {}, len(ids) < CANDIDATES, absent, has_any and bool(rows))

    def best(self, units: Sequence[QueryTerm], text: str) -> Ranking:
        """Rows with any of the words, best first."""
        found: list[_Matches] = []
        absent: list[QueryTerm] = []
        for unit in units:
            matches = self._matches(unit)
            # The pieces of a name are of interest only where the name itself is found nowhere.
            known = [matches] if matches.shares else self._pieces(unit)
            found += known
            absent += [] if known else [unit]
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
        asked = list(dict.fromkeys(phrase_words(text)))[:MAX_QUERY_WORDS]
        if len(asked) > 1:
            worth = {word: matches.worth for matches in found for word in matches.words}
            for doc in self._index.docs(self._connection, head):
                said = self.read(doc)
                if said is not None:
                    scores[doc.doc_id] += rerank_score(said.text, asked, worth)
        # Only those that were read again have moved.
        ids = _ordered({doc_id: scores[doc_id] for doc_id in head}) + order[REREAD:]
        return Ranking(ids, scores, is_exact, tuple(absent))

    def is_found(self, unit: QueryTerm) -> bool:
        """Whether a row that the filter lets through has a unit, or enough of its pieces."""
        return self._is_known(unit) or bool(self._pieces(unit))

    def _matches(self, unit: QueryTerm) -> _Matches:
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
                f" FROM {table} WHERE {table} MATCH ?1 AND rowid <= ?2 AND {IN_HISTORY}"
                " ORDER BY rowid DESC LIMIT ?3",
                (self._allowed.match(expression), self._allowed.last_id, limit, self._allowed.ids),
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

    def _add_names(self, names: Sequence[QueryTerm], scores: dict[int, float]) -> None:
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
        times = list(dict.fromkeys(asked_times(text)))[:MAX_QUERY_UNITS]
        tokens = [token for first, last in times for token in time_range_tokens(first, last)]
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

    def _pieces(self, unit: QueryTerm) -> list[_Matches]:
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

    def _is_known(self, unit: QueryTerm) -> bool:
        expression = expression_of(unit)
        return bool(newest_ids(self._connection, self._shards, self._allowed, expression, 1))

    def _count(self, shard: Partition, expression: str, known: int | None) -> int:
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

    def _with_synonyms(
        self, units: Sequence[QueryTerm], found: Sequence[_Matches]
    ) -> list[_Matches]:
        """`found`, where a row that lacks a word earns by another that is used for it."""
        singles = [unit.words for unit in units if len(unit.words) == 1 and not unit.is_prefix]
        others: dict[tuple[str, ...], _Matches] = {
            words: self._others(words) for words in singles if synonyms_of(words[0])
        }
        known = {matches.words for matches in found}
        return [
            _joined(matches, others[matches.words]) if matches.words in others else matches
            for matches in found
        ] + [matches for words, matches in others.items() if words not in known and matches.shares]

    def _others(self, words: tuple[str, ...]) -> _Matches:
        """The newest rows that hold a synonym of a word.

        Each earns BM25's share of a word that stands in it once, by the length of the row's line;
        FTS5 would walk over all rows of every synonym to say it.
        """
        expression = expression_of_any(synonyms_of(words[0]))
        ids = newest_ids(
            self._connection, self._shards, self._allowed, expression, SYNONYM_CANDIDATES
        )
        is_whole = len(ids) < SYNONYM_CANDIDATES
        # Ids are dense, so what they span tells how common the words are.
        count = len(ids) if is_whole else len(ids) * self._doc_count / (ids[0] - ids[-1] + 1)
        sizes = dict(
            self._connection.execute(
                "SELECT id, length FROM doc WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(self._allowed.in_time(self._connection, ids)),),
            )
        )
        average = sum(sizes.values()) / max(len(sizes), 1)
        shares = {
            doc_id: (K1 + 1) / (1 + K1 * (1 - B + B * size / average))
            for doc_id, size in sizes.items()
        }
        worth = SYNONYM_WEIGHT * self._idf(count)
        return _Matches(expression, words, shares, worth, is_whole)

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
            for doc_id, near in self._around([doc_id for _, doc_id in best]).items():
                shares = [with_neighbor_context(doc_id, near, matches.shares) for matches in found]
                scores[doc_id] = covered[doc_id] = 0.0
                for matches, share in zip(found, shares, strict=True):
                    held = 1.0 if doc_id in matches.shares else AROUND_COVERAGE if share else 0.0
                    scores[doc_id] += share * matches.worth
                    covered[doc_id] += held * matches.worth
        total = sum(matches.worth for matches in found)
        least = MIN_COVERAGE * total if len(found) > MAX_WORDS_FREELY else 0.0
        return {doc_id: score for doc_id, score in scores.items() if covered[doc_id] >= least}

    def _around(self, ids: Sequence[int]) -> dict[int, Around]:
        """For each message among these rows, the rows around it and what each counts."""
        found = self._connection.execute(
            "SELECT DISTINCT near.id, near.session, near.seq FROM doc JOIN doc AS near"
            " ON near.session = doc.session AND near.seq BETWEEN doc.seq - ?1 AND doc.seq + ?1"
            " WHERE doc.seq >= 0 AND near.seq >= 0"
            " AND doc.id IN (SELECT value FROM json_each(?2))"
            " AND (?3 IS NULL OR near.id IN (SELECT value FROM json_each(?3)))",
            (max(DISTANCES), json.dumps(ids), self._allowed.ids),
        )
        places = {doc_id: place_of(session, seq) for doc_id, session, seq in found}
        rows = {place: doc_id for doc_id, place in places.items()}
        return {doc_id: around(places[doc_id], rows) for doc_id in ids if doc_id in places}


def _joined(matches: _Matches, others: _Matches) -> _Matches:
    """`matches`, with what their synonyms find; these never count more than their part of it."""
    part = min(others.worth / matches.worth, SYNONYM_WEIGHT)
    shares = {doc_id: part * share for doc_id, share in others.shares.items()}
    for doc_id, share in matches.shares.items():
        shares[doc_id] = max(share, shares.get(doc_id, 0.0))
    return replace(matches, shares=shares, is_whole=matches.is_whole and others.is_whole)


def _weight(units: Sequence[QueryTerm]) -> float:
    return sum(unit.weight for unit in units)


def _ordered(scores: Mapping[int, float]) -> list[int]:
    """Best first; among equals the newer."""
    pairs = sorted(zip(scores.values(), scores, strict=True), reverse=True)
    return [doc_id for _, doc_id in pairs]
