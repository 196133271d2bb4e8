"""The four tools: their definitions, and the handling of a call.

Hosts ask for the tool list when they start the server, so this module does not import the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from context_compaction import CompactionError
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel

from mcp_server_compaction.protocol.arguments import (
    BOUNDS,
    Arguments,
    parse_arguments,
    short_schema,
    unknown_name,
)
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.http_bodies import lists_of
from mcp_server_compaction.protocol.resources import APP_URIS
from mcp_server_compaction.protocol.schemas import (
    MAX_READ_CHARS,
    CompactArguments,
    CompactReply,
    PersistArguments,
    PersistReply,
    ReadArguments,
    SearchArguments,
    SearchReply,
)
from mcp_server_compaction.protocol.texts import texts
from mcp_server_compaction.protocol.tools.replies import failure

# Claude Code truncates longer results. It accepts at most 500,000 characters.
MAX_LIST_CHARS = 500_000


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool. Its module in this package, and the function that runs it, have its name.

    Attributes:
        arguments: Model of the arguments.
        reply: Model of the structured reply. None if the tool returns text only.
        is_read_only: Whether the tool writes nothing to the archive.
        meta: Hints for some hosts. "ui" names the page that a host with MCP Apps shows.
    """

    arguments: type[Arguments]
    reply: type[BaseModel] | None
    is_read_only: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


TOOLS: Mapping[str, ToolSpec] = {
    "compact_messages": ToolSpec(
        CompactArguments,
        CompactReply,
        meta={
            "anthropic/maxResultSizeChars": MAX_LIST_CHARS,
            "ui": {"resourceUri": APP_URIS["compact_messages"]},
        },
    ),
    "persist_large_output": ToolSpec(PersistArguments, PersistReply),
    "read_persisted_output": ToolSpec(
        ReadArguments,
        None,
        is_read_only=True,
        meta={"anthropic/maxResultSizeChars": MAX_READ_CHARS},
    ),
    "search_transcript": ToolSpec(
        SearchArguments,
        SearchReply,
        is_read_only=True,
        meta={"ui": {"resourceUri": APP_URIS["search_transcript"]}},
    ),
}


@cache  # because building the schemas would delay the start of the server
def tool_definitions() -> tuple[Tool, ...]:
    """Return the tools as clients see them."""
    return tuple(
        Tool(
            name=name,
            **texts()["tools"][name],
            input_schema=short_schema(tool.arguments, without=BOUNDS),
            output_schema=short_schema(tool.reply) if tool.reply else None,
            annotations=ToolAnnotations(
                read_only_hint=tool.is_read_only,
                destructive_hint=None if tool.is_read_only else False,
                idempotent_hint=True,
                open_world_hint=False,
            ),
            _meta=dict(tool.meta) or None,
        )
        for name, tool in TOOLS.items()
    )


async def list_tools(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListToolsResult:
    """Handle `tools/list`."""
    return ListToolsResult(tools=list(tool_definitions()))


async def call_tool(context: RequestContext, params: CallToolRequestParams) -> CallToolResult:
    """Handle `tools/call`. Return an expected failure as a result that the model can read.

    All other exceptions are faults of the server. The middleware logs them and replies with an
    internal error.

    Raises:
        MCPError: The tool does not exist. The specification wants a protocol error in this case.
    """
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, unknown_name("tool", params.name, TOOLS))
    values = (params.arguments or {}) | lists_of(context.request).arguments
    try:
        arguments = parse_arguments(tool.arguments, values)
        # Import a tool's code on its first call, because hosts wait for the tool list.
        handler = getattr(import_module(f"{__name__}.{params.name}"), params.name)
        result: CallToolResult = await handler(context, arguments)
    except (ToolError, CompactionError) as error:
        from mcp_server_compaction.operations.telemetry import count_archive_error

        count_archive_error(error)
        return failure(error, is_read_only=tool.is_read_only)
    return result
