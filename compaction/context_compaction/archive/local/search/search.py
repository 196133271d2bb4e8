"""Search: words ranked or newest first, phrases, and regular expressions.

A query is never handed to FTS5 as it is, so no text of a user is a syntax error.
"""

import json
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from time import monotonic

from context_compaction.archive import History, Query, SearchPage
from context_compaction.archive.cursors import decode_cursor
from context_compaction.archive.documents import is_own_tool
from context_compaction.archive.local.search.fts_tables import (
    HAS_DEAD_ROWS,
    Filter,
    load_partitions,
    path_expression,
    role_token,
    session_token,
    time_range_tokens,
)
from context_compaction.archive.local.search.index import FAMILY, SearchIndex
from context_compaction.archive.local.search.regex_search import OnIndex, search_batches
from context_compaction.archive.local.search.rows import IndexRows
from context_compaction.archive.patterns import SCAN_SECONDS
from context_compaction.archive.search.page import (
    MILLISECOND,
    check_query,
    terms_of_query,
    words_page,
)
from context_compaction.archive.search.parts import tool_token
from context_compaction.archive.tokenizer import phrase_term
from context_compaction.errors import NotFoundError, QueryError

_CHECK_STEPS = 10_000  # of SQLite's machine, less than a millisecond, between looks at the clock
_NOTHING = ("none",)  # no row has this token


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
    check_query(query)
    cursor = decode_cursor(query.cursor) if query.cursor else None
    terms_of_query(query)  # refused before anything is indexed

    def work(connection: sqlite3.Connection) -> SearchPage:
        with _limited(connection, query, check) as still_allowed:
            allowed = _filter(connection, query, within)
            if cursor is not None:
                allowed = replace(allowed, last_id=cursor[1])
            rows = IndexRows(index, connection, allowed)
            of_all = Filter(without_own=allowed.without_own, has_dead_rows=allowed.has_dead_rows)
            everything = IndexRows(index, connection, of_all)
            return words_page(query, rows, everything, within, still_allowed)

    return index.run(work)


@contextmanager
def _limited(
    connection: sqlite3.Connection, query: Query, check: Callable[[], None]
) -> Generator[Callable[[], None]]:
    """Ends the block's work, in SQLite too, when `check` raises or `SCAN_SECONDS` are over.

    Yields what the block calls between its own steps. The index has caught up by now, which takes
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


async def search_pattern(
    on_index: OnIndex, query: Query, within: History | None = None
) -> SearchPage:
    """The same for a query of kind "regex"; `on_index` runs a function on the index in a thread."""
    check_query(query)
    cursor = decode_cursor(query.cursor) if query.cursor else None
    return await search_batches(
        on_index, query, lambda connection: _filter(connection, query, within), cursor
    )


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
    until = inf if query.until_seconds is None else query.until_seconds + MILLISECOND
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
        has_dead_rows=_has_dead_rows(connection),
    )


def _has_dead_rows(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM meta WHERE key = ?"
    return connection.execute(query, (HAS_DEAD_ROWS,)).fetchone() is not None


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
