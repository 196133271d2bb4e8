"""Searches for words and phrases: which rows, and in which order, whatever index they are in.

Each word is looked for by itself, among its newest `CANDIDATES` rows. Then:

1. BM25 adds what each word contributes, weighted by how rare it is in the whole archive.
2. What the messages around a row contain counts in part: an answer seldom repeats the words of
   its question.
3. The best rows are read, and small words ("how", "before") contribute there; they find no row.

benchmarks/results/search_ablation.md has what each of these is worth on questions that nobody
tuned on, and what was dropped: synonyms, words close together, a least share of the
query, other weights for parts of identifiers, British spelling.
"""

import math
import re
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Generic, Protocol, TypeVar

from context_compaction.archive.documents import DocText
from context_compaction.archive.search.hits import Row
from context_compaction.archive.tokenizer import (
    MAX_QUERY_TERMS,
    MAX_QUERY_WORDS,
    QueryTerm,
    likely_names,
    phrase_words,
    words_of,
)

CANDIDATES = 800  # matches of one word that are ranked, the newest; measured: 3 to 8 ms
NEIGHBORS_READ = 100  # rows, the best, that the messages around them count for
REREAD = 24  # rows, the best, whose text is read for the small words of the query

# What a row loses that a tool printed, where the query is a sentence: those ask for what was said.
# Of 240 readers' questions 5 more are found at once; held-out-2 gains one, the other sets none.
PRINTED_LOSS = 0.25

# A row that contains the name asked for earns this, however long it is; BM25 gives 0 to 2.2.
NAME_SHARE = 1.5

NEIGHBOR_MESSAGES = 3  # as far as this on either side; farther away a word counts less
# How much of a word next to a row counts for it: where the row lacks it, and where it has it too.
LACKED_SHARE = 0.5
HELD_SHARE = 0.25

# What a small word in the text of a row contributes, about as BM25 has it for a common word.
SMALL_WORD_SCORE = 1.5

D = TypeVar("D", bound=Row)


@dataclass(frozen=True, slots=True)
class Matches:
    """The newest rows that contain one thing asked for, as far as a filter lets them through.

    Attributes:
        shares: By row id what BM25 gives the row before it is weighted, 0 to 2.2: for a word that
            occurs n times in l words, n * 2.2 / (n + 1.2 * (0.25 + 0.75 * l / average l)).
        row_count: How many rows of the whole archive contain it, about.
        is_whole: Whether these are all that the filter lets through.
        weight: How much a share contributes to the score, by how rare the word is. An index leaves
            it 0.
    """

    shares: Mapping[int, float]
    row_count: float
    is_whole: bool
    weight: float = 0.0


def share(occurrences: float, length: float, average_length: float) -> float:
    """What BM25 gives a row in which a word occurs so often, before it is weighted: 0 to 2.2."""
    relative = length / average_length if average_length else 1.0
    return occurrences * 2.2 / (occurrences + 1.2 * (0.25 + 0.75 * relative))


def idf(row_count: int, count: float) -> float:
    """BM25's weight of a word that `count` rows of `row_count` contain; never negative."""
    return math.log(1 + (row_count - count + 0.5) / (count + 0.5))


def scores_of(found: Iterable[Matches]) -> dict[int, float]:
    """The score of each row that contains any of the words."""
    scores: dict[int, float] = {}
    for matches in found:
        for row, share in matches.shares.items():
            scores[row] = scores.get(row, 0.0) + share * matches.weight
    return scores


def neighbor_context(
    near: Mapping[int, Mapping[int, int]], found: Iterable[Matches]
) -> dict[int, float]:
    """What the messages around rows add to their scores.

    Args:
        near: For each row the rows around it, with how many messages lie between, from 1.
        found: The rows that contain each word.
    """
    added = dict.fromkeys(near, 0.0)
    for matches in found:
        shares = matches.shares
        for row, around in near.items():
            beside = (shares[other] / far for other, far in around.items() if other in shares)
            part = HELD_SHARE if row in shares else LACKED_SHARE
            added[row] += part * max(beside, default=0.0) * matches.weight
    return added


def best_first(scores: Mapping[int, float]) -> list[int]:
    """The rows, the best first; among equals the newer, which has the larger id."""
    pairs = sorted(zip(scores.values(), scores, strict=True), reverse=True)
    return [row for _, row in pairs]


def add_scores(
    order: Sequence[int], scores: dict[int, float], added: Mapping[int, float]
) -> list[int]:
    """`order` anew, after adding to the `scores` of some of its first rows; `scores` changes."""
    for row, more in added.items():
        scores[row] += more
    stop = 1 + max((at for at, row in enumerate(order) if row in added), default=-1)
    return [*best_first({row: scores[row] for row in order[:stop]}), *order[stop:]]


class Rows(Protocol[D]):
    """What a search asks of an index, under one filter. Every method blocks."""

    @property
    def row_count(self) -> int:
        """How many rows the archive has, about."""
        ...

    def candidates(self, term: QueryTerm) -> Matches:
        """The newest `CANDIDATES` rows that contain a term."""
        ...

    def said_within(self, times: Sequence[tuple[float, float]]) -> Matches:
        """The newest rows of the days that any of the times (first and last moment) touch."""
        ...

    def newest(self, terms: Sequence[QueryTerm], limit: int, *, every: bool = False) -> list[int]:
        """The last rows with any of the terms, or with `every` one, last first."""
        ...

    def newest_docs(self, terms: Sequence[QueryTerm], limit: int) -> Sequence[D]:
        """The last rows with every one of the terms, last first; all rows where there is none."""
        ...

    def by_time(self, ids: Sequence[int]) -> list[int]:
        """`ids` by when they were said, the newest first."""
        ...

    def near(self, ids: Sequence[int]) -> Mapping[int, Mapping[int, int]]:
        """For each message among `ids`, the rows up to `NEIGHBOR_MESSAGES` away, and how far."""
        ...

    def docs(self, ids: Sequence[int]) -> Sequence[D]:
        """The rows of `ids`, in their order; those that have gone are left out."""
        ...

    def next_doc(self, doc: D) -> D | None:
        """The row of the message with the next number in the same session."""
        ...

    def read(self, doc: D) -> DocText | None:
        """What a row contains; None where it has gone."""
        ...


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


class Ranker(Generic[D]):
    """Ranks the rows of one archive for one query."""

    def __init__(self, rows: Rows[D], check: Callable[[], None]) -> None:
        """`check` is called before each text is read, and may raise."""
        self._rows = rows
        self._check = check
        self._read: dict[int, DocText | None] = {}

    def read(self, doc: D) -> DocText | None:
        """See `Rows.read`; what was read for its rank is not read again."""
        self._check()
        if doc.doc_id not in self._read:
            self._read[doc.doc_id] = self._rows.read(doc)
        return self._read[doc.doc_id]

    def newest(self, terms: Sequence[QueryTerm]) -> Ranking:
        """Rows with all the terms, newest first; where there are none, those with most of them.

        Of a question of six words every message has one, so the newest with any say nothing.
        """
        pieces = [piece for term in terms for piece in term.pieces]
        has_any = False
        ids = self._rows.newest(terms, CANDIDATES, every=True)
        if not ids:
            has_any = len(terms) > 1
            ids = self._rows.newest([*terms, *pieces], CANDIDATES)
        missing = tuple(term for term in terms if has_any and not self.is_found(term))
        rows = self._rows.by_time(ids)
        if has_any:
            counts = Counter(row for term in terms for row in self._rows.candidates(term).shares)
            rows = sorted(rows, key=lambda row: -counts[row])
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
            near = self._rows.near(order[:NEIGHBORS_READ])
            order = add_scores(order, scores, neighbor_context(near, found))
        asked = {word for term in terms for word in term.words}
        small = {*phrase_words(text)[:MAX_QUERY_WORDS]} - asked
        if small:
            added = self._as_a_sentence(order[:REREAD], scores, small)
            order = add_scores(order, scores, added)
        is_exact = all(matches.is_whole for matches in found)
        return Ranking(order, scores, is_exact, tuple(missing))

    def is_found(self, term: QueryTerm) -> bool:
        """Whether a row that the filter lets through has a term, or enough of its pieces."""
        return self._is_known(term) or bool(self._pieces(term))

    def _matches(self, term: QueryTerm) -> Matches:
        found = self._rows.candidates(term)
        return replace(found, weight=term.weight * idf(self._rows.row_count, found.row_count))

    def _names(
        self, terms: Sequence[QueryTerm], text: str, found: Sequence[Matches]
    ) -> list[Matches]:
        """Rows that contain a name which the query may mean."""
        if len(found) == 1 and len(terms[0].runs) > 1:
            return []  # a name that was found as it is written needs no guess
        names: list[Matches] = []
        for term in likely_names(text):
            ids = self._rows.newest([term], CANDIDATES)
            weight = term.weight * idf(self._rows.row_count, len(ids))
            names.append(Matches(dict.fromkeys(ids, NAME_SHARE), len(ids), True, weight))
        return names

    def _dated(self, text: str) -> list[Matches]:
        """Rows of the days that `text` names."""
        times = list(dict.fromkeys(asked_times(text)))[:MAX_QUERY_TERMS]
        if not times:
            return []
        found = self._rows.said_within(times)
        weight = idf(self._rows.row_count, found.row_count)
        return [replace(found, weight=weight)] if found.shares else []

    def _pieces(self, term: QueryTerm) -> list[Matches]:
        """What the pieces of a term find, where they are enough of it together."""
        # A run of an unspaced script is a whole sentence, of which a few words are enough.
        least = 0.5 if term.runs[0].isascii() else 0.1
        # What is found nowhere weighs most. So looking for one row spares most of the counting.
        known = [piece for piece in term.pieces if self._is_known(piece)]
        whole, part = (sum(piece.weight for piece in of) for of in (term.pieces, known))
        if part <= least * whole:
            return []
        found = [self._matches(piece) for piece in known]
        weight = sum(matches.weight for matches in found)
        unknown = (whole - part) * idf(self._rows.row_count, 0)
        return found if weight >= least * (weight + unknown) else []

    def _is_known(self, term: QueryTerm) -> bool:
        return bool(self._rows.newest([term], 1))

    def _as_a_sentence(
        self, ids: Sequence[int], scores: Mapping[int, float], small_words: Set[str]
    ) -> dict[int, float]:
        """What rows gain, or lose, where the query has small words: then it is a sentence."""
        added: dict[int, float] = {}
        for doc in self._rows.docs(ids):
            text = self.read(doc)
            if text is not None:
                # As much as a passage shows, since a long text has all small words.
                gain = SMALL_WORD_SCORE * len(small_words & words_of(text.text[:500]))
                whole = scores[doc.doc_id] + gain
                added[doc.doc_id] = gain - (whole * PRINTED_LOSS if text.role == "tool" else 0.0)
        return added


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d\d?)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS = [
    re.compile(rf"\b{form}\b", re.IGNORECASE)
    for form in (
        rf"{_YEAR}[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)",
        rf"{_YEAR}-(?P<month>\d\d)(?!-)",
        rf"{_DAY}(?: of)? {_MONTH},? {_YEAR}",
        rf"{_MONTH} {_DAY},? {_YEAR}",
        rf"{_MONTH},? {_YEAR}",
    )
]


def asked_times(text: str) -> Iterator[tuple[float, float]]:
    """The days and months with their year that `text` names: first and last moment, Unix, UTC."""
    for form in _FORMS:
        for match in form.finditer(text):
            times = _times(match.groupdict())
            if times is not None:
                yield times
        text = form.sub(" ", text)  # a month is not found within a day


def _times(named: dict[str, str | None]) -> tuple[float, float] | None:
    """None where there is no such day."""
    year, month, day = named["year"], named.get("month"), named.get("day")
    number = int(month) if month else 1 + _MONTHS.index((named["name"] or "")[:3].lower())
    try:
        first = datetime(int(year or 0), number, int(day or 1), tzinfo=UTC)
    except ValueError:
        return None
    days = 1 if day else monthrange(first.year, first.month)[1]
    return first.timestamp(), (first + timedelta(days=days, microseconds=-1)).timestamp()
