"""Interface between a search and an index: filters, rows, matches and page cursors.

A row of an index is a message, or a part of a long message or of an output. Each row has tags,
short words that describe its record. A filter requires tags, and an archive stores and compares
tags without knowing their meaning. So a new filter on content needs a field of `Query`, its tag in
`tags_of`, and the same tag in `filter_of`: see docs/how-to/archive.md.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf, isfinite
from sys import maxsize
from typing import Any, Protocol, TypeAlias, TypeVar

from context_compaction.archive.documents import DocText, IndexedPart, is_own_tool
from context_compaction.archive.tokenizer import TERMS_VERSION, QueryTerm, phrase_term
from context_compaction.archive.transcript_state import Description
from context_compaction.archive.values import NO_SEQ, History, Query, SessionInfo
from context_compaction.errors import QueryError
from context_compaction.messages.model import JsonObject
from context_compaction.request import check_session_id

# Increase the number after the dot whenever the tags change, as indexes must then be rebuilt.
INDEX_VERSION = f"{TERMS_VERSION}.2"
CANDIDATES = 800  # newest matches of one word that are ranked; measured: 3 to 8 ms
NEIGHBOR_MESSAGES = 3  # messages on either side of a row that count as its neighbors
MAX_LIMIT = 100
MAX_QUERY_CHARS = 20_000  # a page of text that was pasted as a question
LAST_ID = maxsize
OWN_TAG = "own"  # calls of this library's own tools, and their results

_ROLES = ("user", "assistant", "system", "tool")


def tags_of(head: JsonObject, part: IndexedPart) -> Iterator[str]:
    """Yield the tags of a row, given the head of its record and its text."""
    if head["kind"] == "output":
        role, tools = "tool", [head["tool"]] if head["tool"] else []
    else:
        role, tools = head.get("role", ""), head.get("tools", [])
    yield _role_tag(role)
    yield from map(tool_tag, tools)
    if part.is_own:
        yield OWN_TAG


def _role_tag(role: str) -> str:
    return f"r{role}"


def tool_tag(tool: str) -> str:
    """Return the tag of a tool: a hash, because the name of a tool may contain any character."""
    return "t" + blake2b(tool.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that a row must meet.

    Attributes:
        session_id: The row belongs to this session or to one of its descendants.
        within: The row belongs to this branch of the session.
        tags: The row has every one of these tags.
        without_tags: The row has none of these tags.
        path: The row names this path, or answers a call that named it.
        since_seconds: Earliest time of the row, in Unix seconds.
        until_seconds: Latest time of the row, in Unix seconds.
        last_id: Highest row ID.
    """

    session_id: str | None = None
    within: History | None = None
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = (OWN_TAG,)
    path: QueryTerm | None = None
    since_seconds: float = -inf
    until_seconds: float = inf
    last_id: int = LAST_ID

    @property
    def is_timeless(self) -> bool:
        """Whether rows of any time pass."""
        return (self.since_seconds, self.until_seconds) == (-inf, inf)

    @property
    def is_open(self) -> bool:
        """Whether nothing but `without_tags` and `last_id` restricts the rows."""
        return self.is_timeless and not (self.session_id or self.within or self.tags or self.path)


def filter_of(query: Query) -> Filter:
    """Return the filter of a query and its cursor, without the branch that `head` names.

    Raises:
        QueryError: The query is too long, or a filter, the limit or the cursor is invalid.
    """
    _check_query(query)
    until = inf if query.until_seconds is None else query.until_seconds
    tags: list[str] = []
    if query.role is not None:
        tags.append(_role_tag(query.role))
    if query.tool is not None:
        tags.append(tool_tag(query.tool))
    return Filter(
        session_id=query.session_id,
        tags=tuple(tags),
        without_tags=() if query.tool is not None and is_own_tool(query.tool) else (OWN_TAG,),
        path=None if query.path is None else phrase_term(query.path),
        since_seconds=-inf if query.since_seconds is None else query.since_seconds,
        # Replies show times in whole milliseconds, and callers may pass such a time as the limit.
        until_seconds=until + 0.001,
        last_id=decode_cursor(query.cursor)[1] if query.cursor else LAST_ID,
    )


def _check_query(query: Query) -> None:
    if not 1 <= query.limit <= MAX_LIMIT:
        raise QueryError(f"Invalid limit {query.limit}. Use a number from 1 to {MAX_LIMIT}.")
    if len(query.text) > MAX_QUERY_CHARS:
        raise QueryError(
            f"The query has {len(query.text)} characters; the maximum is {MAX_QUERY_CHARS}. "
            "Search for the few words that matter."
        )
    if query.role is not None and query.role not in _ROLES:
        raise QueryError(f"Unknown role {query.role!r}. Use one of: {', '.join(_ROLES)}.")
    if query.session_id is not None:
        check_session_id(query.session_id)
    elif query.head is not None:
        raise QueryError(f"The branch {query.head!r} needs a session. Pass session_id as well.")
    if query.path is not None and phrase_term(query.path) is None:
        raise QueryError(
            f"The path {query.path[:80]!r} contains no letter or digit. Pass a path such as a/b.py."
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an index: a message, or a part of a long message or of an output.

    Attributes:
        record: Where the record is, or its text, as the index needs it to read the row.
        doc_id: ID of the row. A larger ID usually means a later time.
        session_id: Session that contains the row.
        seq: Number of the message; -1 for an output.
        output_id: ID of the output; None for a message.
        start_byte: Start of the part, in bytes for an output, in characters for a message.
        size_bytes: Length of the part in the unit of `start_byte`.
        start_char: Start of the part in characters.
        start_line: Number of the first line of the part, from 1.
        seconds: Time of the record, in Unix seconds.
    """

    record: tuple[Any, ...]
    doc_id: int
    session_id: str
    seq: int
    output_id: str | None
    start_byte: int
    size_bytes: int
    start_char: int
    start_line: int
    seconds: float


def row_values(head: JsonObject, part: IndexedPart) -> tuple[Any, ...]:
    """Return what an index stores of a row from `seq` on."""
    output_id = head["id"] if head["kind"] == "output" else None
    place = part.start_byte, part.size_bytes, part.start_char, part.start_line
    return head.get("seq", NO_SEQ), output_id, *place, float(head["ts"])


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Matches:
    """The newest rows that contain one search term and pass a filter.

    Attributes:
        shares: BM25 share of each row by row ID, 0 to 2.2, before the term's weight is applied.
        row_count: Approximate number of rows in the archive that contain the term.
        is_complete: Whether `shares` has all rows that pass the filter.
        weight: Factor of the shares in a score, by how rare the term is. An index leaves it 0.
    """

    shares: Mapping[int, float]
    row_count: float
    is_complete: bool
    weight: float = 0.0


def share(occurrences: float, length: float, average_length: float) -> float:
    """Return the BM25 share of a row in which a term occurs `occurrences` times: 0 to 2.2.

    Args:
        occurrences: Number of times that the term occurs.
        length: Number of words of the row.
        average_length: Average number of words of all rows.
    """
    relative = length / average_length if average_length else 1.0
    return occurrences * 2.2 / (occurrences + 1.2 * (0.25 + 0.75 * relative))


class Rows(Protocol):
    """The rows of an index that pass one filter. Every method blocks."""

    @property
    def row_count(self) -> int:
        """Approximate number of rows in the archive."""
        ...

    def candidates(self, term: QueryTerm) -> Matches:
        """Return the newest `CANDIDATES` rows that contain a term."""
        ...

    def newest(
        self, terms: Sequence[QueryTerm], limit: int, *, every: bool = False
    ) -> dict[int, float]:
        """Return the newest rows, newest first, with their times in Unix seconds.

        They have any of the terms, or with `every` all of them; without terms, all rows qualify.
        """
        ...

    def near(self, ids: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """Return rows with a neighbor in the branch, and by how many messages that is later.

        The number is -`NEIGHBOR_MESSAGES` to `NEIGHBOR_MESSAGES`, but not 0.
        """
        ...

    def docs(self, ids: Sequence[int]) -> Sequence[Row]:
        """Return the rows with these IDs in the given order, without deleted ones."""
        ...

    def read(self, doc: Row) -> DocText | None:
        """Return the content of a row, or None if it was deleted or is damaged."""
        ...


RowsOf: TypeAlias = Callable[[Filter], Rows]
Check: TypeAlias = Callable[[], None]  # called repeatedly during a search; may raise to end it


class OnRows(Protocol):
    """The method `Archive.on_rows`."""

    async def __call__(self, work: Callable[[RowsOf], T], check: Check) -> T:
        """See `Archive.on_rows`."""
        ...


def encode_cursor(numbers: Sequence[float]) -> str:
    """Return an opaque text that `decode_cursor` turns back into `numbers`."""
    return urlsafe_b64encode(json.dumps(numbers).encode()).decode()


def decode_cursor(cursor: str) -> tuple[float, int]:
    """Return the two numbers of a cursor.

    Raises:
        QueryError: `encode_cursor` did not make the cursor.
    """
    try:
        first, second = json.loads(urlsafe_b64decode(cursor.encode()))
        numbers = float(first), int(second)
    except (ValueError, TypeError, OverflowError, RecursionError):
        numbers = inf, 0
    if not (isfinite(numbers[0]) and 0 <= numbers[1] <= LAST_ID):
        raise QueryError(
            f"Invalid cursor {cursor[:80]!r}. Pass the next_cursor of an earlier reply to the "
            "same query, or leave it out."
        )
    return numbers


def session_cursor(limit: int, cursor: str | None) -> tuple[float, int]:
    """Return the time and the row ID before which a page of sessions starts.

    Raises:
        QueryError: The limit is below 1, or the cursor is invalid.
    """
    if limit < 1:
        raise QueryError(f"Invalid limit {limit}. Use a number from 1.")
    return decode_cursor(cursor) if cursor else (inf, 0)


def session_page(
    rows: Sequence[tuple[Any, ...]], limit: int
) -> tuple[list[SessionInfo], str | None]:
    """Return at most `limit` sessions, and the cursor of the next page or None.

    Args:
        rows: For each session its row ID and its description as JSON. An additional row after the
            first `limit` shows that another page exists.
        limit: Maximum number of sessions.
    """
    infos = [Description.from_json(text).info() for _, text, *_ in rows[:limit]]
    if len(rows) <= limit:
        return infos, None
    return infos, encode_cursor([infos[-1].last_seconds, rows[limit - 1][0]])
