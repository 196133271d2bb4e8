"""Search in PostgreSQL: how records become rows of the search table, and the queries on them.

PostgreSQL's parser keeps `src/a/b_c.py` as one word. The library therefore splits text itself
(`archive/tokenizer.py`, as for local archives) and passes the words with their positions:

- Words of the text have consecutive positions, for phrases.
- Parts of identifiers all have the last position.
- Words of the paths in the call that a result answers begin with a slash, which makes them separate
  words. Weights would also separate them, but not in the index, so every match would be read.

Each row also contains words for the blocks of row IDs that it belongs to: blocks of several sizes,
separate for each tenant. They let the index, which has no order, find the newest rows with a common
word: it intersects the entries of the word and of the newest block, and reads no other row.

All queries are bounded. A common word is searched in the newest rows only, and the number of rows
that contain it is estimated from the distance between these rows. A rare word is counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from context_compaction.archive import documents
from context_compaction.archive.postgres.database import Connection
from context_compaction.archive.records import Blobs, Record, parse_body
from context_compaction.archive.search import filters
from context_compaction.archive.tokenizer import QueryTerm, stems_of_prefix, terms_of
from context_compaction.archive.values import History
from context_compaction.errors import ArchiveDamagedError, NotFoundError

_FOLLOWED_BY = " <-> "
# Sizes of blocks as powers of two; each size is eight times the previous one.
BLOCK_BITS = (11, 14, 17, 20, 23)


def insert_docs(
    connection: Connection, tenant: str, session_id: str, records: Sequence[Record], blobs: Blobs
) -> tuple[int, int]:
    """Insert the rows of the records of one call, with growing IDs in the order of time.

    Returns the number of rows, and the number of their words.
    """
    bodies = ((record.head, record.text()) for record in records)
    texts = zip(records, documents.parts_of_records(bodies, blobs), strict=True)
    docs = [(record.head, part) for record, parts in texts for part in parts]
    if not docs:
        return 0, 0
    ids = connection.execute(
        "SELECT nextval('compaction.doc_id') FROM generate_series(1, %s)", (len(docs),)
    ).fetchall()
    docs.sort(key=lambda doc: (doc[0]["ts"], doc[0]["n"]))
    term_count = 0
    with connection.cursor() as cursor, cursor.copy("COPY compaction.doc FROM STDIN") as copy:
        for (doc_id,), (head, part) in zip(sorted(ids), docs, strict=True):
            tags = [*filters.tags_of(head, part)]
            words, length = _words_of(part, len(tags))
            term_count += length
            copy.write_row((
                *(tenant, doc_id, session_id, head["n"]),
                *filters.row_values(head, part),
                *(tags, length, " ".join([*words, *block_words(tenant, doc_id)])),
            ))
    return len(docs), term_count


def _words_of(part: documents.IndexedPart, tag_count: int) -> tuple[list[str], int]:
    """Return words with positions as `tsvector` reads them, and the length of a text in words.

    A `tsvector` keeps 255 positions of a word.
    """
    terms = terms_of(part.text)
    paths = terms_of("\n".join(part.paths)).words.split()[:1_000]
    positions: dict[str, list[str]] = defaultdict(list)
    for prefix, words in (("", terms.words.split()), ("/", paths)):
        for position, word in enumerate(words, start=1):
            positions[prefix + word].append(str(position))
    for word in terms.parts:
        positions[word].append("16383")
    # Plus the tags and the session, which the local index counts as words.
    length = max(
        documents.MIN_DOC_TERMS, terms.word_count + len(terms.parts) + tag_count + 1
    ) + len(paths)
    return [f"'{word}':{','.join(numbers)}" for word, numbers in positions.items()], length


def block_words(tenant: str, doc_id: int) -> list[str]:
    """Return the quoted words of the blocks that a row belongs to."""
    return [_block_word(tenant, bits, doc_id >> bits) for bits in BLOCK_BITS]


def _block_word(tenant: str, bits: int, number: int) -> str:
    # Contains dots, so that it differs from every word of a text.
    return f"'{crc32(tenant.encode()):x}.{bits}.{number}'"


def block_query(tenant: str, start: int, stop: int) -> str:
    """Return the `tsquery` of rows with IDs in [start, stop), a sequence of whole blocks."""
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
    """Split the IDs from `last` down to `first` into spans of whole blocks of growing size.

    A search stops at the first spans with enough matches. The outermost spans may contain IDs
    outside `first` to `last`.
    """
    stop = ((last >> BLOCK_BITS[0]) + 1) << BLOCK_BITS[0]
    for bits in count(BLOCK_BITS[0]):
        # One whole block and the rest of the block in which the previous span started.
        start = max(((stop - 1) >> bits) - 1, 0) << bits
        yield start, stop
        stop = start
        if stop <= first:
            return


def text_query(term: QueryTerm) -> str:
    """Return the `tsquery` of a term; a single word also matches parts of identifiers."""
    if not term.is_prefix:
        return _phrase(term.words)
    *before, last = list(term.words)
    # The index contains stems, which may be shorter than the prefix or end differently.
    stems = [_phrase([*before, stem]) for stem in stems_of_prefix(last)]
    return any_of([_phrase(term.words, ":*"), *stems])


def path_query(path: QueryTerm) -> str:
    """Return the `tsquery` of rows that contain a path, or answer a call that did."""
    return any_of([_phrase(path.words), _phrase([f"/{word}" for word in path.words])])


def _phrase(words: Sequence[str], ends: str = "") -> str:
    quoted = [f"'{word}'" for word in words]
    return f"({_FOLLOWED_BY.join(quoted)}{ends})"


def any_of(queries: Sequence[str]) -> str:
    """Return the `tsquery` of rows that match any of `queries`."""
    return f"({' | '.join(queries)})"


def all_of(queries: Sequence[str]) -> str:
    """Return the `tsquery` of rows that match all of `queries`."""
    return f"({' & '.join(queries)})"


_Row: TypeAlias = tuple[Any, ...]

PHRASE_ROWS = 2_000  # newest rows with all words of a phrase whose word order is checked

# A session and all its descendants.
FAMILY = """
WITH RECURSIVE family (name) AS (
    SELECT %(session)s::text
    UNION
    SELECT session FROM compaction.session JOIN family ON parent = name
    WHERE tenant = %(tenant)s
)
SELECT session FROM compaction.session JOIN family ON session = name WHERE tenant = %(tenant)s
"""


_DOC = (
    "doc_id, doc.session, seq, output_id, start_byte, size_bytes, start_char, start_line, seconds,"
    " head, body FROM compaction.doc JOIN compaction.record ON record.tenant = doc.tenant"
    " AND record.session = doc.session AND record.number = doc.number"
)


def where_of(
    connection: Connection, tenant: str, allowed: filters.Filter
) -> tuple[str, Mapping[str, Any]]:
    """Return the SQL condition of a filter and the values of its parameters.

    Raises:
        NotFoundError: The filter's session does not exist.
    """
    family: list[str] = []
    if allowed.session_id is not None:
        root = {"tenant": tenant, "session": allowed.session_id}
        family = [name for (name,) in connection.execute(FAMILY, root)]
        if not family:
            raise NotFoundError.of_session(allowed.session_id)
    within = allowed.within or History("", ())
    values: dict[str, Any] = {
        "tenant": tenant,
        "last_id": allowed.last_id,
        "since": allowed.since_seconds,
        "until": allowed.until_seconds,
        "without": list(allowed.without_tags),
        "tags": list(allowed.tags),
        "sessions": family if allowed.within is None else [allowed.session_id],
        "seqs": list(within.seqs),
        "outputs": sorted(within.output_ids),
        "path": path_query(allowed.path) if allowed.path else "",
    }
    conditions = {
        "doc.tenant = %(tenant)s AND doc_id <= %(last_id)s": True,
        "seconds BETWEEN %(since)s AND %(until)s": not allowed.is_timeless,
        "NOT tags && %(without)s::text[]": allowed.without_tags,
        "tags @> %(tags)s::text[]": allowed.tags,
        "doc.session = ANY(%(sessions)s)": family,
        "(seq = ANY(%(seqs)s) OR output_id = ANY(%(outputs)s))": allowed.within,
        "words @@ %(path)s::tsquery": allowed.path,
    }
    return " AND ".join(text for text, is_used in conditions.items() if is_used), values


class _Newest(NamedTuple):
    """The newest matching rows.

    Attributes:
        rows: The rows, newest first.
        is_complete: Whether no other rows match.
    """

    rows: list[_Row]
    is_complete: bool


class TenantRows:
    """The rows of one tenant that pass a filter; see `Rows`."""

    def __init__(
        self, connection: Connection, blobs: Blobs, tenant: str, allowed: filters.Filter
    ) -> None:
        """Compile the filter; raises what `where_of` raises."""
        self._connection = connection
        self._tenant = tenant
        self._blobs = blobs
        self._allowed = allowed
        self._where, self._values = where_of(connection, tenant, allowed)
        self._docs: dict[int, filters.Row] = {}

    @property
    def row_count(self) -> int:
        """See `Rows.row_count`."""
        _, (count, _) = self._figures
        return count

    def candidates(self, term: QueryTerm) -> filters.Matches:
        """See `Rows.candidates`."""
        query = text_query(term)
        # With equal weights of 1, the cover density is the number of occurrences.
        newest = self._newest(
            query,
            filters.CANDIDATES,
            "ts_rank_cd('{1,1,1,1}', words, %(query)s::tsquery), term_count",
        )
        _, (_, average) = self._figures
        shares = {
            doc_id: filters.share(count, length, average) for doc_id, count, length in newest.rows
        }
        unfiltered = newest
        if not self._allowed.is_open:
            unfiltered = self._newest(query, filters.CANDIDATES, every_row=True)
        return filters.Matches(shares, self._count(unfiltered), newest.is_complete)

    def newest(
        self, terms: Sequence[QueryTerm], limit: int, *, every: bool = False
    ) -> dict[int, float]:
        """See `Rows.newest`."""
        queries = [text_query(term) for term in terms]
        if queries:
            query = all_of(queries) if every else any_of(queries)
            return {row[0]: row[1] for row in self._newest(query, limit).rows}
        rows = self._all(
            f"SELECT doc_id, seconds FROM compaction.doc WHERE {self._where}"
            " ORDER BY doc_id DESC LIMIT %(limit)s",
            limit=limit,
        )
        return dict(rows)

    def _newest(
        self, query: str, limit: int, columns: str = "seconds", *, every_row: bool = False
    ) -> "_Newest":
        """Return the newest `limit` rows that match a `tsquery`, newest first.

        Within a session, all matches are read. Otherwise the search reads the newest block of rows
        and then larger and larger blocks of older rows until it has enough, so that a common word
        does not read all its rows. The index ignores the order of words, so the newest
        `PHRASE_ROWS` rows with all words of a phrase are read to check the order.

        Args:
            query: The `tsquery`.
            limit: Maximum number of rows.
            columns: SQL expressions to return after each row's ID.
            every_row: Whether to ignore the filter.
        """
        where = "doc.tenant = %(tenant)s" if every_row else self._where
        unordered = query.replace(_FOLLOWED_BY, " & ")
        has_phrase = unordered != query
        if self._allowed.session_id is not None and not every_row:
            within = [unordered]
        else:
            (first, last), _ = self._figures
            spans = spans_of(first, min(last, self._allowed.last_id))
            blocks = (block_query(self._tenant, start, stop) for start, stop in spans)
            within = [all_of([block, unordered]) for block in blocks]
        # PostgreSQL starts a part after the previous parts are complete, so the statement ends once
        # it has enough rows. The order is `doc_id + 0`, because PostgreSQL would otherwise scan the
        # index of `doc_id` instead of the index of words.
        parts = "".join(
            f"(SELECT doc_id, words, term_count, seconds FROM compaction.doc WHERE {where}"
            f" AND words @@ %(within_{index})s::tsquery ORDER BY doc_id + 0 DESC LIMIT %(most)s)"
            " UNION ALL "
            for index in range(len(within))
        )
        matches = "words @@ %(query)s::tsquery" if has_phrase else "true"
        rows = self._all(
            f"SELECT doc_id, {columns} FROM ({parts} SELECT NULL, ''::tsvector, 0, 0"
            f" LIMIT %(most)s) AS newest WHERE doc_id IS NULL OR {matches} LIMIT %(limit)s",
            query=query,
            limit=limit,
            most=PHRASE_ROWS if has_phrase else limit,
            **{f"within_{index}": part for index, part in enumerate(within)},
        )
        is_complete = bool(rows) and rows[-1][0] is None  # the row after the last match
        return _Newest(rows[:-1] if is_complete else rows, is_complete)

    @cached_property
    def _figures(self) -> tuple[tuple[int, int], tuple[int, float]]:
        """First and last row ID of the tenant; number of its rows, and average words of a row."""
        ((first, last, rows, terms),) = self._all(
            "SELECT (SELECT min(doc_id) FROM compaction.doc WHERE tenant = %(tenant)s),"
            " (SELECT max(doc_id) FROM compaction.doc WHERE tenant = %(tenant)s),"
            " sum(doc_count)::bigint, sum(term_count)::bigint"
            " FROM compaction.session WHERE tenant = %(tenant)s"
        )
        rows = rows or 0
        return (first or 0, last or 0), (rows, (terms or 0) / max(rows, 1))

    def near(self, ids: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """See `Rows.near`."""
        branch = "true" if self._allowed.within is None else "doc.seq = ANY(%(seqs)s)"
        return self._all(
            "SELECT hit.doc_id, doc.doc_id, doc.seq - hit.seq FROM compaction.doc AS hit"
            " JOIN compaction.doc ON doc.tenant = hit.tenant AND doc.session = hit.session"
            " AND doc.seq BETWEEN hit.seq - %(far)s AND hit.seq + %(far)s AND doc.seq >= 0"
            " AND doc.seq != hit.seq WHERE hit.tenant = %(tenant)s AND hit.doc_id = ANY(%(ids)s)"
            f" AND hit.seq >= 0 AND {branch}",
            ids=list(ids),
            far=filters.NEIGHBOR_MESSAGES,
        )

    def docs(self, ids: Sequence[int]) -> list[filters.Row]:
        """See `Rows.docs`. Also reads the records, so that `read` needs no further query."""
        missing = [doc_id for doc_id in ids if doc_id not in self._docs]
        if missing:
            rows = self._all(
                f"SELECT {_DOC} WHERE doc.tenant = %(tenant)s AND doc_id = ANY(%(ids)s)",
                ids=missing,
            )
            self._docs |= {row[0]: filters.Row(row[9:], *row[:9]) for row in rows}
        return [self._docs[doc_id] for doc_id in ids if doc_id in self._docs]

    def read(self, doc: filters.Row) -> documents.DocText | None:
        """See `Rows.read`."""
        try:
            head, body = (parse_body(text, self._blobs.get) for text in doc.record)
            return documents.doc_text(head, body, doc.start_byte, doc.size_bytes, self._blobs)
        except (ArchiveDamagedError, NotFoundError):
            return None  # the doctor command reports damage; a search ignores it

    def _count(self, newest: _Newest) -> float:
        """Estimate how many rows of the tenant match, from the distance between the newest ones."""
        count = len(newest.rows)
        if newest.is_complete or not count:
            return count
        (first, last), _ = self._figures
        lowest = min(row[0] for row in newest.rows)
        return float(min(count * (last - first + 1) / (last - lowest + 1), self.row_count))

    def _all(self, sql: str, **values: Any) -> list[_Row]:
        parameters = {**self._values, **values}
        rows: list[_Row] = self._connection.execute(sql.encode(), parameters).fetchall()
        return rows
