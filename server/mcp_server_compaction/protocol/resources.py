"""List of resources, completion of session IDs, and subscriptions."""

from typing import TYPE_CHECKING

from context_compaction import QueryError
from mcp_types import (
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmptyResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.sessions import iso_time

if TYPE_CHECKING:
    from context_compaction import SessionInfo

OPTIONS_URI = "options://compact_messages"
POLICIES_URI = "policies://compact_messages"
# Page that a host with MCP Apps shows next to a reply. Both URIs name the same document.
APP_URIS = {
    "compact_messages": "ui://mcp-server-compaction/compaction",
    "search_transcript": "ui://mcp-server-compaction/search",
}
PAGE_SIZE = 25
JSON_TYPE = "application/json"
JSON_LINES_TYPE = "application/jsonl"
TEXT_TYPE = "text/plain"

_FIRST_RESOURCES = (
    Resource(
        uri=OPTIONS_URI,
        name="options",
        title="Options of compact_messages",
        description="All fields of `options`, with defaults.",
        mime_type=JSON_TYPE,
    ),
    Resource(
        uri=POLICIES_URI,
        name="policies",
        title="Policies of compact_messages",
        description="All policies with their layers, constants and sources.",
        mime_type=JSON_TYPE,
    ),
)


def _template(name: str, uri: str, mime_type: str, description: str) -> ResourceTemplate:
    return ResourceTemplate(
        name=name, uri_template=uri, mime_type=mime_type, description=description
    )


_SESSION = "transcript://{session_id}"
TEMPLATES = (
    _template("Session", _SESSION, JSON_TYPE, "Session metadata, branches and newest messages."),
    _template(
        "Messages of a session",
        f"{_SESSION}/messages/{{start}}-{{stop}}",
        JSON_LINES_TYPE,
        "Archived messages start to stop, inclusive, as exact JSON lines.",
    ),
    _template(
        "Receipts of a session",
        f"{_SESSION}/receipts",
        JSON_LINES_TYPE,
        "One JSON line per compaction, oldest first: what it removed, why, and where the originals "
        "are.",
    ),
    _template(
        "Receipt of a compaction",
        f"{_SESSION}/receipts/{{number}}",
        JSON_LINES_TYPE,
        "One receipt, by number from 0 or `last`, with the names that the context no longer "
        "contains.",
    ),
    _template(
        "Context of a session",
        f"{_SESSION}/context",
        JSON_LINES_TYPE,
        "Current context of the session, to which new_messages are appended, as JSON lines.",
    ),
    _template(
        "Files of a session",
        f"{_SESSION}/files",
        TEXT_TYPE,
        "Files that the session used, last used first.",
    ),
    _template(
        "File of a session",
        f"{_SESSION}/files/{{+path}}",
        TEXT_TYPE,
        "Last known text of a file, with the edits of the session applied.",
    ),
    _template(
        "Plan of a session",
        f"{_SESSION}/plan",
        TEXT_TYPE,
        "Newest todo list or plan, each item with its states.",
    ),
    _template(
        "Work on a plan item",
        f"{_SESSION}/plan/{{number}}",
        JSON_LINES_TYPE,
        "Messages of the work on one item, by number from 1, as JSON lines.",
    ),
    _template(
        "Stored output",
        "output://{output_id}",
        TEXT_TYPE,
        "Full text of a stored output, or its first part if very large.",
    ),
    _template(
        "Lines of a stored output",
        "output://{output_id}/lines/{start}-{stop}",
        TEXT_TYPE,
        "Lines start to stop of a stored output, inclusive.",
    ),
)


async def list_resources(
    context: RequestContext, params: PaginatedRequestParams | None
) -> ListResourcesResult:
    """Handle `resources/list`: options and policies, then sessions, newest first."""
    cursor = params.cursor if params else None
    archive = await context.lifespan_context.archive()
    try:
        sessions, next_cursor = await archive.sessions(limit=PAGE_SIZE, cursor=cursor)
    except QueryError as error:
        raise QueryError(f"{error} Start again without a cursor.") from error
    first = () if cursor else _FIRST_RESOURCES
    return ListResourcesResult(
        resources=[*first, *map(_session_resource, sessions)], next_cursor=next_cursor
    )


def _session_resource(session: "SessionInfo") -> Resource:
    last_time = iso_time(session.last_seconds)
    return Resource(
        uri=f"transcript://{session.session_id}",
        name=session.session_id,
        title=session.title or session.session_id,
        description=f"{session.message_count} messages, last active {last_time}",
        mime_type=JSON_TYPE,
    )


async def list_resource_templates(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    """Handle `resources/templates/list`."""
    return ListResourceTemplatesResult(resource_templates=list(TEMPLATES))


async def subscribe(context: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
    """Handle `resources/subscribe`, which clients with a handshake use."""
    context.lifespan_context.changes.subscribe(context.session, params.uri)
    return EmptyResult()


async def unsubscribe(context: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
    """Handle `resources/unsubscribe`, which clients with a handshake use."""
    context.lifespan_context.changes.unsubscribe(context.session, params.uri)
    return EmptyResult()


async def complete(context: RequestContext, params: CompleteRequestParams) -> CompleteResult:
    """Handle `completion/complete`: session IDs that start with the typed text, newest first."""
    matches: list[str] = []
    if params.argument.name == "session_id":
        archive = await context.lifespan_context.archive()
        sessions, _ = await archive.sessions(limit=1_000)
        names = [session.session_id for session in sessions]
        matches = [name for name in names if name.startswith(params.argument.value)]
    values = matches[:100]  # The protocol allows at most 100 values.
    has_more = len(matches) > len(values)
    return CompleteResult(
        completion=Completion(values=values, total=len(matches), has_more=has_more)
    )
