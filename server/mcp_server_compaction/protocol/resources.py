"""The list of resources, completing the ids of sessions, and who wants to know of changes."""

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
# What hosts with MCP Apps show beside an answer: one document, which sees what came.
APP_URIS = {
    "compact_messages": "ui://mcp-server-compaction/compaction",
    "search_transcript": "ui://mcp-server-compaction/search",
}
PAGE_SIZE = 25
JSON_TYPE = "application/json"
JSON_LINES_TYPE = "application/jsonl"

_FIRST_RESOURCES = (
    Resource(
        uri=OPTIONS_URI,
        name="options",
        title="Options of compact_messages",
        description="Every field of `options`, with its default.",
        mime_type=JSON_TYPE,
    ),
    Resource(
        uri=POLICIES_URI,
        name="policies",
        title="Policies of compact_messages",
        description="What `policy` may name: layers, constants, sources.",
        mime_type=JSON_TYPE,
    ),
)
TEMPLATES = (
    ResourceTemplate(
        name="transcript",
        title="Transcript",
        uri_template="transcript://{session_id}",
        description="What is known of a session, and its newest messages.",
        mime_type=JSON_TYPE,
    ),
    ResourceTemplate(
        name="messages",
        title="Messages of a transcript",
        uri_template="transcript://{session_id}/messages/{start}-{stop}",
        description="Archived messages, both ends included, as exact JSON lines.",
        mime_type=JSON_LINES_TYPE,
    ),
    ResourceTemplate(
        name="receipts",
        title="Receipts of a session",
        uri_template="transcript://{session_id}/receipts",
        description="What each compaction did, oldest first, as JSON lines.",
        mime_type=JSON_LINES_TYPE,
    ),
    ResourceTemplate(
        name="one receipt",
        title="Receipt of a compaction",
        uri_template="transcript://{session_id}/receipts/{number}",
        description="One receipt, from 0 or `last`, with the names that left the context.",
        mime_type=JSON_LINES_TYPE,
    ),
    ResourceTemplate(
        name="context",
        title="Context of a session",
        uri_template="transcript://{session_id}/context",
        description="The list that a call with the session_id alone continues, as JSON lines.",
        mime_type=JSON_LINES_TYPE,
    ),
    ResourceTemplate(
        name="files",
        title="Files of a session",
        uri_template="transcript://{session_id}/files",
        description="The files that the session used, the last used first.",
        mime_type="text/plain",
    ),
    ResourceTemplate(
        name="file",
        title="File of a session",
        uri_template="transcript://{session_id}/files/{+path}",
        description="The last known text of one file, as the session's calls left it.",
        mime_type="text/plain",
    ),
    ResourceTemplate(
        name="plan",
        title="Plan of a session",
        uri_template="transcript://{session_id}/plan",
        description="The newest todo list or plan, each item with its states.",
        mime_type="text/plain",
    ),
    ResourceTemplate(
        name="plan item",
        title="Work on a plan item",
        uri_template="transcript://{session_id}/plan/{number}",
        description="The messages of the work on one item, from 1, as JSON lines.",
        mime_type=JSON_LINES_TYPE,
    ),
    ResourceTemplate(
        name="output",
        title="Persisted output",
        uri_template="output://{output_id}",
        description="A stored output, whole; the first part of a very large one.",
        mime_type="text/plain",
    ),
    ResourceTemplate(
        name="output lines",
        title="Lines of a persisted output",
        uri_template="output://{output_id}/lines/{start}-{stop}",
        description="Some lines of a stored output, both ends included.",
        mime_type="text/plain",
    ),
)


async def list_resources(
    context: RequestContext, params: PaginatedRequestParams | None
) -> ListResourcesResult:
    """Handle `resources/list`: names for `options` and `policy`, then sessions, newest first."""
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
        description=f"{session.message_count} messages, last {last_time}",
        mime_type=JSON_TYPE,
    )


async def list_resource_templates(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    """Handle `resources/templates/list`."""
    return ListResourceTemplatesResult(resource_templates=list(TEMPLATES))


async def subscribe(context: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
    """Handle `resources/subscribe` of the handshake era."""
    context.lifespan_context.changes.subscribe(context.session, params.uri)
    return EmptyResult()


async def unsubscribe(context: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
    """Handle `resources/unsubscribe` of the handshake era."""
    context.lifespan_context.changes.unsubscribe(context.session, params.uri)
    return EmptyResult()


async def complete(context: RequestContext, params: CompleteRequestParams) -> CompleteResult:
    """Handle `completion/complete`: ids of sessions, newest first, as one is typed."""
    found: list[str] = []
    if params.argument.name == "session_id":
        archive = await context.lifespan_context.archive()
        sessions, _ = await archive.sessions(limit=1_000)
        names = [session.session_id for session in sessions]
        found = [name for name in names if name.startswith(params.argument.value)]
    shown = found[:100]  # the protocol's limit
    return CompleteResult(
        completion=Completion(values=shown, total=len(found), has_more=len(found) > len(shown))
    )
