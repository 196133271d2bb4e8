"""The tools' handlers: the one place where a call comes in and an error goes out."""

import logging

from context_compaction import CompactionError
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from mcp_server_compaction.protocol.arguments import Arguments, parse_arguments, unknown_name
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.http_bodies import arguments_of
from mcp_server_compaction.protocol.schemas import (
    CompactArguments,
    PersistArguments,
    ReadArguments,
    SearchArguments,
)
from mcp_server_compaction.protocol.tools.answers import failure
from mcp_server_compaction.protocol.tools.definitions import TOOLS, tool_definitions

_logger = logging.getLogger(__name__)


async def list_tools(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListToolsResult:
    """Handle `tools/list`; four tools are one page."""
    return ListToolsResult(tools=list(tool_definitions()))


async def call_tool(
    context: RequestContext, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
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
        return await _run(context, parse_arguments(tool.arguments, given))
    except (ToolError, CompactionError) as error:
        _logger.info("Tool %r failed: %r", params.name, str(error))
        from mcp_server_compaction.operations.telemetry import count_archive_error

        count_archive_error(error)
        return failure(error)


async def _run(
    context: RequestContext, arguments: Arguments
) -> CallToolResult | InputRequiredResult:
    """Do the work. What a tool needs is loaded by its first call: hosts wait for the tool list."""
    match arguments:
        case CompactArguments():
            from mcp_server_compaction.protocol.tools.compact_messages import compact_messages

            return await compact_messages(context, arguments)
        case PersistArguments():
            from mcp_server_compaction.protocol.tools.persist_large_output import (
                persist_large_output,
            )

            return await persist_large_output(context, arguments)
        case ReadArguments():
            from mcp_server_compaction.protocol.tools.read_persisted_output import (
                read_persisted_output,
            )

            return await read_persisted_output(context, arguments)
        case SearchArguments():
            from mcp_server_compaction.protocol.searching import search_transcript

            return await search_transcript(context, arguments)
        case _:
            raise TypeError(f"No tool takes {type(arguments).__name__}.")
