"""Tool: find what was said or printed, in messages and in stored outputs."""

from datetime import UTC, datetime, timedelta

from context_compaction.archive import Hit, Query, SearchPage
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ToolAnnotations

from mcp_server_compaction.schemas import HitAnswer, SearchAnswer, SearchArguments
from mcp_server_compaction.tools.spec import RequestContext, ToolSpec, structured

_DATE_CHARS = len("2026-01-31")


async def search_transcript(context: RequestContext, arguments: SearchArguments) -> CallToolResult:
    """Run one search and answer with its page of hits."""
    query = query_of(arguments)
    archive = await context.lifespan_context.archive()
    return structured(search_answer(await archive.search(query)))


def query_of(arguments: SearchArguments) -> Query:
    """The archive's query for `arguments`.

    Raises:
        ToolError: A time cannot be read, or the times leave nothing between them.
    """
    since = _seconds("since", arguments.since)
    until = _seconds("until", arguments.until)
    if since is not None and until is not None and since > until:
        raise ToolError(f"since ({arguments.since}) is later than until ({arguments.until}).")
    return Query(
        text=arguments.query,
        kind=arguments.kind,
        order=arguments.order,
        session_id=arguments.session_id,
        role=arguments.role,
        tool=arguments.tool,
        since_seconds=since,
        until_seconds=until,
        limit=arguments.limit,
        cursor=arguments.cursor,
    )


def search_answer(page: SearchPage) -> SearchAnswer:
    """A page of hits as the tool answers it."""
    return SearchAnswer(
        hits=[_hit_answer(hit) for hit in page.hits],
        total=page.total,
        total_is_exact=page.total_is_exact,
        next_cursor=page.next_cursor,
        note=_note(page),
    )


def _hit_answer(hit: Hit) -> HitAnswer:
    return HitAnswer(
        pointer=hit.pointer,
        kind=hit.kind,
        session_id=hit.session_id,
        seq=hit.seq,
        role=hit.role,
        tool_name=hit.tool_name,
        time=iso_time(hit.timestamp_seconds),
        line=hit.line,
        offset_chars=hit.offset_chars,
        snippet=hit.snippet,
    )


def iso_time(seconds: float) -> str:
    """Unix time as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _note(page: SearchPage) -> str:
    if not page.hits:
        return "Nothing found. Try fewer or other words, or kind='regex'."
    more = " Pass next_cursor as cursor for more." if page.next_cursor else ""
    counted = "" if page.total_is_exact else " The total is a lower bound: counting stopped early."
    return f"Read a hit with read_persisted_output and its pointer.{more}{counted}"


def _seconds(name: str, text: str | None) -> float | None:
    """Unix time of an ISO 8601 date or time; UTC where no zone is given.

    A bare date means its first moment, but for `until` its last.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ToolError(
            f"{name} is {text!r}. Give an ISO 8601 date or time, as 2026-01-31 or "
            "2026-01-31T14:30:00+01:00."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if name == "until" and len(text) <= _DATE_CHARS:
        moment += timedelta(days=1, microseconds=-1)
    return moment.timestamp()


SEARCH_TRANSCRIPT = ToolSpec(
    name="search_transcript",
    title="Search transcripts",
    description="Find what left your context: messages and stored outputs of archived sessions. "
    "words: any of them, best first.",
    arguments=SearchArguments,
    answer=SearchAnswer,
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    run=search_transcript,
)
