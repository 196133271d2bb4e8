"""Searches for words and phrases: which rows match, in which order, and which hits a page shows.

A query is never passed to an index as it is, so no text of a user is a syntax error. Each word is
searched for separately, among its newest `CANDIDATES` rows. Then:

1. BM25 adds the contribution of each word, weighted by how rare the word is in the whole archive.
2. Words in the messages around a row count in part, because an answer seldom repeats the words of
   its question.
3. The best rows are read, and small words ("how", "before") contribute there; they find no rows.

benchmarks/results/search_ablation.md shows what each of these gains on questions that nobody tuned
on, and what was dropped: synonyms, nearness of words, a minimum share of the query, other weights
for parts of identifiers, British spelling, dates in the query.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from time import monotonic

from anyio import from_thread

from context_compaction.archive import tokenizer
from context_compaction.archive.documents import DocText
from context_compaction.archive.search import filters
from context_compaction.archive.search.filters import Row
from context_compaction.archive.search.hits import DIVERSE_ROWS, Locator, grouped, hit_at
from context_compaction.archive.search.patterns import SCAN_SECONDS, scan
from context_compaction.archive.values import History, Hit, Query, SearchPage
from context_compaction.errors import QueryError

_NEIGHBORS_READ = 100  # best rows whose neighbors count
_REREAD = 24  # best rows that are read for the small words of the query
# Factor of a word's share in a neighbor: if the row lacks the word, and if it has the word.
_LACKED_SHARE, _HELD_SHARE = 0.5, 0.25
# Share of its score that a tool result loses if the query is a sentence, because sentences ask for
# messages: without it, the first five hits answer 3 of 283 questions fewer.
_PRINTED_LOSS = 0.25
# Share of a row that contains the name that the query means, and score of a small word, however
# long the row is; about what BM25 gives for a common word.
_PLAIN_SHARE = 1.5

_QUESTION = re.compile(r"[?？؟][\W_]*\Z")


async def search(query: Query, within: History | None, on_rows: filters.OnRows) -> SearchPage:
    """See `Archive.search`; `within` is the branch that the query names."""
    allowed = replace(filters.filter_of(query), within=within)
    if query.kind == "regex":
        return await scan(query, allowed, on_rows)
    terms_of_query(query)  # raises before anything is read

    check = _time_limit(query)
    return await on_rows(lambda rows_of: words_page(query, allowed, rows_of, check), check)


def _time_limit(query: Query) -> filters.Check:
    """Return a check that raises when the search takes too long or was cancelled.

    The time starts with the first check, because the index may have to catch up first.
    """
    until_seconds = 0.0

    def check() -> None:
        nonlocal until_seconds
        from_thread.check_cancelled()
        until_seconds = until_seconds or monotonic() + SCAN_SECONDS
        if monotonic() > until_seconds:
            raise QueryError(
                f"The search for {query.text[:80]!r} took more than {SCAN_SECONDS:.0f} seconds and "
                "was stopped. Use fewer or rarer words, or pass a session_id."
            )

    return check


def words_page(
    query: Query, allowed: filters.Filter, rows_of: filters.RowsOf, check: filters.Check
) -> SearchPage:
    """Return one page of hits for a query of words or a phrase.

    Args:
        query: The query.
        allowed: The filter of the query and its cursor.
        rows_of: Returns the rows of a filter.
        check: Called repeatedly; an exception from it ends the search.
    """
    cursor = filters.decode_cursor(query.cursor) if query.cursor else None
    terms, rows = terms_of_query(query), rows_of(allowed)
    ranker = Ranker(rows, check)
    ranking = ranker.newest(terms) if query.order == "recent" else ranker.best(terms, query.text)
    everything = filters.Filter(without_tags=allowed.without_tags)
    anywhere = Ranker(rows_of(everything), check)
    elsewhere = [term for term in ranking.missing_terms if anywhere.is_found(term)]
    # A forged cursor may contain any number.
    offset = min(max(0, int(cursor[0])), len(ranking.ids)) if cursor else 0
    locator = Locator(terms)
    ids, indexes = ranking.ids, dict[int, int]()
    if query.order == "relevance" and len(terms) == 1 and len(terms[0].runs) == 1:
        read = ((doc.doc_id, ranker.read(doc)) for doc in rows.docs(ids[:DIVERSE_ROWS]))
        texts = {doc_id: content.text for doc_id, content in read if content is not None}
        indexes = locator.new_names(texts)
        ids = [*indexes, *(doc_id for doc_id in ids if doc_id not in indexes)]
    hits = _HitList(rows, ranker, query.order)
    is_prefix = all(term.is_prefix for term in terms)
    has_more, stop = False, offset
    for doc in islice(grouped(rows.docs, ids, offset + query.limit + 1), offset, None):
        if len(hits.hits) == query.limit or stop == offset + filters.CANDIDATES:
            has_more = True
            break
        stop += 1
        content = ranker.read(doc)
        if content is None:
            continue
        index = indexes.get(doc.doc_id)
        index = locator.find(content.text) if index is None else index
        # An index finds a prefix by stems, which other words may share.
        if index is not None or not is_prefix:
            hits.add(doc, content, index or 0, ranking.scores.get(doc.doc_id, 0.0))
    newest = max(ranking.ids) if cursor is None and has_more else cursor[1] if cursor else 0
    return SearchPage(
        tuple(hits.hits),
        len(ranking.ids),
        ranking.is_exact,
        filters.encode_cursor([stop, newest]) if has_more else None,
        tuple(" ".join(term.runs) for term in ranking.missing_terms if term not in elsewhere),
        tuple(" ".join(term.runs) for term in elsewhere),
        ranking.has_any,
    )


def terms_of_query(query: Query) -> list[tokenizer.QueryTerm]:
    """Return the terms of a query of words or a phrase.

    Raises:
        QueryError: The query contains no word.
    """
    if query.kind == "phrase":
        phrase = tokenizer.phrase_term(query.text)
        terms = [] if phrase is None else [phrase]
    else:
        terms = tokenizer.query_terms(query.text)
    if not terms:
        raise QueryError(
            f"The query {query.text[:80]!r} contains no letter or digit. "
            "Pass a word, or use kind='regex' to search for other characters."
        )
    return terms


class _HitList:
    """The hits of one page. A row that shows nothing new increases `repeats` of an earlier hit."""

    def __init__(self, rows: filters.Rows, ranker: "Ranker", order: str) -> None:
        self.hits: list[Hit] = []
        self._rows = rows
        self._ranker = ranker
        self._merges = order == "relevance"
        # Numbers of the hits that show the same passage of a session.
        self._passages: defaultdict[tuple[str, str], list[int]] = defaultdict(list)

    def add(self, doc: Row, content: DocText, index: int, score: float) -> None:
        """Add the hit for the match at `index` in the text of a row."""
        hit = hit_at(doc, content, index, score)
        equal = self._passages[hit.session_id, hit.snippet]
        # Two messages with the same passage are shown, as they may answer different calls.
        if self._merges and hit.kind == "message" and len(equal) == 2:
            earlier = self.hits[equal[0]]
            self.hits[equal[0]] = replace(earlier, repeats=earlier.repeats + 1)
            return
        equal.append(len(self.hits))
        self.hits.append(replace(hit, next=self._answer(doc, content)))

    def _answer(self, doc: Row, content: DocText) -> Hit | None:
        """Return the next message of the branch if this message ends with a question."""
        # Quotation marks and similar characters may follow the question mark.
        if doc.output_id is not None or not _QUESTION.search(content.text[-40:]):
            return None
        # The next message may have several parts, the first of which has the smallest ID.
        parts = (other for _, other, later in self._rows.near([doc.doc_id]) if later == 1)
        following = next(iter(self._rows.docs([min(parts, default=-1)])), None)
        answer = None if following is None else self._ranker.read(following)
        if following is None or answer is None or answer.is_own or answer.before != content.history:
            return None
        return hit_at(following, answer, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows in the order of the reply.

    Attributes:
        ids: IDs of the rows, best first.
        scores: Score of each row by its ID.
        is_exact: Whether `ids` has all rows.
        missing_terms: Terms that no row contains that passes the filter.
        has_any: Whether no row has all terms, so that the rows have any of them.
    """

    ids: Sequence[int]
    scores: dict[int, float]
    is_exact: bool
    missing_terms: tuple[tokenizer.QueryTerm, ...] = ()
    has_any: bool = False


class Ranker:
    """Ranks the rows of one archive for one query."""

    def __init__(self, rows: filters.Rows, check: filters.Check) -> None:
        """`check` is called before each text is read, and may raise."""
        self._rows = rows
        self._check = check
        self._contents: dict[int, DocText | None] = {}

    def read(self, doc: Row) -> DocText | None:
        """Return the content of a row as `Rows.read` does, and read each row once."""
        self._check()
        if doc.doc_id not in self._contents:
            self._contents[doc.doc_id] = self._rows.read(doc)
        return self._contents[doc.doc_id]

    def newest(self, terms: Sequence[tokenizer.QueryTerm]) -> Ranking:
        """Rank rows with all terms, newest first; if no row has all, rows with most terms first."""
        pieces = [piece for term in terms for piece in term.pieces]
        has_any = False
        ids = self._rows.newest(terms, filters.CANDIDATES, every=True)
        if not ids:
            has_any = len(terms) > 1
            ids = self._rows.newest([*terms, *pieces], filters.CANDIDATES)
        missing = tuple(term for term in terms if has_any and not self.is_found(term))
        rows = sorted(ids, key=lambda row: (ids[row], row), reverse=True)
        if has_any:
            counts = Counter(row for term in terms for row in self._rows.candidates(term).shares)
            rows = sorted(rows, key=lambda row: -counts[row])
        return Ranking(rows, {}, len(ids) < filters.CANDIDATES, missing, has_any and bool(rows))

    def best(self, terms: Sequence[tokenizer.QueryTerm], text: str) -> Ranking:
        """Rank rows with any of the terms, best first."""
        found: list[filters.Matches] = []
        missing: list[tokenizer.QueryTerm] = []
        for term in terms:
            matches = self._matches(term)
            # Pieces of a name are of interest only if the name itself does not occur.
            known = [matches] if matches.shares else self._pieces(term)
            found += known
            missing += [] if known else [term]
        scores: dict[int, float] = {}
        for matches in [*found, *self._names(terms, text, found)]:
            for row, share in matches.shares.items():
                scores[row] = scores.get(row, 0.0) + share * matches.weight
        order = _best_first(scores)
        if len(found) > 1:
            near = self._rows.near(order[:_NEIGHBORS_READ])
            order = _add_scores(order, scores, _neighbor_scores(near, found))
        small_words = {*tokenizer.phrase_words(text)[: tokenizer.MAX_QUERY_WORDS]}
        small_words -= {word for term in terms for word in term.words}
        if small_words:
            added = self._sentence_scores(order[:_REREAD], scores, small_words)
            order = _add_scores(order, scores, added)
        is_exact = all(matches.is_complete for matches in found)
        return Ranking(order, scores, is_exact, tuple(missing))

    def is_found(self, term: tokenizer.QueryTerm) -> bool:
        """Whether a row that passes the filter has a term, or enough of its pieces."""
        return self._occurs(term) or bool(self._pieces(term))

    def _occurs(self, term: tokenizer.QueryTerm) -> bool:
        return bool(self._rows.newest([term], 1))

    def _idf(self, count: float) -> float:
        """Return the BM25 weight of a term that `count` rows contain; never negative."""
        return math.log(1 + (self._rows.row_count - count + 0.5) / (count + 0.5))

    def _matches(self, term: tokenizer.QueryTerm) -> filters.Matches:
        found = self._rows.candidates(term)
        return replace(found, weight=term.weight * self._idf(found.row_count))

    def _names(
        self, terms: Sequence[tokenizer.QueryTerm], text: str, found: Sequence[filters.Matches]
    ) -> list[filters.Matches]:
        """Return rows that contain a name which the query may mean."""
        if len(found) == 1 and len(terms[0].runs) > 1:
            return []  # the name was found as the user wrote it
        names: list[filters.Matches] = []
        for term in tokenizer.likely_names(text):
            ids = self._rows.newest([term], filters.CANDIDATES)
            weight = term.weight * self._idf(len(ids))
            names.append(filters.Matches(dict.fromkeys(ids, _PLAIN_SHARE), len(ids), True, weight))
        return names

    def _pieces(self, term: tokenizer.QueryTerm) -> list[filters.Matches]:
        """Return the matches of a term's pieces, if enough of the term occurs."""
        # A run of a script without spaces is a whole sentence, of which a few words are enough.
        least = 0.5 if term.runs[0].isascii() else 0.1
        # Looking for one row of each piece first avoids most of the counting.
        known = [piece for piece in term.pieces if self._occurs(piece)]
        total_weight, known_weight = (
            sum(piece.weight for piece in of) for of in (term.pieces, known)
        )
        if known_weight <= least * total_weight:
            return []
        found = [self._matches(piece) for piece in known]
        weight = sum(matches.weight for matches in found)
        unknown_weight = (total_weight - known_weight) * self._idf(0)
        return found if weight >= least * (weight + unknown_weight) else []

    def _sentence_scores(
        self, ids: Sequence[int], scores: Mapping[int, float], small_words: Set[str]
    ) -> dict[int, float]:
        """Return the change of each row's score if the query is a sentence with small words."""
        added: dict[int, float] = {}
        for doc in self._rows.docs(ids):
            content = self.read(doc)
            if content is not None:
                # Only the start of a text counts, because a long text has all small words.
                gain = _PLAIN_SHARE * len(small_words & tokenizer.words_of(content.text[:500]))
                loss = _PRINTED_LOSS * (scores[doc.doc_id] + gain)
                added[doc.doc_id] = gain - loss if content.role == "tool" else gain
        return added


def _neighbor_scores(
    near: Iterable[tuple[int, int, int]], found: Sequence[filters.Matches]
) -> dict[int, float]:
    """Return the score that each row gets from matches in the messages around it.

    Args:
        near: Rows with a neighbor each, and by how many messages that is later.
        found: The matches of each term.
    """
    best: dict[tuple[int, int], float] = defaultdict(float)  # by row and number of the term
    for row, other, later in near:
        for number, matches in enumerate(found):
            nearby = matches.shares.get(other, 0.0) / abs(later)
            best[row, number] = max(best[row, number], nearby)
    added: dict[int, float] = defaultdict(float)
    for (row, number), nearby in best.items():
        factor = _HELD_SHARE if row in found[number].shares else _LACKED_SHARE
        added[row] += factor * nearby * found[number].weight
    return added


def _best_first(scores: Mapping[int, float]) -> list[int]:
    """Return the rows, best first; of equal rows the newer first, which has the larger ID."""
    return sorted(scores, key=lambda row: (scores[row], row), reverse=True)


def _add_scores(
    order: Sequence[int], scores: dict[int, float], added: Mapping[int, float]
) -> list[int]:
    """Add to the scores of some of the first rows, and return the rows in their new order."""
    for row, more in added.items():
        scores[row] += more
    stop = 1 + max((number for number, row in enumerate(order) if row in added), default=-1)
    return [*_best_first({row: scores[row] for row in order[:stop]}), *order[stop:]]
