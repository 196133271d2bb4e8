"""The four tools: as hosts and models see them, and where a call comes in and an error goes out.

A host asks for them at its start: nothing of the engine is imported here. Name, description and
input schema are in every context on every turn; a test counts their tokens.
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
    DEFAULTS_AND_BOUNDS,
    Arguments,
    parse_arguments,
    short_schema,
    unknown_name,
)
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.http_bodies import arguments_of
from mcp_server_compaction.protocol.resources import APP_URIS
from mcp_server_compaction.protocol.schemas import (
    MAX_READ_CHARS,
    CompactAnswer,
    CompactArguments,
    PersistAnswer,
    PersistArguments,
    ReadArguments,
    SearchAnswer,
    SearchArguments,
)
from mcp_server_compaction.protocol.tools.answers import failure

# Claude Code cuts longer results unless told; 500,000 is the most that it grants.
MAX_LIST_CHARS = 500_000


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool.

    Attributes:
        name: As the model calls it; also of the module and the function that answer.
        title: For people.
        description: For the model; counted in the budget of the tool list.
        arguments: The model of its input.
        is_read_only: Whether it writes nothing to the archive.
        answer: The model of its structured answer; None for a tool that answers with text.
        meta: Hints for single hosts; "ui" is what a host with MCP Apps shows beside the answer.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    is_read_only: bool = False
    answer: type[BaseModel] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


_SPECS = (
    ToolSpec(
        name="compact_messages",
        title="Compact messages",
        description="Make a conversation fit its context window: archive it, clear old tool "
        "results, then summarize history if needed. Pointers to the originals stay.",
        arguments=CompactArguments,
        answer=CompactAnswer,
        meta={
            "anthropic/maxResultSizeChars": MAX_LIST_CHARS,
            "ui": {"resourceUri": APP_URIS["compact_messages"]},
        },
    ),
    ToolSpec(
        name="persist_large_output",
        title="Persist a large output",
        description="Store a large tool output; put the short marker with a preview in its place.",
        arguments=PersistArguments,
        answer=PersistAnswer,
    ),
    ToolSpec(
        name="read_persisted_output",
        title="Read a persisted output",
        description="Read a stored output, messages, a file or the work on a plan item exactly.",
        arguments=ReadArguments,
        is_read_only=True,
        meta={"anthropic/maxResultSizeChars": MAX_READ_CHARS},
    ),
    ToolSpec(
        name="search_transcript",
        title="Search transcripts",
        description="Find what left your context in archived messages and outputs. "
        "words: any of them, best first.",
        arguments=SearchArguments,
        is_read_only=True,
        answer=SearchAnswer,
        meta={"ui": {"resourceUri": APP_URIS["search_transcript"]}},
    ),
)
TOOLS: Mapping[str, ToolSpec] = {tool.name: tool for tool in _SPECS}


@cache  # made for the first client that asks, not at start-up
def tool_definitions() -> tuple[Tool, ...]:
    """The tools as clients see them."""
    return tuple(
        Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=short_schema(tool.arguments, without=DEFAULTS_AND_BOUNDS),
            output_schema=short_schema(tool.answer) if tool.answer else None,
            annotations=ToolAnnotations(
                read_only_hint=tool.is_read_only,
                destructive_hint=None if tool.is_read_only else False,
                idempotent_hint=True,
                open_world_hint=False,
            ),
            _meta=dict(tool.meta) or None,
        )
        for tool in _SPECS
    )


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
        return failure(error, is_read_only=tool.is_read_only)
    return result
