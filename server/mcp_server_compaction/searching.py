"""From search arguments to the archive's query, and from a page of hits to an answer."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anyio import to_thread
from context_compaction.archive import Archive, Hit, Query, SearchPage
from context_compaction.archive.dates import asked_times
from context_compaction.archive.snippets import SNIPPET_CHARS, snippet_span
from context_compaction.errors import QueryError

from mcp_server_compaction.schemas import HitAnswer, SearchAnswer, SearchArguments
from mcp_server_compaction.sessions import iso_time
from mcp_server_compaction.tools.spec import dump

# A reply stands in a context from then on. Ten hits of English prose have some 1,600 tokens.
REPLY_TOKENS = 2_000
USUAL_HITS = 10
MAX_NAME_CHARS = 64

_DATE_CHARS = len("2026-01-31")
_SNIPPET_CHARS = (SNIPPET_CHARS, 160, 100, 60, 30)
_COUNTED_AS = "gpt-4o"  # o200k_base as it is


def query_of(arguments: SearchArguments) -> Query:
    """The archive's query for `arguments`.

    Raises:
        QueryError: A time cannot be read, or the times leave nothing between them.
    """
    since = _seconds("since", arguments.since)
    until = _seconds("until", arguments.until)
    if since is not None and until is not None and since > until:
        raise QueryError(f"since ({arguments.since}) is later than until ({arguments.until}).")
    return Query(
        text=arguments.query,
        kind=arguments.kind,
        order=arguments.order,
        session_id=arguments.session_id,
        role=arguments.role,
        tool=arguments.tool,
        path=arguments.path,
        since_seconds=since,
        until_seconds=until,
        limit=arguments.limit,
        cursor=arguments.cursor,
    )


async def search_briefly(archive: Archive, query: Query) -> SearchAnswer:
    """The answer to a query within `REPLY_TOKENS`, or in proportion for more hits than usual.

    Snippets are cut around their matches, as little as needed. Where even that is not enough (ids
    may have 128 characters), there are fewer hits, and the cursor goes on after them.

    Raises:
        ArchiveError: The search fails.
    """
    from context_compaction.tokens import counter_for  # loads slowly

    count_tokens = counter_for(_COUNTED_AS).text
    max_tokens = REPLY_TOKENS * max(query.limit, USUAL_HITS) // USUAL_HITS
    while True:
        page = await archive.search(query)
        for snippet_chars in _SNIPPET_CHARS:
            answer = search_answer(page, snippet_chars)
            text = dump(answer.model_dump(mode="json", exclude_none=True))
            if await to_thread.run_sync(count_tokens, text) <= max_tokens or query.limit == 1:
                return answer
        query = replace(query, limit=query.limit - max(1, query.limit // 4))


def search_answer(page: SearchPage, snippet_chars: int = SNIPPET_CHARS) -> SearchAnswer:
    """A page of hits as the tool answers it."""
    return SearchAnswer(
        hits=[_hit_answer(hit, snippet_chars) for hit in page.hits],
        total=page.total,
        total_is_exact=page.total_is_exact,
        next_cursor=page.next_cursor,
        note=_note(page),
    )


def _hit_answer(hit: Hit, snippet_chars: int) -> HitAnswer:
    start, stop = snippet_span(len(hit.snippet), hit.snippet_chars_before, snippet_chars)
    return HitAnswer(
        pointer=hit.pointer,
        session_id=hit.session_id if hit.kind == "output" else None,
        role=hit.role,
        tool_name=hit.tool_name and hit.tool_name[:MAX_NAME_CHARS],
        time=iso_time(hit.timestamp_seconds),
        line=hit.line,
        offset_chars=hit.offset_chars,
        snippet=hit.snippet[start:stop],
    )


def _note(page: SearchPage) -> str:
    if not page.hits:
        return "Nothing found. Try fewer or other words, or kind='regex'."
    more = " Pass next_cursor as cursor for more." if page.next_cursor else ""
    counted = "" if page.total_is_exact else " The total is a lower bound: counting stopped early."
    return f"Read a hit with read_persisted_output and its pointer.{more}{counted}"


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
