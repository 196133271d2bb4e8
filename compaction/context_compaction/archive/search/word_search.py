"""Searches for words and phrases: which rows, and in which order, whatever index they are in.

Each word is looked for by itself, among its newest `CANDIDATES` rows; `archive/ranking.py` weighs
what they contain.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from context_compaction.archive.dates import asked_times
from context_compaction.archive.documents import DocText
from context_compaction.archive.ranking import (
    Matches,
    add_scores,
    best_first,
    idf,
    neighbor_context,
    scores_of,
    small_word_score,
)
from context_compaction.archive.search.hits import Row
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

# What a row loses that a tool printed, where the query is a sentence: those ask for what was said.
# Of 240 readers' questions 5 more are found at once; held-out-2 gains one, the other sets none.
PRINTED_LOSS = 0.25

# Where a name is found nowhere, this much of its pieces must be, by how rare they are. A run of an
# unspaced script is a whole sentence, of which a few words are enough.
MIN_PIECES_SHARE = 0.5
MIN_UNSPACED_SHARE = 0.1

# A row that contains the name asked for earns this, however long it is; BM25 gives 0 to 2.2.
NAME_SHARE = 1.5

D = TypeVar("D", bound=Row)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The newest rows that contain one thing asked for, as far as a filter lets them through.

    Attributes:
        shares: What BM25 gives each, before it is weighted: see `Matches`.
        row_count: How many rows of the whole archive contain it, about.
        is_whole: Whether these are all that the filter lets through.
    """

    shares: Mapping[int, float]
    row_count: float
    is_whole: bool


class Rows(Protocol[D]):
    """What a search asks of an index, under one filter. Every method blocks."""

    @property
    def row_count(self) -> int:
        """How many rows the archive has, about."""
        ...

    def candidates(self, term: QueryTerm) -> Candidates:
        """The newest `CANDIDATES` rows that contain a term."""
        ...

    def said_within(self, times: Sequence[tuple[float, float]]) -> Candidates:
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
        weight = term.weight * idf(self._rows.row_count, found.row_count)
        return Matches(found.shares, weight, found.is_whole)

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
            names.append(Matches(dict.fromkeys(ids, NAME_SHARE), weight, True))
        return names

    def _dated(self, text: str) -> list[Matches]:
        """Rows of the days that `text` names."""
        times = list(dict.fromkeys(asked_times(text)))[:MAX_QUERY_TERMS]
        if not times:
            return []
        found = self._rows.said_within(times)
        weight = idf(self._rows.row_count, found.row_count)
        return [Matches(found.shares, weight, found.is_whole)] if found.shares else []

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
                gain = small_word_score(text.text, small_words)
                whole = scores[doc.doc_id] + gain
                added[doc.doc_id] = gain - (whole * PRINTED_LOSS if text.role == "tool" else 0.0)
        return added
