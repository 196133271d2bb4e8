"""Cursors: where the next page of an answer begins, as an opaque text."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from math import isfinite
from typing import Any

from context_compaction.errors import QueryError

_MAX_NUMBER = 2**63 - 1  # the largest row number of a database


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
    if not (isfinite(numbers[0]) and 0 <= numbers[1] <= _MAX_NUMBER):
        raise _unusable(cursor)
    return numbers


def _unusable(cursor: str) -> QueryError:
    return QueryError(
        f"The cursor {cursor[:80]!r} cannot be used. Give the next_cursor of an earlier "
        "answer to the same query, or leave it out."
    )
