"""The filters of a query, compiled once for every archive: which rows a search may find.

And cursors: where the next page of an answer begins, as an opaque text.

A row has tags: short words that say what its record is. A filter asks for tags, and an archive
keeps and compares them without knowing what they mean. So a new filter on what a record contains is
a field of `Query`, its tag in `tags_of`, and the same tag in `filter_of`: docs/how-to/archive.md.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf, isfinite
from typing import Any

from context_compaction.archive import History, Query, SessionInfo
from context_compaction.archive.documents import IndexedPart, is_own_tool
from context_compaction.archive.tokenizer import TERMS_VERSION, QueryTerm, phrase_term
from context_compaction.errors import QueryError
from context_compaction.messages.model import JsonObject
from context_compaction.request import check_session_id

# A change of the tags needs a new number, as a change of the words needs a new `TERMS_VERSION`.
INDEX_VERSION = f"{TERMS_VERSION}.1"
MAX_LIMIT = 100
MAX_QUERY_CHARS = 20_000  # a page of text, pasted as a question
LAST_ID = (1 << 63) - 1
OWN_TAG = "own"  # of what our own tools were asked and answered

_ROLES = ("user", "assistant", "system", "tool")


def tags_of(head: JsonObject, part: IndexedPart) -> Iterator[str]:
    """The tags of a row, given its record's head and its text."""
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
    """With a hash, as a tool's name may contain anything."""
    return "t" + blake2b(tool.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Filter:
    """What a row must be.

    Attributes:
        session_id: Of this session or one that descends from it.
        within: Of this history of the session.
        tags: It has every one of these ...
        without_tags: ... and none of these, which `everything` leaves out too.
        path: It names this path, or answers a call that did.
        since_seconds: Its earliest time, in Unix time.
        until_seconds: Its latest time.
        last_id: The highest row id.
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
    def is_open(self) -> bool:
        """Whether it lets every word's rows through, but for those of our own tools."""
        is_timeless = (self.since_seconds, self.until_seconds) == (-inf, inf)
        return is_timeless and not (self.session_id or self.within or self.tags or self.path)

    @property
    def everything(self) -> "Filter":
        """The same without what narrows it, but for what our own tools were asked."""
        return Filter(without_tags=self.without_tags)


def filter_of(query: Query) -> Filter:
    """What the filters and the cursor of a query let through, but for its `head`.

    Raises:
        QueryError: The query is too long, or a filter, the limit or the cursor cannot be used.
    """
    check_query(query)
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
        # Times are shown by the millisecond, and what was shown may be asked for.
        until_seconds=until + 0.001,
        last_id=decode_cursor(query.cursor)[1] if query.cursor else LAST_ID,
    )


def check_query(query: Query) -> None:
    """Refuse what no index can answer; raises what `filter_of` raises."""
    if not 1 <= query.limit <= MAX_LIMIT:
        raise QueryError(
            f"limit={query.limit} cannot be used. Give a number from 1 to {MAX_LIMIT}."
        )
    if len(query.text) > MAX_QUERY_CHARS:
        raise QueryError(
            f"The query has {len(query.text)} characters. Give at most {MAX_QUERY_CHARS}: the few "
            "words that matter."
        )
    if query.role is not None and query.role not in _ROLES:
        raise QueryError(f"Unknown role {query.role!r}. Give one of: {', '.join(_ROLES)}.")
    if query.session_id is not None:
        check_session_id(query.session_id)
    elif query.head is not None:
        raise QueryError(f"The history {query.head!r} is of no session. Give session_id as well.")
    if query.path is not None and phrase_term(query.path) is None:
        raise QueryError(f"The path {query.path[:80]!r} holds no letter or digit.")


def encode_cursor(numbers: Sequence[float]) -> str:
    """A text that `decode_cursor` turns back into `numbers`."""
    return urlsafe_b64encode(json.dumps(numbers).encode()).decode()


def decode_cursor(cursor: str) -> tuple[float, int]:
    """The two numbers of a cursor.

    Raises:
        QueryError: The cursor is not one that `encode_cursor` returned.
    """
    try:
        values: Any = json.loads(urlsafe_b64decode(cursor.encode()))
        first, second = values
        numbers = float(first), int(second)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _unusable(cursor) from error
    if not (isfinite(numbers[0]) and 0 <= numbers[1] < 1 << 63):
        raise _unusable(cursor)
    return numbers


def _unusable(cursor: str) -> QueryError:
    return QueryError(
        f"The cursor {cursor[:80]!r} cannot be used. Give the next_cursor of an earlier "
        "answer to the same query, or leave it out."
    )


def session_cursor(limit: int, cursor: str | None) -> tuple[float, int]:
    """Time and row id before which a page of sessions begins.

    Raises:
        QueryError: The limit is below 1, or the cursor is none of ours.
    """
    if limit < 1:
        raise QueryError(f"limit={limit} cannot be used. Give a number from 1.")
    return decode_cursor(cursor) if cursor else (inf, 0)


def session_page(
    rows: Sequence[tuple[Any, ...]], limit: int
) -> tuple[list[SessionInfo], str | None]:
    """At most `limit` sessions and the cursor of the next page.

    Of each session a row has its id and the fields of `SessionInfo`; one more row than `limit` says
    that there are more.
    """
    infos = [SessionInfo(*row[1:]) for row in rows[:limit]]
    if len(rows) <= limit:
        return infos, None
    return infos, encode_cursor([infos[-1].last_seconds, rows[limit - 1][0]])
