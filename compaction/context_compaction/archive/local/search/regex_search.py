"""The texts that a pattern is matched with, from the log, newest first."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from context_compaction.archive import Query, SearchPage
from context_compaction.archive.local.search.fts_tables import (
    Filter,
    expression_of,
    load_partitions,
    newest_ids,
)
from context_compaction.archive.local.search.index import Doc, SearchIndex
from context_compaction.archive.patterns import SCAN_BYTES
from context_compaction.archive.records import BLOB_MARK
from context_compaction.archive.search.hits import DocText, Row
from context_compaction.archive.search.pattern_search import (
    BATCH_CHARS,
    Batch,
    required_literals,
    required_words,
    scan,
)
from context_compaction.archive.tokenizer import phrase_term

_BATCH_BYTES = 8_000_000  # of lines that are passed over, since a thread cannot be stopped
_DOCS_A_READ = 200


# Gives a function the index in a thread.
OnIndex = Callable[[Callable[[SearchIndex], Batch]], Awaitable[Batch]]


async def search_batches(
    on_index: OnIndex,
    query: Query,
    filter_of: Callable[[sqlite3.Connection], Filter],
    cursor: tuple[float, int] | None,
) -> SearchPage:
    """The newest texts that a pattern matches; see `scan`."""
    words = [phrase_term(words) for words in required_words(query.text)]
    expression = " AND ".join(expression_of(term) for term in words if term is not None)
    literals = required_literals(query.text)

    async def read_batch(last_id: int) -> Batch:
        def read(index: SearchIndex, connection: sqlite3.Connection) -> Batch:
            allowed = replace(filter_of(connection), last_id=last_id)
            return _read_batch(index, connection, allowed, expression, literals)

        return await on_index(lambda index: index.run(lambda connection: read(index, connection)))

    return await scan(query, Filter(()).last_id if cursor is None else cursor[1], read_batch)


def _read_batch(
    index: SearchIndex,
    connection: sqlite3.Connection,
    allowed: Filter,
    expression: str,
    literals: Sequence[Sequence[bytes]],
) -> Batch:
    """The newest rows that `allowed` and `expression` let through, of about `_BATCH_CHARS`.

    Messages without any of the lists of `literals` are passed over: a line contains them as
    its text does.
    """
    rows: list[tuple[Row, DocText]] = []
    read_bytes = size_chars = 0
    for doc, line in index.lines(_newest_docs(index, connection, allowed, expression)):
        if size_chars >= min(BATCH_CHARS, SCAN_BYTES) or read_bytes >= _BATCH_BYTES:
            return Batch(rows, doc.doc_id)
        read_bytes += doc.length
        if doc.output_id is None and not _may_match(line, literals):
            continue
        content = index.text(doc, line)
        if content is not None and not (content.is_own and allowed.without_own):
            rows.append((doc, content))
            size_chars += len(content.text)
    return Batch(rows, -1)


def _may_match(line: bytes, literals: Sequence[Sequence[bytes]]) -> bool:
    """Whether the text of a message's line may contain what one of the lists requires."""
    found = any(all(literal in line for literal in every) for every in literals)
    return found or any(mark in line for mark in _HIDING)


def _newest_docs(
    index: SearchIndex, connection: sqlite3.Connection, allowed: Filter, expression: str
) -> Iterator[Doc]:
    """Every row that `allowed` and `expression` let through, the last one first."""
    partitions = load_partitions(connection)
    is_open = not allowed.match(expression)
    while True:
        if is_open:
            rows = connection.execute(
                "SELECT id FROM doc WHERE id <= ? ORDER BY id DESC LIMIT ?",
                (allowed.last_id, _DOCS_A_READ),
            )
            ids = [doc_id for (doc_id,) in rows]
        else:
            ids = newest_ids(connection, partitions, allowed, expression, _DOCS_A_READ)
        yield from index.docs(connection, allowed.living(connection, ids))
        if not ids:
            return
        allowed = replace(allowed, last_id=min(ids) - 1)


# Text of a message that does not stand in its line: kept elsewhere, or escaped by who wrote it.
_HIDING = (BLOB_MARK, rb"\\u00")
