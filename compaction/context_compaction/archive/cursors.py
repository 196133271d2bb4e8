"""Cursors: where the next page of an answer begins, as an opaque text."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

from context_compaction.archive.values import SessionInfo
from context_compaction.errors import QueryError


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
