"""The list of resources, and who wants to know when one changes."""

import base64
from typing import TYPE_CHECKING

from context_compaction.errors import CompactionError, NotFoundError, QueryError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    EmptyResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.sessions import iso_time

if TYPE_CHECKING:
    from context_compaction.archive import Archive, SessionInfo

OPTIONS_URI = "options://compact_messages"
POLICIES_URI = "policies://compact_messages"
# What hosts with MCP Apps show beside an answer: one document, which sees what came.
APP_URIS = {
    "compact_messages": "ui://mcp-server-compaction/compaction",
    "search_transcript": "ui://mcp-server-compaction/search",
}
APP_TYPE = "text/html;profile=mcp-app"
PAGE_SIZE = 25
JSON_TYPE = "application/json"
JSON_LINES_TYPE = "application/jsonl"

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
    archive = await _archive(context)
    try:
        sessions, next_cursor = await archive.sessions(
            limit=PAGE_SIZE, cursor=_decode_cursor(cursor) if cursor else None
        )
    except CompactionError as error:
        raise MCPError(INVALID_PARAMS, f"{error} Start again without a cursor.") from error
    first = [] if cursor else [_options_resource(), _policies_resource()]
    return ListResourcesResult(
        resources=[*first, *(_session_resource(session) for session in sessions)],
        next_cursor=_encode_cursor(next_cursor) if next_cursor else None,
    )


async def list_resource_templates(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    """Handle `resources/templates/list`."""
    return ListResourceTemplatesResult(resource_templates=list(TEMPLATES))


async def read_resource(
    context: RequestContext, params: ReadResourceRequestParams
) -> ReadResourceResult:
    """Handle `resources/read`."""
    # With all that reads transcripts: hosts wait for the greeting, not for this.
    from mcp_server_compaction.protocol.resource_contents import contents_of

    uri = params.uri
    try:
        return ReadResourceResult(contents=[*await contents_of(context, uri)])
    except (NotFoundError, QueryError) as error:
        raise MCPError(INVALID_PARAMS, str(error), data={"uri": uri}) from error
    except CompactionError as error:
        raise MCPError(INTERNAL_ERROR, str(error), data={"uri": uri}) from error


async def subscribe(context: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
    """Handle `resources/subscribe` of the handshake era."""
    context.lifespan_context.changes.subscribe(context.session, params.uri)
    return EmptyResult()


async def unsubscribe(context: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
    """Handle `resources/unsubscribe` of the handshake era."""
    context.lifespan_context.changes.unsubscribe(context.session, params.uri)
    return EmptyResult()


def _options_resource() -> Resource:
    return Resource(
        uri=OPTIONS_URI,
        name="options",
        title="Options of compact_messages",
        description="Every field of `options`, with its default.",
        mime_type=JSON_TYPE,
    )


def _policies_resource() -> Resource:
    return Resource(
        uri=POLICIES_URI,
        name="policies",
        title="Policies of compact_messages",
        description="What `policy` may name: layers, constants, sources.",
        mime_type=JSON_TYPE,
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


async def _archive(context: RequestContext) -> "Archive":
    try:
        return await context.lifespan_context.archive()
    except CompactionError as error:
        raise MCPError(INTERNAL_ERROR, str(error)) from error


# A cursor of the archive may hold anything; clients get one that is safe to pass about.
def _encode_cursor(cursor: str) -> str:
    return base64.urlsafe_b64encode(cursor.encode()).decode()


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor.encode()).decode()
    except ValueError as error:
        raise MCPError(
            INVALID_PARAMS, f"{cursor!r} is no cursor of this list. Start again without one."
        ) from error
