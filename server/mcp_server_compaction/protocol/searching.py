"""From search arguments to the archive's query, and from a page of hits to an answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from context_compaction.archive import Hit, Query, SearchPage
from context_compaction.archive.dates import asked_times
from context_compaction.errors import QueryError

from mcp_server_compaction.protocol.schemas import (
    HitAnswer,
    NextAnswer,
    SearchAnswer,
    SearchArguments,
)
from mcp_server_compaction.protocol.sessions import iso_time

MAX_TOOL_NAME_CHARS = 64
MAX_TERMS_CHARS = 120

_DATE_CHARS = len("2026-01-31")


def query_of(arguments: SearchArguments) -> Query:
    """The archive's query for `arguments`.

    Raises:
        QueryError: A time cannot be read, or the times leave nothing between them.
    """
    since = _seconds("since", arguments.since)
    until = _seconds("until", arguments.until)
    if since is not None and until is not None and since > until:
        raise QueryError(f"since ({arguments.since}) is later than until ({arguments.until}).")
    session_id, _, head = (arguments.session_id or "").partition("@")
    return Query(
        text=arguments.query,
        kind=arguments.kind,
        order=arguments.order,
        session_id=session_id or arguments.session_id,
        head=head or None,
        role=arguments.role,
        tool=arguments.tool,
        path=arguments.path,
        since_seconds=since,
        until_seconds=until,
        limit=arguments.limit,
        cursor=arguments.cursor,
    )


@dataclass(frozen=True, slots=True)
class SnippetSizes:
    """What the snippets may count in characters: those of the `first` hits, and the others."""

    first: int
    first_chars: int
    other_chars: int


def search_answer(
    page: SearchPage, sizes: SnippetSizes, marks: Mapping[int, str] | None = None
) -> SearchAnswer:
    """A page of hits as the tool answers it; `marks` describes those that show an edit."""
    told = marks or {}
    return SearchAnswer(
        hits=[
            _passage_answer(hit, sizes.first_chars, told.get(n))
            if n < sizes.first
            else _hit_answer(hit, sizes.other_chars)
            for n, hit in enumerate(page.hits)
        ],
        total=page.total,
        total_is_exact=page.total_is_exact,
        next_cursor=page.next_cursor,
        note=_note(page),
    )


def _passage_answer(hit: Hit, max_chars: int, mark: str | None) -> HitAnswer:
    """A hit that may answer by itself: with the size of what it is a part of, and `mark`."""
    answer = _hit_answer(hit, max_chars)
    is_part = hit.size_chars is not None and len(answer.snippet) < hit.size_chars
    return answer.model_copy(
        update={"note": mark, "size_chars": hit.size_chars if is_part else None}
    )


def _hit_answer(hit: Hit, max_snippet_chars: int) -> HitAnswer:
    from context_compaction.archive.snippets import passage_span

    start, stop = passage_span(hit.snippet, hit.snippet_chars_before, max_snippet_chars)
    return HitAnswer(
        pointer=f"{hit.pointer}@{hit.head}" if hit.head else hit.pointer,
        session_id=hit.session_id if hit.kind == "output" else None,
        role=hit.role,
        tool_name=hit.tool_name and hit.tool_name[:MAX_TOOL_NAME_CHARS],
        time=iso_time(hit.timestamp_seconds),
        line=hit.line,
        offset_chars=hit.offset_chars,
        snippet=hit.snippet[start:stop],
        next=_next_answer(hit.next, max_snippet_chars),
    )


def _next_answer(hit: Hit | None, max_snippet_chars: int) -> NextAnswer | None:
    if hit is None:
        return None
    return NextAnswer(pointer=hit.pointer, role=hit.role, snippet=hit.snippet[:max_snippet_chars])


def unfound(page: SearchPage) -> str:
    """What a page does not have of the words asked for, in sentences that end with a blank."""
    missing, elsewhere = (
        ", ".join(words)[:MAX_TERMS_CHARS] for words in (page.missing_terms, page.elsewhere)
    )
    nowhere = f"Nowhere found: {missing}. " if missing else ""
    away = f"Not here, but elsewhere in the archive: {elsewhere}. " if elsewhere else ""
    some = "No text has all of the words: these have some. " if page.has_any else ""
    return nowhere + away + some


def _note(page: SearchPage) -> str:
    from context_compaction.archive.patterns import SCAN_BYTES, SCAN_SECONDS

    if not page.hits and page.next_cursor:
        return (
            f"Nothing found so far: the search stopped after {SCAN_BYTES >> 20} MB or "
            f"{SCAN_SECONDS:g} seconds. Pass next_cursor as cursor to go on with what is older, or "
            "narrow it by session_id, tool, since."
        )
    if not page.hits:
        return f"Nothing found. {unfound(page)}Try fewer or other words, or kind='regex'."
    more = " Pass next_cursor as cursor for more." if page.next_cursor else ""
    counted = "" if page.total_is_exact else " The total is a lower bound: counting stopped early."
    reading = "Read a hit with read_persisted_output and its pointer."
    return f"{unfound(page)}{reading}{more}{counted}"


def _seconds(name: str, text: str | None) -> float | None:
    """Unix time of an ISO 8601 date or time, or a month; UTC where no zone is given.

    A bare date or month means its first moment, but for `until` its last.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        times = list(asked_times(text))
        if len(times) == 1:
            return times[0][name == "until"]
        raise QueryError(
            f"{name} is {text!r}. Give an ISO 8601 date or time, as 2026-01-31 or "
            "2026-01-31T14:30:00+01:00, or a month, as 2026-01."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if name == "until" and len(text) <= _DATE_CHARS:
        moment += timedelta(days=1, microseconds=-1)
    return moment.timestamp()
