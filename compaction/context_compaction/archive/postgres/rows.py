"""What a search asks of the tables: see `Rows`. Whatever is asked for is bounded.

A common word is looked for among the newest rows, and how many rows contain it is estimated from
how far apart these lie; a rare one is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, NamedTuple, TypeAlias

from context_compaction.archive.documents import DocText, doc_text
from context_compaction.archive.frames import Blobs
from context_compaction.archive.postgres.indexing import (
    all_of,
    any_of,
    block_query,
    parse_body,
    path_query,
    spans_of,
    text_query,
    without_order,
)
from context_compaction.archive.postgres.schema import Connection
from context_compaction.archive.search.filters import Filter, no_session
from context_compaction.archive.search.hits import Row
from context_compaction.archive.search.word_search import (
    CANDIDATES,
    NEIGHBOR_MESSAGES,
    Candidates,
    share,
)
from context_compaction.archive.tokenizer import QueryTerm
from context_compaction.errors import ArchiveDamagedError, NotFoundError

_Row: TypeAlias = tuple[Any, ...]

_DAY_SECONDS = 86_400
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
            raise no_session(allowed.session_id)
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

    def candidates(self, term: QueryTerm) -> Candidates:
        """See `Rows.candidates`."""
        query = text_query(term)
        # With equal weights of one, the cover density is how often the term occurs.
        found = self._newest(
            query, CANDIDATES, "ts_rank_cd('{1,1,1,1}', words, %(query)s::tsquery), term_count"
        )
        _, (_, average) = self._figures
        shares = {doc_id: share(count, length, average) for doc_id, count, length in found.rows}
        every = found if self._allowed.is_open else self._newest(query, CANDIDATES, every_row=True)
        return Candidates(shares, self._count(every), found.is_whole)

    def said_within(self, times: Sequence[tuple[float, float]]) -> Candidates:
        """See `Rows.said_within`."""
        days = [(_day(first), _day(last) + _DAY_SECONDS) for first, last in times]
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
        return Candidates(shares, counted[0][0], len(found) < CANDIDATES)

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
    return min(max(seconds // _DAY_SECONDS, 0), 1 << 17) * _DAY_SECONDS
