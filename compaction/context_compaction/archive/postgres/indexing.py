"""What a search finds: records as rows with their words, and what is asked for as a `tsquery`.

PostgreSQL's own parser keeps `src/a/b_c.py` as one word, so words are made by us, as for every
other archive (`archive/tokenizer.py`), and handed over with their positions:

- words of the text have weight D and follow each other, for phrases;
- parts of identifiers have weight C, all at one position;
- words of the paths of the call that a result answers have weight B.

Positions end at 16,383. So a longer message becomes several rows, which overlap by as many words as
a phrase has at most.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
_FIRST_PATH_POSITION = MAX_ROW_WORDS + 2
_MAX_PATH_WORDS = 16_380 - _FIRST_PATH_POSITION
_PARTS_POSITION = 16_383
MAX_POSITIONS = 255  # of one word that a row keeps; PostgreSQL takes no more
_META_TERMS = 4  # session, role, day, month: what the local index counts as words too

_BLOB_MARK = BLOB_MARK.decode()


@dataclass(frozen=True, slots=True)
class DocRow:
    """One row of the index, without its id.

    Attributes:
        head: Its record's head.
        part: Its text, and where that begins.
        words: What stands in the `tsvector` column.
        term_count: How long the text counts as.
        title: What it says as the title of its session.
    """

    head: JsonObject
    part: IndexedPart
    words: str
    term_count: int
    title: str = ""


def parse_body(text: str, blobs: Blobs) -> Any:
    """The body of a record."""
    body = json.loads(text)
    return internalise(body, blobs.read_whole) if _BLOB_MARK in text else body


def docs_of(records: Sequence[Record], blobs: Blobs) -> Iterator[DocRow]:
    """The rows of records that were written by one call."""
    bodies = (
        (record.head, lambda record=record: parse_body(record.body, blobs)) for record in records
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
    step = MAX_ROW_WORDS - MAX_QUERY_WORDS
    for start in range(0, max(len(words) - MAX_QUERY_WORDS, 1), step):
        some = words[start : start + MAX_ROW_WORDS]
        count = max(MIN_DOC_TERMS, len(some) + len(terms.parts) + meta_count) + len(paths)
        vector = _vector(some, terms.parts, paths[:_MAX_PATH_WORDS])
        yield DocRow(head, part, vector, count, title)


def _vector(words: Sequence[str], parts: Sequence[str], paths: Sequence[str]) -> str:
    """The text form of a `tsvector`; words are letters and digits, so quotes are safe."""
    places: dict[str, list[str]] = {}
    for position, word in enumerate(words, start=1):
        found = places.setdefault(word, [])
        if len(found) < MAX_POSITIONS:
            found.append(str(position))
    for position, word in enumerate(paths, start=_FIRST_PATH_POSITION):
        places.setdefault(word, []).append(f"{position}B")
    for word in parts:
        places.setdefault(word, []).append(f"{_PARTS_POSITION}C")
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items())


def insert_docs(
    connection: Connection, tenant: str, session_id: str, docs: Sequence[DocRow]
) -> None:
    """Make rows findable; the latest gets the largest id."""
    if not docs:
        return
    in_time = sorted(docs, key=lambda doc: (doc.head["ts"], doc.head["n"]))
    columns = (
        [doc.head["n"] for doc in in_time],
        [doc.head.get("seq", NO_SEQ) for doc in in_time],
        [doc.head["id"] if doc.head["kind"] == "output" else None for doc in in_time],
        [doc.part.start_byte for doc in in_time],
        [doc.part.size_bytes for doc in in_time],
        [doc.part.start_char for doc in in_time],
        [doc.part.start_line for doc in in_time],
        [float(doc.head["ts"]) for doc in in_time],
        [role_in(doc.head) for doc in in_time],
        [" ".join(map(tool_token, tools_in(doc.head))) for doc in in_time],
        [doc.part.is_own for doc in in_time],
        [doc.term_count for doc in in_time],
        [doc.words for doc in in_time],
    )
    connection.execute(
        "INSERT INTO compaction.doc SELECT %s, nextval('compaction.doc_id'), %s, number, seq,"
        " output_id, start_byte, size_bytes, start_char, start_line, seconds, role,"
        " string_to_array(tools, ' '), is_own, term_count, words::tsvector"
        " FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[],"
        " %s::bigint[], %s::bigint[], %s::float8[], %s::text[], %s::text[], %s::bool[], %s::int[],"
        " %s::text[]) AS new (number, seq, output_id, start_byte, size_bytes, start_char,"
        " start_line, seconds, role, tools, is_own, term_count, words)",
        (tenant, session_id, *columns),
    )


def text_query(term: QueryTerm) -> str:
    """The `tsquery` of a term in the text, and of one word in parts of identifiers too."""
    labels = "D" if len(term.words) > 1 else "CD"
    if not term.is_prefix:
        return _phrase(term.words, labels)
    *before, last = list(term.words)
    # What is indexed is the stem, which may be shorter than the prefix, or end otherwise.
    stems = [_phrase([*before, stem], labels) for stem in stems_of_prefix(last)]
    return _any_of([_phrase(term.words, labels, ends="*"), *stems])


def path_query(path: QueryTerm) -> str:
    """The `tsquery` of rows that name a path, or answer a call that did."""
    return _phrase(path.words, "BD")


def _phrase(words: Sequence[str], labels: str, ends: str = "") -> str:
    *before, last = words
    return (
        "("
        + " <-> ".join([*(f"'{word}':{labels}" for word in before), f"'{last}':{ends}{labels}"])
        + ")"
    )


def _any_of(queries: Sequence[str]) -> str:
    return f"({' | '.join(queries)})"


def joined(queries: Sequence[str], *, every: bool) -> str:
    """Several `tsquery`s as one."""
    return f"({(' & ' if every else ' | ').join(queries)})"
