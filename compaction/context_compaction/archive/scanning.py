"""Regular expressions, matched with the texts themselves, newest first.

A scan keeps to a byte budget and a deadline, and says where to go on. Where the pattern cannot
match without certain whole words, only rows with those words are read.
"""

import math
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import regex

from context_compaction.archive import Hit, Query, SearchPage
from context_compaction.archive.cursors import encode_cursor
from context_compaction.archive.hits import Groups, hit_at
from context_compaction.archive.index import Doc, SearchIndex
from context_compaction.archive.literals import required_words
from context_compaction.archive.shards import (
    Filter,
    expression_of,
    load_shards,
    newest_ids,
)
from context_compaction.archive.terms import phrase_unit
from context_compaction.errors import QueryError

MAX_PATTERN_CHARS = 1000
# The counts of a pattern's repetitions, multiplied. The engine writes `x{1000}` out as it compiles,
# and nested repetitions multiply: a million takes half a second, and cannot be stopped.
MAX_REPETITIONS = 1_000_000
SCAN_BYTES = 64 * 1024 * 1024
SCAN_SECONDS = 5.0
# One text is searched for this long at most: some patterns need exponential time.
MATCH_SECONDS = 1.0

_REPETITION = re.compile(r"\{(?:[0-9]+,?[0-9]*|,[0-9]+)\}")
_DOCS_A_READ = 200


def scan(
    index: SearchIndex,
    query: Query,
    filter_of: Callable[[sqlite3.Connection], Filter],
    cursor: tuple[float, int] | None,
) -> SearchPage:
    """The newest texts that a pattern matches.

    Raises:
        QueryError: The pattern is no regular expression, or too slow.
    """
    pattern = _compile(query.text)
    words = [phrase_unit(words) for words in required_words(query.text)]
    expression = " AND ".join(expression_of(unit) for unit in words if unit is not None)

    def work(connection: sqlite3.Connection) -> SearchPage:
        allowed = filter_of(connection)
        if cursor is not None:
            allowed = replace(allowed, last_id=cursor[1])
        hits: list[Hit] = []
        groups = Groups()
        deadline = time.monotonic() + SCAN_SECONDS
        scanned_bytes = 0
        for doc in _newest_docs(index, connection, allowed, expression):
            if (
                len(hits) == query.limit
                or scanned_bytes > SCAN_BYTES
                or time.monotonic() > deadline
            ):
                more = encode_cursor([0, doc.doc_id])
                return SearchPage(tuple(hits), len(hits), False, more)
            said = index.read(doc)
            if said is None:
                continue
            scanned_bytes += len(said.text)
            at = _first_match(pattern, said.text)
            if at is not None and groups.has_room(doc):
                hits.append(hit_at(doc, said, at, 0.0))
        return SearchPage(tuple(hits), len(hits), cursor is None)

    return index.run(work)


def _newest_docs(
    index: SearchIndex, connection: sqlite3.Connection, allowed: Filter, expression: str
) -> Iterator[Doc]:
    """Every row that `allowed` and `expression` let through, the last one first."""
    shards = load_shards(connection)
    is_open = not allowed.match(expression)
    while True:
        if is_open:
            rows = connection.execute(
                "SELECT id FROM doc WHERE id <= ? ORDER BY id DESC LIMIT ?",
                (allowed.last_id, _DOCS_A_READ),
            )
            ids = [doc_id for (doc_id,) in rows]
        else:
            ids = newest_ids(connection, shards, allowed, expression, _DOCS_A_READ)
        yield from index.docs(connection, allowed.in_time(connection, ids))
        if not ids:
            return
        allowed = replace(allowed, last_id=min(ids) - 1)


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
