"""Search: words ranked or newest first, phrases, and regular expressions.

A query is never handed to FTS5 as it is, so no text of a user is a syntax error.
"""

import json
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from time import monotonic

from context_compaction.archive import History, Hit, Query, SearchPage
from context_compaction.archive.cursors import decode_cursor, encode_cursor
from context_compaction.archive.documents import is_own_tool
from context_compaction.archive.local.search.diversify import READ_ROWS, diversify
from context_compaction.archive.local.search.fts_tables import (
    Filter,
    load_partitions,
    path_expression,
    role_token,
    session_token,
    time_range_tokens,
)
from context_compaction.archive.local.search.hits import grouped, hit_at, next_hit
from context_compaction.archive.local.search.index import FAMILY, Doc, SearchIndex
from context_compaction.archive.local.search.ingest import tool_token
from context_compaction.archive.local.search.regex_search import OnIndex, scan
from context_compaction.archive.local.search.word_search import Ranker
from context_compaction.archive.patterns import SCAN_SECONDS
from context_compaction.archive.snippets import Locator
from context_compaction.archive.tokenizer import QueryTerm, phrase_term, query_terms
from context_compaction.errors import NotFoundError, QueryError
from context_compaction.request import check_session_id

MAX_LIMIT = 100
MAX_QUERY_CHARS = 20_000  # a page of text, pasted as a question

ROLES = ("user", "assistant", "system", "tool")

_CHECK_STEPS = 10_000  # of SQLite's machine, less than a millisecond, between looks at the clock
_NOTHING = ("none",)  # no row has this token
_MILLISECOND = 0.001  # times are shown by the millisecond, and what was shown may be asked for


def search(
    index: SearchIndex,
    query: Query,
    within: History | None = None,
    check: Callable[[], None] = lambda: None,
) -> SearchPage:
    """See `Archive.search`; for a query of words or a phrase, `within` the history that it names.

    Args:
        index: What is searched.
        query: What is looked for.
        within: The history to search in.
        check: Called again and again; what it raises ends the search.

    Raises:
        QueryError: The query holds no word or takes too long, or a filter, the limit or the cursor
            cannot be used.
        NotFoundError: There is no session of the name that is given.
    """
    _check(query)
    cursor = decode_cursor(query.cursor) if query.cursor else None
    terms = _terms(query)
    is_prefix = all(term.is_prefix for term in terms)

    def work(connection: sqlite3.Connection) -> SearchPage:
        with _limited(connection, query, check) as still_allowed:
            return answer(connection, still_allowed)

    def answer(connection: sqlite3.Connection, still_allowed: Callable[[], None]) -> SearchPage:
        allowed = _filter(connection, query, within)
        if cursor is not None:
            allowed = replace(allowed, last_id=cursor[1])
        ranker = Ranker(index, connection, allowed, still_allowed)
        ranking = (
            ranker.newest(terms) if query.order == "recent" else ranker.best(terms, query.text)
        )
        everything = Filter(without_own=allowed.without_own)
        anywhere = Ranker(index, connection, everything, still_allowed)
        elsewhere = [term for term in ranking.missing_terms if anywhere.is_found(term)]
        offset = max(0, int(cursor[0])) if cursor else 0
        locator = Locator(terms)
        ids = ranking.ids
        chosen: dict[int, int] = {}
        if query.order == "relevance" and len(terms) == 1 and len(terms[0].runs) == 1:
            chosen = _varied(
                terms[0].runs[0], ranker, locator, index.docs(connection, ids[:READ_ROWS])
            )
            ids = [*chosen, *(doc_id for doc_id in ids if doc_id not in chosen)]
        docs = list(grouped(index, connection, ids, offset + query.limit + 1))
        hits: list[Hit] = []
        for doc in docs[offset : offset + query.limit]:
            content = ranker.read(doc)
            at = chosen.get(doc.doc_id)
            if content is not None and at is None:
                at = locator.find(content.text)
            # A prefix is looked for by stems, which other words may share.
            if content is not None and (at is not None or not is_prefix):
                hit = hit_at(doc, content, at or 0, ranking.scores.get(doc.doc_id, 0.0))
                following = next_hit(index, connection, doc, content, ranker.read, within)
                hits.append(replace(hit, next=following))
        has_more = len(docs) > offset + query.limit
        newest = max(ranking.ids) if cursor is None and has_more else allowed.last_id
        return SearchPage(
            tuple(hits),
            len(ranking.ids),
            ranking.is_exact,
            encode_cursor([offset + query.limit, newest]) if has_more else None,
            tuple(" ".join(term.runs) for term in ranking.missing_terms if term not in elsewhere),
            tuple(" ".join(term.runs) for term in elsewhere),
            ranking.has_any,
        )

    return index.run(work)


@contextmanager
def _limited(
    connection: sqlite3.Connection, query: Query, check: Callable[[], None]
) -> Generator[Callable[[], None]]:
    """Ends the block's work, in SQLite too, when `check` raises or `SCAN_SECONDS` are over.

    Gives what the block calls between its own steps. The index has caught up by now, which takes
    the time that it takes and is not the query's fault.
    """
    until_seconds = monotonic() + SCAN_SECONDS

    def still_allowed() -> None:
        check()
        if monotonic() > until_seconds:
            raise QueryError(
                f"The search for {query.text[:80]!r} took more than {SCAN_SECONDS:.0f} seconds and "
                "was stopped. Give fewer or rarer words, or a session_id."
            )

    # What is raised in there interrupts SQLite, and is not passed on.
    connection.set_progress_handler(still_allowed, _CHECK_STEPS)
    try:
        yield still_allowed
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            still_allowed()
        raise
    finally:
        connection.set_progress_handler(None, 0)


def _varied(word: str, ranker: Ranker, locator: Locator, docs: Sequence[Doc]) -> dict[int, int]:
    """The rows that show different names with the one word asked for, and which place of each."""
    read = [(doc.doc_id, ranker.read(doc)) for doc in docs]
    texts = [(row, text.text, locator.places(text.text)) for row, text in read if text is not None]
    return diversify(word, texts)


async def search_pattern(
    on_index: OnIndex, query: Query, within: History | None = None
) -> SearchPage:
    """The same for a query of kind "regex"; `on_index` gives a function the index in a thread."""
    _check(query)
    cursor = decode_cursor(query.cursor) if query.cursor else None
    return await scan(
        on_index, query, lambda connection: _filter(connection, query, within), cursor
    )


def _check(query: Query) -> None:
    if not 1 <= query.limit <= MAX_LIMIT:
        raise QueryError(
            f"limit={query.limit} cannot be used. Give a number from 1 to {MAX_LIMIT}."
        )
    if len(query.text) > MAX_QUERY_CHARS:
        raise QueryError(
            f"The query has {len(query.text)} characters. Give at most {MAX_QUERY_CHARS}: the few "
            "words that matter."
        )
    if query.role is not None and query.role not in ROLES:
        raise QueryError(f"Unknown role {query.role!r}. Give one of: {', '.join(ROLES)}.")
    if query.session_id is not None:
        check_session_id(query.session_id)
    elif query.head is not None:
        raise QueryError(f"The history {query.head!r} is of no session. Give session_id as well.")
    if query.path is not None and phrase_term(query.path) is None:
        raise QueryError(f"The path {query.path[:80]!r} holds no letter or digit.")


def _filter(connection: sqlite3.Connection, query: Query, within: History | None) -> Filter:
    tokens: list[tuple[str, ...]] = []
    if query.session_id is not None:
        family = connection.execute(FAMILY, (query.session_id,)).fetchall()
        if not family:
            raise NotFoundError(
                f"The archive holds no session {query.session_id!r}. Leave session_id out to "
                "search all sessions; every hit names its own."
            )
        tokens.append(tuple(session_token(session) for (session,) in family))
    if query.role is not None:
        tokens.append((role_token(query.role),))
    if query.tool is not None:
        tokens.append((tool_token(query.tool),))
    since = -inf if query.since_seconds is None else query.since_seconds
    until = inf if query.until_seconds is None else query.until_seconds + _MILLISECOND
    if since > -inf or until < inf:
        partitions = load_partitions(connection)
        first = max([since, min((partition.min_seconds for partition in partitions), default=0.0)])
        last = min([until, max((partition.max_seconds for partition in partitions), default=0.0)])
        tokens.append(time_range_tokens(first, last) or _NOTHING)
    path = None if query.path is None else phrase_term(query.path)
    expression = "" if path is None else path_expression(path)
    wants_own = query.tool is not None and is_own_tool(query.tool)
    return Filter(
        tuple(tokens),
        expression,
        without_own=not wants_own,
        ids=None if within is None else _rows_of(connection, query.session_id or "", within),
        since_seconds=since,
        until_seconds=until,
    )


def _rows_of(connection: sqlite3.Connection, session_id: str, history: History) -> str:
    """The rows of a session's messages and outputs that one history holds."""
    rows = connection.execute(
        "SELECT doc.id FROM doc JOIN session ON session.id = doc.session"
        " LEFT JOIN part ON part.id = doc.id WHERE session_id = ?"
        " AND iif(seq = -1, output_id IN (SELECT value FROM json_each(?)),"
        " seq IN (SELECT value FROM json_each(?)))",
        (session_id, json.dumps(sorted(history.output_ids)), json.dumps(history.seqs)),
    )
    return json.dumps([doc_id for (doc_id,) in rows])


def _terms(query: Query) -> list[QueryTerm]:
    if query.kind == "phrase":
        phrase = phrase_term(query.text)
        terms = [] if phrase is None else [phrase]
    else:
        terms = query_terms(query.text)
    if not terms:
        raise QueryError(
            f"The query {query.text[:80]!r} holds no letter or digit. "
            "Give a word, or use kind='regex' to look for other characters."
        )
    return terms
