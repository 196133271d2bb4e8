"""What a search finds: records as rows with their words, and what is asked for as a `tsquery`.

PostgreSQL's own parser keeps `src/a/b_c.py` as one word, so words are made by us, as for every
other archive (`archive/tokenizer.py`), and handed over with their positions:

- words of the text follow each other, for phrases;
- parts of identifiers are all at one position behind them;
- words of the paths of the call that a result answers begin with a slash, and so are words of their
  own: weights would separate them, but not in the index, and every row found would be read.

Positions end at 16,383. So a longer message becomes several rows, which overlap by as many words as
a phrase has at most.

Each row also has a word for the blocks of row ids that it lies in, of several sizes and of its
tenant alone. So the newest rows with a common word are found by the index itself, which has no
order: it intersects the lists of the word and of the newest block, and reads no row beside these.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Any
from zlib import crc32

from context_compaction.archive import NO_SEQ
from context_compaction.archive.documents import (
    MIN_DOC_TERMS,
    IndexedPart,
    parts_of_records,
    title_of,
)
from context_compaction.archive.frames import Blobs
from context_compaction.archive.postgres.schema import Connection
from context_compaction.archive.records import BLOB_MARK, Record, internalise
from context_compaction.archive.search.filters import tags_of
from context_compaction.archive.tokenizer import (
    MAX_QUERY_WORDS,
    QueryTerm,
    stems_of_prefix,
    terms_of,
)
from context_compaction.messages.model import JsonObject

MAX_ROW_WORDS = 15_000
# A row's words and their places may have 1 MB together; a word has at most 256 bytes.
_MAX_ROW_BYTES = 400_000

_FOLLOWED_BY = " <-> "
# Sizes of blocks, as powers of two: each is eight times the one before.
BLOCK_BITS = (11, 14, 17, 20, 23)

_BLOB_MARK = BLOB_MARK.decode()


@dataclass(frozen=True, slots=True)
class DocRow:
    """One row of the index, without its id.

    Attributes:
        head: Its record's head.
        part: Its text, and where that begins.
        words: Its words with their positions, but for its blocks.
        term_count: How long the text counts as.
        title: The title that it gives its session; "" where it has none.
    """

    head: JsonObject
    part: IndexedPart
    words: Sequence[str]
    term_count: int
    title: str = ""


def parse_body(text: str, blobs: Blobs) -> Any:
    """The body of a record."""
    body = json.loads(text)
    return internalise(body, blobs.read_whole) if _BLOB_MARK in text else body


def docs_of(records: Sequence[Record], blobs: Blobs) -> Iterator[DocRow]:
    """The rows of records that were written by one call."""
    bodies = (
        (record.head, lambda record=record: parse_body(record.text(), blobs)) for record in records
    )
    for record, parts in zip(records, parts_of_records(bodies, blobs), strict=True):
        for part in parts:
            yield from _rows_of(record.head, part)


def _rows_of(head: JsonObject, part: IndexedPart) -> Iterator[DocRow]:
    terms = terms_of(part.text)
    paths = terms_of("\n".join(part.paths)).words.split()[:1_000]
    parts = terms.parts[:30_000]  # of a text of at most 300,000 characters
    is_title = head["kind"] == "message" and head["role"] == "user"
    title = title_of(part.text) if is_title else ""
    # With session, day and month, which the local index counts as words too.
    meta_count = 3 + len([*tags_of(head, part)])
    for words in _overlapping(terms.words.split()):
        term_count = max(MIN_DOC_TERMS, len(words) + len(parts) + meta_count) + len(paths)
        yield DocRow(head, part, _positions(words, parts, paths), term_count, title)
        parts, paths = [], []  # they are found by the first row


def _overlapping(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """`words` in runs that a row can hold; at least one."""
    start = 0
    while True:
        some = words[start : start + MAX_ROW_WORDS]
        sizes = accumulate(len(word.encode()) for word in some)
        stop = start + sum(size <= _MAX_ROW_BYTES for size in sizes)
        yield words[start:stop]
        if stop >= len(words):
            return
        start = stop - MAX_QUERY_WORDS


def _positions(words: Sequence[str], parts: Sequence[str], paths: Sequence[str]) -> Sequence[str]:
    """The words with their positions, as PostgreSQL reads them; it keeps some 255 of each word."""
    positions: dict[str, list[str]] = defaultdict(list)
    for position, word in enumerate(words, start=1):
        positions[word].append(str(position))
    for position, word in enumerate(paths, start=1):
        positions[f"/{word}"].append(str(position))
    for word in parts:
        positions[word].append("16383")
    return [f"'{word}':{','.join(places)}" for word, places in positions.items()]


def insert_docs(
    connection: Connection, tenant: str, session_id: str, docs: Sequence[DocRow]
) -> None:
    """Make rows findable; the latest gets the largest id."""
    if not docs:
        return
    ids = connection.execute(
        "SELECT nextval('compaction.doc_id') FROM generate_series(1, %s)", (len(docs),)
    ).fetchall()
    in_time = sorted(docs, key=lambda doc: (doc.head["ts"], doc.head["n"]))
    with connection.cursor() as cursor, cursor.copy("COPY compaction.doc FROM STDIN") as copy:
        for (doc_id,), doc in zip(sorted(ids), in_time, strict=True):
            copy.write_row(_doc_values(tenant, session_id, doc_id, doc))


def _doc_values(tenant: str, session_id: str, doc_id: int, doc: DocRow) -> tuple[Any, ...]:
    """The columns in their order in `schema.py`."""
    head, part = doc.head, doc.part
    return (
        tenant,
        doc_id,
        session_id,
        head["n"],
        head.get("seq", NO_SEQ),
        head["id"] if head["kind"] == "output" else None,
        part.start_byte,
        part.size_bytes,
        part.start_char,
        part.start_line,
        float(head["ts"]),
        [*tags_of(head, part)],
        doc.term_count,
        " ".join([*doc.words, *block_words(tenant, doc_id)]),
    )


def block_words(tenant: str, doc_id: int) -> list[str]:
    """The words of the blocks that a row lies in, quoted."""
    return [_block_word(tenant, bits, doc_id >> bits) for bits in BLOCK_BITS]


def _block_word(tenant: str, bits: int, number: int) -> str:
    # With dots, which no word of a text has.
    return f"'{crc32(tenant.encode()):x}.{bits}.{number}'"


def block_query(tenant: str, start: int, stop: int) -> str:
    """The `tsquery` of rows whose ids lie in [start, stop), which begins and ends with blocks."""
    words: list[str] = []
    while start < stop:
        bits = next(
            bits
            for bits in reversed(BLOCK_BITS)
            if start % (1 << bits) == 0 and start + (1 << bits) <= stop
        )
        words.append(_block_word(tenant, bits, start >> bits))
        start += 1 << bits
    return any_of(words)


def spans_of(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The ids from `last` down to `first` as spans of whole blocks, each twice the one before.

    So of a word that was common once and is not said any more, no more rows are read than have come
    since. They may have more ids than there are.
    """
    stop = ((last >> BLOCK_BITS[0]) + 1) << BLOCK_BITS[0]
    for bits in count(BLOCK_BITS[0]):
        # Whole blocks and what is left of the one that the span before began in.
        start = max(((stop - 1) >> bits) - 1, 0) << bits
        yield start, stop
        stop = start
        if stop <= first:
            return


def text_query(term: QueryTerm) -> str:
    """The `tsquery` of a term in the text, and of one word in parts of identifiers too."""
    if not term.is_prefix:
        return _phrase(term.words)
    *before, last = list(term.words)
    # What is indexed is the stem, which may be shorter than the prefix, or end otherwise.
    stems = [_phrase([*before, stem]) for stem in stems_of_prefix(last)]
    return any_of([_phrase(term.words, ":*"), *stems])


def path_query(path: QueryTerm) -> str:
    """The `tsquery` of rows that name a path, or answer a call that did."""
    return any_of([_phrase(path.words), _phrase([f"/{word}" for word in path.words])])


def without_order(query: str) -> str:
    """`query` with the words of each phrase in any order: what the index can match by itself."""
    return query.replace(_FOLLOWED_BY, " & ")


def _phrase(words: Sequence[str], ends: str = "") -> str:
    quoted = [f"'{word}'" for word in words]
    return f"({_FOLLOWED_BY.join(quoted)}{ends})"


def any_of(queries: Sequence[str]) -> str:
    """The `tsquery` of rows that match any of `queries`."""
    return f"({' | '.join(queries)})"


def all_of(queries: Sequence[str]) -> str:
    """The `tsquery` of rows that match all of `queries`."""
    return f"({' & '.join(queries)})"
