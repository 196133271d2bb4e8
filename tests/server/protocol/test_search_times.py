"""`since` and `until` of a search: a date or minute means its first or its last moment."""

from datetime import UTC, datetime, timedelta

import pytest
from context_compaction.errors import QueryError
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.protocol.schemas import SearchArguments
from mcp_server_compaction.protocol.searching import query_of


def _span(text: str) -> tuple[datetime, timedelta]:
    query = query_of(SearchArguments(query="x", since=text, until=text))
    assert query.since_seconds is not None
    assert query.until_seconds is not None
    length = timedelta(seconds=query.until_seconds - query.since_seconds)
    return datetime.fromtimestamp(query.since_seconds, UTC), length


@pytest.mark.parametrize(
    ("text", "first", "length"),
    [
        ("2026-01-31", "2026-01-31T00:00Z", timedelta(days=1)),
        ("20260131", "2026-01-31T00:00Z", timedelta(days=1)),
        ("20260131T1430", "2026-01-31T14:30Z", timedelta(minutes=1)),
        ("2026-01-31T14:30Z", "2026-01-31T14:30Z", timedelta(minutes=1)),
        ("20260131T143005", "2026-01-31T14:30:05Z", timedelta()),
        ("2026-01-31T14:30:05.5", "2026-01-31T14:30:05.5Z", timedelta()),
    ],
)
def test_since_and_until_cover_all_of_the_time_that_a_text_names(
    text: str, first: str, length: timedelta
) -> None:
    start, covered = _span(text)
    assert start == datetime.fromisoformat(first)
    assert abs(covered - length) <= timedelta(microseconds=2)


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(["%Y-%m-%d", "%Y%m%d", "%Y-%m-%dT%H:%M", "%Y%m%dT%H%MZ"]),
)
def test_a_time_lies_within_each_text_that_names_it(moment: datetime, form: str) -> None:
    start, covered = _span(moment.strftime(form))
    assert start <= moment <= start + covered + timedelta(microseconds=2)


@pytest.mark.parametrize("text", ["2026-01", "2026-W05", "yesterday", ""])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(QueryError, match="2026-01-31T14:30:00"):
        query_of(SearchArguments(query="x", since=text))


def test_since_later_than_until_is_an_error() -> None:
    with pytest.raises(QueryError):
        query_of(SearchArguments(query="x", since="2026-02-01", until="2026-01-31"))
