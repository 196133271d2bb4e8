"""The rows that a search finds: how records become rows, and what a search asks of them.

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

Whatever a search asks for is bounded: a common word is looked for among the newest rows, and how
many rows contain it is estimated from how far apart these lie; a rare one is counted.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count
from math import inf
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from context_compaction.archive import NO_SEQ
from context_compaction.archive.documents import (
    MIN_DOC_TERMS,
    TITLE_TOOL,
    DocText,
    IndexedPart,
    doc_text,
    parts_of_records,
    title_of,
)
from context_compaction.archive.frames import Blobs
from context_compaction.archive.postgres.database import Connection
from context_compaction.archive.records import BLOB_MARK, Record, internalise
from context_compaction.archive.search.filters import (
    CANDIDATES,
    NEIGHBOR_MESSAGES,
    Filter,
    Matches,
    Row,
    share,
    tags_of,
)
from context_compaction.archive.tokenizer import (
    MAX_QUERY_WORDS,
    QueryTerm,
    stems_of_prefix,
    terms_of,
)
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.messages.model import JsonObject

MAX_ROW_WORDS = 15_000

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
    is_given = head["kind"] == "output" and head["tool"] == TITLE_TOOL
    is_title = is_given or (head["kind"] == "message" and head["role"] == "user")
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
        # A row's words and their places may have 1 MB together; a word has at most 256 bytes.
        stop = start + sum(size <= 400_000 for size in sizes)
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


_Row: TypeAlias = tuple[Any, ...]

PHRASE_ROWS = 2_000  # with all words of a phrase, the newest, that are read for their order
_END = -1  # in place of a row: there are no more

# A session and all that descend from it, by what they named as their parent.
FAMILY = """
WITH RECURSIVE family (name) AS (
    SELECT %(session)s::text
    UNION
    SELECT session FROM compaction.session JOIN family ON parent = name
    WHERE tenant = %(tenant)s AND next_number > 0
)
SELECT session FROM compaction.session JOIN family ON session = name
WHERE tenant = %(tenant)s AND next_number > 0
"""


@dataclass(frozen=True, slots=True)
class Doc(Row):
    """A row, and the record that has its text."""

    head: str
    body: str


_DOC = (
    "doc_id, doc.session, seq, output_id, start_byte, size_bytes, start_char, start_line, seconds,"
    " head, body FROM compaction.doc JOIN compaction.record ON record.tenant = doc.tenant"
    " AND record.session = doc.session AND record.number = doc.number"
)


def where_of(
    connection: Connection, tenant: str, allowed: Filter
) -> tuple[Sequence[str], Mapping[str, Any]]:
    """The conditions of a filter and the values of their parameters.

    Raises:
        NotFoundError: There is no session of the name that is given.
    """
    conditions = ["doc.tenant = %(tenant)s", "doc_id <= %(last_id)s"]
    values: dict[str, Any] = {"tenant": tenant, "last_id": allowed.last_id}

    def add(condition: str, **given: Any) -> None:
        conditions.append(condition)
        values.update(given)

    if allowed.without_tags:
        add("NOT tags && %(without)s::text[]", without=list(allowed.without_tags))
    if allowed.tags:
        add("tags @> %(tags)s::text[]", tags=list(allowed.tags))
    if allowed.session_id is not None:
        names = {"tenant": tenant, "session": allowed.session_id}
        family = [name for (name,) in connection.execute(FAMILY, names)]
        if not family:
            raise NotFoundError.of_session(allowed.session_id)
        add("doc.session = ANY(%(sessions)s)", sessions=family)
    if allowed.within is not None:
        add(
            "(seq = ANY(%(seqs)s) OR output_id = ANY(%(outputs)s))",
            sessions=[allowed.session_id],
            seqs=list(allowed.within.seqs),
            outputs=sorted(allowed.within.output_ids),
        )
    if allowed.since_seconds > -inf:
        add("seconds >= %(since)s", since=allowed.since_seconds)
    if allowed.until_seconds < inf:
        add("seconds <= %(until)s", until=allowed.until_seconds)
    if allowed.path is not None:
        add("words @@ %(path)s::tsquery", path=path_query(allowed.path))
    return conditions, values


class _Newest(NamedTuple):
    """Rows that were found, and whether these are all."""

    rows: list[_Row]
    is_whole: bool


class TenantRows:
    """The rows of one tenant that a filter lets through: see `Rows`."""

    def __init__(self, connection: Connection, blobs: Blobs, tenant: str, allowed: Filter) -> None:
        """Prepare the filter; raises what `where_of` raises."""
        self._connection = connection
        self._tenant = tenant
        self._blobs = blobs
        self._allowed = allowed
        conditions, self._values = where_of(connection, tenant, allowed)
        self._where = " AND ".join(conditions)
        self._docs: dict[int, Doc] = {}

    @property
    def row_count(self) -> int:
        """See `Rows.row_count`."""
        _, (count, _) = self._figures
        return count

    def candidates(self, term: QueryTerm) -> Matches:
        """See `Rows.candidates`."""
        query = text_query(term)
        # With equal weights of one, the cover density is how often the term occurs.
        found = self._newest(
            query, CANDIDATES, "ts_rank_cd('{1,1,1,1}', words, %(query)s::tsquery), term_count"
        )
        _, (_, average) = self._figures
        shares = {doc_id: share(count, length, average) for doc_id, count, length in found.rows}
        every = found if self._allowed.is_open else self._newest(query, CANDIDATES, every_row=True)
        return Matches(shares, self._count(every), found.is_whole)

    def within_times(self, times: Sequence[tuple[float, float]]) -> Matches:
        """See `Rows.within_times`."""
        days = [(_day(first), _day(last) + 86_400) for first, last in times]
        spans = [f"seconds >= {first:.0f} AND seconds < {last:.0f}" for first, last in days]
        newest = " UNION ".join(
            f"(SELECT doc_id FROM compaction.doc WHERE {self._where} AND {span}"
            " ORDER BY seconds DESC LIMIT %(limit)s)"
            for span in spans
        )
        found = self._all(
            f"SELECT doc_id FROM ({newest}) AS said ORDER BY doc_id DESC LIMIT %(limit)s",
            limit=CANDIDATES,
        )
        counted = self._all(
            "SELECT count(*) FROM (SELECT FROM compaction.doc WHERE tenant = %(tenant)s"
            f" AND (({') OR ('.join(spans)})) LIMIT %(most)s) AS bounded",
            most=100 * CANDIDATES,
        )
        shares = dict.fromkeys((doc_id for (doc_id,) in found), 1.0)
        return Matches(shares, counted[0][0], len(found) < CANDIDATES)

    def newest(self, terms: Sequence[QueryTerm], limit: int, *, every: bool = False) -> list[int]:
        """See `Rows.newest`."""
        queries = [text_query(term) for term in terms]
        found = self._newest(all_of(queries) if every else any_of(queries), limit)
        return [row[0] for row in found.rows]

    def _newest(
        self, query: str, limit: int, columns: str = "NULL", *, every_row: bool = False
    ) -> "_Newest":
        """The last `limit` rows that match a `tsquery`, last first: their ids, and `columns`.

        In a session they are few. Else they are looked for in the newest block of rows, and in
        larger and larger ones before it until there are enough: so a common word does not read all
        its rows. The index does not know the order of words: of the rows with all words of a
        phrase, so many are read.
        """
        where = "doc.tenant = %(tenant)s" if every_row else self._where
        loose = without_order(query)
        is_read = loose != query
        if self._allowed.session_id is not None and not every_row:
            within = [loose]
        else:
            (first, last), _ = self._figures
            spans = spans_of(first, min(last, self._allowed.last_id))
            blocks = (block_query(self._tenant, start, stop) for start, stop in spans)
            within = [all_of([block, loose]) for block in blocks]
        # One part is begun when those before it are done, so what is enough ends the statement. Not
        # in the order of `doc_id` itself: its index has no words, and would be walked for them.
        parts = "".join(
            f"(SELECT doc_id, words, term_count FROM compaction.doc WHERE {where}"
            f" AND words @@ %(within_{at})s::tsquery ORDER BY doc_id + 0 DESC LIMIT %(most)s)"
            " UNION ALL "
            for at in range(len(within))
        )
        matches = "words @@ %(query)s::tsquery" if is_read else "true"
        found = self._all(
            f"SELECT doc_id, {columns} FROM ({parts} SELECT {_END}, ''::tsvector, 0"
            f" LIMIT %(most)s) AS newest WHERE doc_id = {_END} OR {matches} LIMIT %(limit)s",
            query=query,
            limit=limit,
            most=PHRASE_ROWS if is_read else limit,
            **{f"within_{at}": one for at, one in enumerate(within)},
        )
        is_whole = bool(found) and found[-1][0] == _END
        return _Newest(found[:-1] if is_whole else found, is_whole)

    @cached_property
    def _figures(self) -> tuple[tuple[int, int], tuple[int, float]]:
        """The first and the last row id of the tenant; its rows, and how many words each has."""
        ((first, last, rows, terms),) = self._all(
            "SELECT (SELECT min(doc_id) FROM compaction.doc WHERE tenant = %(tenant)s),"
            " (SELECT max(doc_id) FROM compaction.doc WHERE tenant = %(tenant)s),"
            " sum(doc_count)::bigint, sum(term_count)::bigint"
            " FROM compaction.session WHERE tenant = %(tenant)s"
        )
        rows = rows or 0
        return (first or 0, last or 0), (rows, (terms or 0) / max(rows, 1))

    def by_time(self, ids: Sequence[int]) -> list[int]:
        """See `Rows.by_time`."""
        found = self._all(
            "SELECT doc_id FROM compaction.doc WHERE tenant = %(tenant)s AND doc_id = ANY(%(ids)s)"
            " ORDER BY seconds DESC, doc_id DESC",
            ids=list(ids),
        )
        return [doc_id for (doc_id,) in found]

    def near(self, ids: Sequence[int]) -> dict[int, dict[int, int]]:
        """See `Rows.near`."""
        found = self._all(
            "SELECT one.doc_id, doc.doc_id, abs(doc.seq - one.seq) FROM compaction.doc AS one"
            " JOIN compaction.doc ON doc.tenant = one.tenant AND doc.session = one.session"
            " AND doc.seq BETWEEN one.seq - %(far)s AND one.seq + %(far)s AND doc.seq >= 0"
            " AND doc.seq != one.seq WHERE one.tenant = %(tenant)s AND one.doc_id = ANY(%(ids)s)"
            f" AND one.seq >= 0 AND {self._within}",
            ids=list(ids),
            far=NEIGHBOR_MESSAGES,
        )
        near: dict[int, dict[int, int]] = {}
        for doc_id, other, distance in found:
            near.setdefault(doc_id, {})[other] = distance
        return near

    @property
    def _within(self) -> str:
        """The condition of a history, if the search is in one."""
        return "true" if self._allowed.within is None else "doc.seq = ANY(%(seqs)s)"

    def docs(self, ids: Sequence[int]) -> list[Doc]:
        """See `Rows.docs`; with their records, so that reading them asks no more."""
        missing = [doc_id for doc_id in ids if doc_id not in self._docs]
        if missing:
            rows = self._all(
                f"SELECT {_DOC} WHERE doc.tenant = %(tenant)s AND doc_id = ANY(%(ids)s)",
                ids=missing,
            )
            self._docs |= {row[0]: Doc(*row) for row in rows}
        return [self._docs[doc_id] for doc_id in ids if doc_id in self._docs]

    def next_doc(self, doc: Doc) -> Doc | None:
        """See `Rows.next_doc`."""
        found = self._all(
            f"SELECT {_DOC} WHERE doc.tenant = %(tenant)s AND doc.session = %(session)s"
            " AND seq = %(seq)s ORDER BY doc_id LIMIT 1",
            session=doc.session_id,
            seq=doc.seq + 1,
        )
        return Doc(*found[0]) if found else None

    def newest_docs(self, terms: Sequence[QueryTerm], limit: int) -> list[Doc]:
        """See `Rows.newest_docs`."""
        if terms:
            return self.docs(self.newest(terms, limit, every=True))
        found = self._all(
            f"SELECT {_DOC} WHERE {self._where} ORDER BY doc_id DESC LIMIT %(limit)s",
            limit=limit,
        )
        return [Doc(*row) for row in found]

    def read(self, doc: Doc) -> DocText | None:
        """See `Rows.read`."""
        try:
            head, body = (parse_body(text, self._blobs) for text in (doc.head, doc.body))
            return doc_text(head, body, doc.start_byte, doc.size_bytes, self._blobs)
        except (ArchiveDamagedError, NotFoundError):
            return None  # a search passes over what is damaged; the doctor reports it

    def _count(self, newest: _Newest) -> float:
        """How many rows of the tenant match, about: from how far apart the newest of them lie."""
        count = len(newest.rows)
        if newest.is_whole or not count:
            return count
        (first, last), _ = self._figures
        lowest = min(row[0] for row in newest.rows)
        return float(min(count * (last - first + 1) / (last - lowest + 1), self.row_count))

    def _all(self, sql: str, **values: Any) -> list[_Row]:
        given = {**self._values, **values}
        rows: list[_Row] = self._connection.execute(sql.encode(), given).fetchall()
        return rows


def _day(seconds: float) -> float:
    return min(max(seconds // 86_400, 0), 1 << 17) * 86_400
