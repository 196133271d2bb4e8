"""The four tools, and the one place where a call comes in and an error goes out."""

import logging
from functools import cache

from context_compaction.errors import CompactionError
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)

from mcp_server_compaction.protocol.arguments import parse_arguments, short_schema, unknown_name
from mcp_server_compaction.protocol.tools.compact_messages import COMPACT_MESSAGES
from mcp_server_compaction.protocol.tools.persist_large_output import PERSIST_LARGE_OUTPUT
from mcp_server_compaction.protocol.tools.read_persisted_output import READ_PERSISTED_OUTPUT
from mcp_server_compaction.protocol.tools.search_transcript import SEARCH_TRANSCRIPT
from mcp_server_compaction.protocol.tools.spec import RequestContext, ToolSpec, failure

__all__ = ["TOOLS", "call_tool", "list_tools", "tool_definitions"]

TOOLS = {
    tool.name: tool
    for tool in (
        COMPACT_MESSAGES,
        PERSIST_LARGE_OUTPUT,
        READ_PERSISTED_OUTPUT,
        SEARCH_TRANSCRIPT,
    )
}

_logger = logging.getLogger(__name__)


@cache  # made for the first client that asks, not at start-up
def tool_definitions() -> tuple[Tool, ...]:
    """The tools as clients see them."""
    return tuple(_definition(tool) for tool in TOOLS.values())


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
    try:
        arguments = parse_arguments(tool.arguments, params.arguments or {})
        return await tool.run(context, arguments)
    except (ToolError, CompactionError) as error:
        _logger.info("Tool %r failed: %r", params.name, str(error))
        return failure(error)


def _definition(tool: ToolSpec) -> Tool:
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=short_schema(tool.arguments),
        output_schema=short_schema(tool.answer) if tool.answer else None,
        annotations=tool.annotations,
        _meta=dict(tool.meta) or None,
    )
