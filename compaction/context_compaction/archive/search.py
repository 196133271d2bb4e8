"""Search: words ranked or newest first, phrases, and regular expressions.

The words of a query are looked for one by one, each among its newest `CANDIDATES` matches, and
their BM25 scores added: that is BM25 of any-of-these-words, at a cost that does not grow with the
archive. A query is never handed to FTS5 as it is, so no text of a user is a syntax error. Regular
expressions run over the texts themselves, newest first, within a byte budget and a deadline, and
say where to go on.
"""

import math
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import regex

from context_compaction.archive import Hit, Query, SearchPage
from context_compaction.archive.cursors import decode_cursor, encode_cursor
from context_compaction.archive.index import Doc, SearchIndex
from context_compaction.archive.indexing import (
    first_doc_id,
    role_token,
    session_token,
    tool_token,
)
from context_compaction.archive.log import check_session_id, session_key
from context_compaction.archive.snippets import Locator, snippet
from context_compaction.archive.terms import Unit, phrase_unit, query_units
from context_compaction.errors import QueryError

CANDIDATES = 1000  # matches of one word that are ranked, the newest; measured: 3 to 10 ms
MAX_HITS_PER_OUTPUT = 3
MAX_LIMIT = 100
MAX_PATTERN_CHARS = 1000
# The counts of a pattern's repetitions, multiplied. The engine writes `x{1000}` out as it compiles,
# and nested repetitions multiply: a million takes half a second, and cannot be stopped.
MAX_REPETITIONS = 1_000_000
SCAN_BYTES = 64 * 1024 * 1024
SCAN_SECONDS = 5.0
# One text is searched for this long at most: some patterns need exponential time.
MATCH_SECONDS = 1.0

ROLES = ("user", "assistant", "system", "tool")

_REPETITION = re.compile(r"\{(?:[0-9]+,?[0-9]*|,[0-9]+)\}")
_NEWEST_ID = (1 << 63) - 1
_DOCS_A_READ = 200


@dataclass(frozen=True, slots=True)
class _Filter:
    """What a row must be: its tokens, and its id between two bounds, both included."""

    tokens: tuple[str, ...]
    first_id: int
    last_id: int

    def match(self, expression: str) -> str:
        """An FTS5 expression for `expression` (may be empty) under these tokens."""
        tokens = " AND ".join(f'meta : "{token}"' for token in self.tokens)
        return " AND ".join(f"({part})" for part in (expression, tokens) if part)


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Row ids in the order of the answer, with their scores."""

    ids: Sequence[int]
    scores: dict[int, float]
    is_exact: bool


def search(index: SearchIndex, query: Query) -> SearchPage:
    """See `Archive.search`.

    Raises:
        QueryError: The query holds no word, its pattern is wrong or too slow, or a filter, the
            limit or the cursor cannot be used.
    """
    if not 1 <= query.limit <= MAX_LIMIT:
        raise QueryError(
            f"limit={query.limit} cannot be used. Give a number from 1 to {MAX_LIMIT}."
        )
    allowed = _filter(query)
    cursor = decode_cursor(query.cursor) if query.cursor else None
    if query.kind == "regex":
        return _search_regex(index, query, allowed, cursor)
    units = _units(query)
    if cursor is not None:
        allowed = _Filter(allowed.tokens, allowed.first_id, min(allowed.last_id, cursor[1]))

    def work(connection: sqlite3.Connection) -> SearchPage:
        ranking = _rank(connection, query, units, allowed)
        offset = int(cursor[0]) if cursor else 0
        docs = list(_grouped(index, connection, ranking.ids, offset + query.limit + 1))
        page = docs[offset : offset + query.limit]
        locator = Locator(units)
        hits: list[Hit] = []
        for doc in page:
            text = index.text(doc)
            if text is not None:
                at = locator.find(text)
                hits.append(_hit(doc, text, at, ranking.scores.get(doc.doc_id, 0.0)))
        has_more = len(docs) > offset + query.limit
        newest = max(ranking.ids) if cursor is None and has_more else allowed.last_id
        return SearchPage(
            tuple(hits),
            len(ranking.ids),
            ranking.is_exact,
            encode_cursor([offset + query.limit, newest]) if has_more else None,
        )

    return index.run(work)


def _filter(query: Query) -> _Filter:
    tokens: list[str] = []
    if query.session_id is not None:
        tokens.append(session_token(session_key(check_session_id(query.session_id))))
    if query.role is not None:
        if query.role not in ROLES:
            raise QueryError(f"Unknown role {query.role!r}. Give one of: {', '.join(ROLES)}.")
        tokens.append(role_token(query.role))
    if query.tool is not None:
        tokens.append(tool_token(query.tool))
    first = 0 if query.since_seconds is None else first_doc_id(query.since_seconds)
    last = _NEWEST_ID
    if query.until_seconds is not None:
        last = first_doc_id(query.until_seconds + 0.001) - 1
    return _Filter(tuple(tokens), first, last)


def _units(query: Query) -> list[Unit]:
    if query.kind == "phrase":
        phrase = phrase_unit(query.text)
        units = [] if phrase is None else [phrase]
    else:
        units = query_units(query.text)
    if not units:
        raise QueryError(
            f"The query {query.text[:80]!r} holds no letter or digit. "
            "Give a word, or use kind='regex' to look for other characters."
        )
    return units


def _rank(
    connection: sqlite3.Connection, query: Query, units: Sequence[Unit], allowed: _Filter
) -> _Ranking:
    if query.order == "recent":
        return _newest(connection, units, allowed)
    scores: dict[int, float] = {}
    is_exact = True
    for unit in units:
        # The pieces of a name are of interest only where the name itself is found nowhere.
        counts = [_add_scores(connection, unit, allowed, scores)]
        if not counts[0]:
            counts = [_add_scores(connection, piece, allowed, scores) for piece in unit.pieces]
        is_exact &= all(count < CANDIDATES for count in counts)
    # Among equals the newer first.
    ids = sorted(scores, key=lambda doc_id: (scores[doc_id], doc_id), reverse=True)
    return _Ranking(ids, scores, is_exact)


def _add_scores(
    connection: sqlite3.Connection, unit: Unit, allowed: _Filter, scores: dict[int, float]
) -> int:
    """Add what each row gains by `unit`; return how many rows have it, at most `CANDIDATES`."""
    rows = connection.execute(
        # The weights of the columns: words, parts of identifiers, and the filters' tokens.
        "SELECT rowid, bm25(fts, 1.0, 0.5, 0.0) FROM fts"
        " WHERE fts MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?",
        (allowed.match(_expression(unit)), allowed.first_id, allowed.last_id, CANDIDATES),
    ).fetchall()
    for doc_id, score in rows:
        scores[doc_id] = scores.get(doc_id, 0.0) - score * unit.weight
    return len(rows)


def _newest(connection: sqlite3.Connection, units: Sequence[Unit], allowed: _Filter) -> _Ranking:
    """Rows with all the words, newest first; where there are none, rows with any of them."""
    asked = [_expression(unit) for unit in units]
    pieces = [_expression(piece) for unit in units for piece in unit.pieces]
    ids: list[int] = []
    for expression in (" AND ".join(asked), " OR ".join(asked + pieces)):
        rows = connection.execute(
            "SELECT rowid FROM fts WHERE fts MATCH ? AND rowid BETWEEN ? AND ?"
            " ORDER BY rowid DESC LIMIT ?",
            (allowed.match(expression), allowed.first_id, allowed.last_id, CANDIDATES),
        )
        ids = [doc_id for (doc_id,) in rows]
        if ids:
            break
    return _Ranking(ids, {}, len(ids) < CANDIDATES)


def _expression(unit: Unit) -> str:
    """The FTS5 expression of a unit; its words are letters and digits only, so quotes are safe."""
    columns = "words" if len(unit.words) > 1 else "{words parts}"
    star = " *" if unit.is_prefix else ""
    return f'({columns} : "{" ".join(unit.words)}"{star})'


def _grouped(
    index: SearchIndex, connection: sqlite3.Connection, ids: Sequence[int], count: int
) -> Iterator[Doc]:
    """The first `count` rows of `ids`, with at most `MAX_HITS_PER_OUTPUT` of any one output."""
    seen: dict[tuple[str, str], int] = {}
    for start in range(0, len(ids), _DOCS_A_READ):
        for doc in index.docs(connection, ids[start : start + _DOCS_A_READ]):
            if not _is_room(doc, seen):
                continue
            yield doc
            count -= 1
            if not count:
                return


def _is_room(doc: Doc, seen: dict[tuple[str, str], int]) -> bool:
    """Count a row of an output; False where the output has had its share."""
    if doc.output_id is None:
        return True
    group = (doc.session_key, doc.output_id)
    seen[group] = seen.get(group, 0) + 1
    return seen[group] <= MAX_HITS_PER_OUTPUT


def _search_regex(
    index: SearchIndex, query: Query, allowed: _Filter, cursor: tuple[float, int] | None
) -> SearchPage:
    pattern = _compile(query.text)
    last_id = allowed.last_id if cursor is None else min(allowed.last_id, cursor[1])

    def work(connection: sqlite3.Connection) -> SearchPage:
        hits: list[Hit] = []
        seen: dict[tuple[str, str], int] = {}
        deadline = time.monotonic() + SCAN_SECONDS
        scanned_bytes = 0
        for doc in _newest_docs(index, connection, allowed, last_id):
            if (
                len(hits) == query.limit
                or scanned_bytes > SCAN_BYTES
                or time.monotonic() > deadline
            ):
                more = encode_cursor([0, doc.doc_id])
                return SearchPage(tuple(hits), len(hits), False, more)
            text = index.text(doc)
            if text is None:
                continue
            scanned_bytes += len(text)
            at = _first_match(pattern, text)
            if at is not None and _is_room(doc, seen):
                hits.append(_hit(doc, text, at, 0.0))
        return SearchPage(tuple(hits), len(hits), cursor is None)

    return index.run(work)


def _newest_docs(
    index: SearchIndex, connection: sqlite3.Connection, allowed: _Filter, last_id: int
) -> Iterator[Doc]:
    """Every row that `allowed` lets through, newest first, from `last_id` down."""
    matching = "SELECT id FROM doc WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?"
    if allowed.tokens:
        matching = (
            "SELECT rowid FROM fts WHERE fts MATCH ? AND rowid BETWEEN ? AND ?"
            " ORDER BY rowid DESC LIMIT ?"
        )
    tokens = [allowed.match("")] if allowed.tokens else []
    while True:
        rows = connection.execute(matching, (*tokens, allowed.first_id, last_id, _DOCS_A_READ))
        ids = [doc_id for (doc_id,) in rows]
        yield from index.docs(connection, ids)
        if len(ids) < _DOCS_A_READ:
            return
        last_id = ids[-1] - 1


def _compile(pattern: str) -> "regex.Pattern[str]":
    if not 0 < len(pattern) <= MAX_PATTERN_CHARS:
        raise QueryError(
            f"The pattern has {len(pattern)} characters. Give 1 to {MAX_PATTERN_CHARS}."
        )
    counts = (max(map(int, re.findall("[0-9]+", part))) for part in _REPETITION.findall(pattern))
    if math.prod(max(count, 1) for count in counts) > MAX_REPETITIONS:
        raise QueryError(
            f"The pattern {pattern[:80]!r} repeats too often: the counts in its braces, "
            f"multiplied, exceed {MAX_REPETITIONS}. Use * or + instead."
        )
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise QueryError(
            f"The pattern {pattern[:80]!r} is no regular expression: {error}. "
            "Correct it, or use kind='phrase' to look for the text as it is."
        ) from error


def _first_match(pattern: "regex.Pattern[str]", text: str) -> int | None:
    """Where the first match begins that is not empty."""
    try:
        # `concurrent` lets go of the interpreter lock, so that the event loop goes on meanwhile.
        for match in pattern.finditer(text, concurrent=True, timeout=MATCH_SECONDS):
            if match.end() > match.start():
                return match.start()
    except TimeoutError as error:
        raise QueryError(
            f"The pattern {pattern.pattern[:80]!r} takes longer than {MATCH_SECONDS:g} second on "
            "one text. Avoid nested repetition, such as (a+)+."
        ) from error
    return None


def _hit(doc: Doc, text: str, at: int, score: float) -> Hit:
    is_message = doc.output_id is None
    return Hit(
        pointer=doc.output_id or f"transcript://{doc.session_id}/messages/{doc.seq}-{doc.seq}",
        kind="message" if is_message else "output",
        session_id=doc.session_id,
        seq=doc.seq,
        role=doc.role,
        tool_name=doc.tool,
        timestamp_seconds=doc.seconds,
        snippet=snippet(text, at),
        offset_chars=doc.start_char + at,
        line=None if is_message else doc.start_line + text.count("\n", 0, at),
        score=score,
    )
