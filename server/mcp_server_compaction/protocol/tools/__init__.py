"""The tools' handlers: the one place where a call comes in and an error goes out."""

from importlib import import_module

from context_compaction import CompactionError
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from mcp_server_compaction.protocol.arguments import parse_arguments, unknown_name
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.http_bodies import arguments_of
from mcp_server_compaction.protocol.tools.answers import failure
from mcp_server_compaction.protocol.tools.definitions import TOOLS, tool_definitions


async def list_tools(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListToolsResult:
    """Handle `tools/list`; four tools are one page."""
    return ListToolsResult(tools=list(tool_definitions()))


async def call_tool(context: RequestContext, params: CallToolRequestParams) -> CallToolResult:
    """Handle `tools/call`: an expected failure becomes a result that the model can read.

    An unknown tool is an error of the protocol, as the specification has it: a result would say
    that a tool ran. Anything else is a fault of ours; the SDK logs it and answers with an internal
    error.
    """
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, unknown_name("tool", params.name, TOOLS))
    given = arguments_of(context.request, params.arguments or {})
    try:
        arguments = parse_arguments(tool.arguments, given)
        # What a tool needs is loaded by its first call: hosts wait for the tool list.
        handler = getattr(import_module(f"{__name__}.{tool.name}"), tool.name)
        result: CallToolResult = await handler(context, arguments)
    except (ToolError, CompactionError) as error:
        from mcp_server_compaction.operations.telemetry import count_archive_error

        count_archive_error(error)
        return failure(error)
    return result
