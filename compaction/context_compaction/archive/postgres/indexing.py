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
from itertools import count
from struct import Struct, pack
from typing import Any
from zlib import crc32

from context_compaction.archive import NO_SEQ
from context_compaction.archive.documents import IndexedPart, title_of
from context_compaction.archive.frames import Blobs
from context_compaction.archive.postgres.schema import Connection
from context_compaction.archive.records import BLOB_MARK, Record, internalise
from context_compaction.archive.search.parts import (
    MIN_DOC_TERMS,
    parts_of_records,
    role_in,
    tool_token,
    tools_in,
)
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
_MOST_CHAR_BYTES = 4  # in UTF-8
_MAX_PARTS = 30_000  # they are pieces of at most 300,000 characters
_MAX_PATH_WORDS = 1_000
_PARTS_POSITION = 16_383
MAX_POSITIONS = 255  # of one word that a row keeps; PostgreSQL takes no more
_META_TERMS = 4  # session, role, day, month: what the local index counts as words too

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
        words: The lexemes of its `tsvector`, but for its blocks.
        term_count: How long the text counts as.
        title: The title that it gives its session; "" where it has none.
    """

    head: JsonObject
    part: IndexedPart
    words: list[bytes]
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
    words = terms.words.split(" ") if terms.words else []
    paths = terms_of("\n".join(part.paths)).words.split(" ") if part.paths else []
    is_title = head["kind"] == "message" and head["role"] == "user"
    title = title_of(part.text) if is_title else ""
    meta_count = _META_TERMS + len(tools_in(head)) + part.is_own
    parts, paths = terms.parts[:_MAX_PARTS], paths[:_MAX_PATH_WORDS]
    for some in _overlapping(words):
        count = max(MIN_DOC_TERMS, len(some) + len(parts) + meta_count) + len(paths)
        yield DocRow(head, part, _vector(some, parts, paths), count, title)
        parts, paths = [], []  # they are found by the first row


def _overlapping(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """`words` in runs that a row can hold; at least one."""
    if len(words) <= MAX_ROW_WORDS and sum(map(len, words)) * _MOST_CHAR_BYTES <= _MAX_ROW_BYTES:
        yield words
        return
    start = 0
    while True:
        stop = start
        size_bytes = 0
        for word in words[start : start + MAX_ROW_WORDS]:
            size_bytes += len(word.encode())
            if size_bytes > _MAX_ROW_BYTES:
                break
            stop += 1
        yield words[start:stop]
        if stop >= len(words):
            return
        start = stop - MAX_QUERY_WORDS


def _vector(words: Sequence[str], parts: Sequence[str], paths: Sequence[str]) -> list[bytes]:
    """The lexemes of a row."""
    places: dict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(words, start=1):
        places[word].append(position)
    for position, word in enumerate(paths, start=1):
        places[f"/{word}"].append(position)
    for word in parts:
        places[word].append(_PARTS_POSITION)
    return [_lexeme(word, found) for word, found in places.items()]


def _lexeme(word: str, positions: Sequence[int]) -> bytes:
    """A word and its first positions, as they stand in a binary `tsvector`."""
    positions = positions[:MAX_POSITIONS]
    return b"%b\0%b" % (word.encode(), pack(f">H{len(positions)}H", len(positions), *positions))


def insert_docs(
    connection: Connection,
    tenant: str,
    session_id: str,
    docs: Sequence[DocRow],
    ids: Sequence[int] = (),
) -> None:
    """Make rows findable; the latest gets the largest id. `ids` are free, and used first."""
    if not docs:
        return
    in_time = sorted(docs, key=lambda doc: (doc.head["ts"], doc.head["n"]))
    new = connection.execute(
        "SELECT nextval('compaction.doc_id') FROM generate_series(1, %s)", (len(docs) - len(ids),)
    )
    every = sorted([*ids, *(doc_id for (doc_id,) in new)])
    numbered = zip(every[-len(docs) :], in_time, strict=True)
    with connection.cursor().copy(_COPY_DOCS) as copy:
        copy.write(_COPY_HEADER)
        for doc_id, doc in numbered:
            copy.write(_copied(tenant, session_id, doc_id, doc))
        copy.write(_COPY_END)


_COPY_DOCS = b"""COPY compaction.doc (tenant, doc_id, session, number, seq, output_id, start_byte,
size_bytes, start_char, start_line, seconds, role, tools, is_own, term_count, words)
FROM STDIN (FORMAT binary)"""
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"
_COLUMNS = (16).to_bytes(2, "big")
_TEXT_TYPE = 25
_LONG, _DOUBLE, _INT, _BOOL = Struct(">iq"), Struct(">id"), Struct(">ii"), Struct(">i?")


def _copied(tenant: str, session_id: str, doc_id: int, doc: DocRow) -> bytes:
    """A row as COPY takes it: no text is made of it that the server would have to parse again."""
    head, part = doc.head, doc.part
    words = [*doc.words, *(_lexeme(word, ()) for word in _block_words(tenant, doc_id))]
    return b"".join((
        _COLUMNS,
        _text(tenant),
        _LONG.pack(8, doc_id),
        _text(session_id),
        _LONG.pack(8, head["n"]),
        _LONG.pack(8, head.get("seq", NO_SEQ)),
        _text(head["id"] if head["kind"] == "output" else None),
        _LONG.pack(8, part.start_byte),
        _LONG.pack(8, part.size_bytes),
        _LONG.pack(8, part.start_char),
        _LONG.pack(8, part.start_line),
        _DOUBLE.pack(8, head["ts"]),
        _text(role_in(head)),
        _field(_text_array([tool_token(tool) for tool in tools_in(head)])),
        _BOOL.pack(1, part.is_own),
        _INT.pack(4, doc.term_count),
        _field(len(words).to_bytes(4, "big") + b"".join(words)),  # the server sorts them
    ))


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _text(text: str | None) -> bytes:
    return b"\xff\xff\xff\xff" if text is None else _field(text.encode())


def _text_array(texts: Sequence[str]) -> bytes:
    if not texts:
        return pack(">iii", 0, 0, _TEXT_TYPE)
    return pack(">iiiii", 1, 0, _TEXT_TYPE, len(texts), 1) + b"".join(map(_text, texts))


def _block_words(tenant: str, doc_id: int) -> list[str]:
    return [_block_word(tenant, bits, doc_id >> bits) for bits in BLOCK_BITS]


def _block_word(tenant: str, bits: int, number: int) -> str:
    # With dots, which no word of a text has.
    return f"{crc32(tenant.encode()):x}.{bits}.{number}"


def block_query(tenant: str, start: int, stop: int) -> str:
    """The `tsquery` of rows whose ids lie in [start, stop), which begins and ends with blocks."""
    words: list[str] = []
    while start < stop:
        bits = next(
            bits
            for bits in reversed(BLOCK_BITS)
            if start % (1 << bits) == 0 and start + (1 << bits) <= stop
        )
        words.append(f"'{_block_word(tenant, bits, start >> bits)}'")
        start += 1 << bits
    return f"({' | '.join(words)})"


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
    return _any_of([_phrase(term.words, ":*"), *stems])


def path_query(path: QueryTerm) -> str:
    """The `tsquery` of rows that name a path, or answer a call that did."""
    return _any_of([_phrase(path.words), _phrase([f"/{word}" for word in path.words])])


def without_order(query: str) -> str:
    """`query` with the words of each phrase in any order: what the index can match by itself."""
    return query.replace(_FOLLOWED_BY, " & ")


def _phrase(words: Sequence[str], ends: str = "") -> str:
    quoted = [f"'{word}'" for word in words]
    return f"({_FOLLOWED_BY.join(quoted)}{ends})"


def _any_of(queries: Sequence[str]) -> str:
    return f"({' | '.join(queries)})"


def joined(queries: Sequence[str], *, every: bool) -> str:
    """Several `tsquery`s as one."""
    return f"({(' & ' if every else ' | ').join(queries)})"
