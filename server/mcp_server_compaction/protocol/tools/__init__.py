"""The four tools: their definitions, the handling of a call, and the form of replies.

Hosts ask for the tool list when they start the server, so this module does not import the engine.
Replies are text, and the same as structured content.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import mcp_types as types
from context_compaction import CompactionError, JsonObject, compact_json, is_list, is_object
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel
from pydantic_core import to_json

from mcp_server_compaction.protocol import schemas
from mcp_server_compaction.protocol.deps import RequestContext, lists_of
from mcp_server_compaction.protocol.resources import APP_URIS, texts

# Claude Code truncates longer results. It accepts at most 500,000 characters.
MAX_LIST_CHARS = 500_000
# Codex truncates a tool result at 12,000 characters and keeps both ends. Other hosts truncate
# shorter results.
MAX_REPLY_CHARS = 8_000
_MIN_FIELDS = 12  # More than any object of the reply's own schema has.


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool. The function that runs it has its name.

    Attributes:
        arguments: Model of the arguments.
        reply: Model of the structured reply. None if the tool returns text only.
        is_read_only: Whether the tool writes nothing to the archive.
        meta: Hints for some hosts. "ui" names the page that a host with MCP Apps shows.
        module: Module of this package with the function.
    """

    arguments: type[schemas.Arguments]
    reply: type[BaseModel] | None
    is_read_only: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    module: str = "archived"


TOOLS: Mapping[str, ToolSpec] = {
    "compact_messages": ToolSpec(
        schemas.CompactArguments,
        schemas.CompactReply,
        meta={
            "anthropic/maxResultSizeChars": MAX_LIST_CHARS,
            "ui": {"resourceUri": APP_URIS["compact_messages"]},
        },
        module="compact_messages",
    ),
    "persist_large_output": ToolSpec(schemas.PersistArguments, schemas.PersistReply),
    "read_persisted_output": ToolSpec(
        schemas.ReadArguments,
        None,
        is_read_only=True,
        meta={"anthropic/maxResultSizeChars": schemas.MAX_READ_CHARS},
    ),
    "search_transcript": ToolSpec(
        schemas.SearchArguments,
        schemas.SearchReply,
        is_read_only=True,
        meta={"ui": {"resourceUri": APP_URIS["search_transcript"]}},
    ),
}


@cache  # because building the schemas would delay the start of the server
def tool_definitions() -> tuple[types.Tool, ...]:
    """Return the tools as clients see them."""
    return tuple(
        types.Tool(
            name=name,
            **texts()["tools"][name],
            input_schema=schemas.short_schema(tool.arguments, without=schemas.BOUNDS),
            output_schema=schemas.short_schema(tool.reply) if tool.reply else None,
            annotations=types.ToolAnnotations(
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
    _context: RequestContext, _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    """Handle `tools/list`."""
    return types.ListToolsResult(tools=list(tool_definitions()))


async def call_tool(
    context: RequestContext, params: types.CallToolRequestParams
) -> types.CallToolResult:
    """Handle `tools/call`. Return an expected failure as a result that the model can read.

    All other exceptions are faults of the server. The middleware logs them and replies with an
    internal error.

    Raises:
        MCPError: The tool does not exist. The specification wants a protocol error in this case.
    """
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, schemas.unknown_name("tool", params.name, TOOLS))
    values = (params.arguments or {}) | lists_of(context.request).arguments
    try:
        arguments = schemas.parse_arguments(tool.arguments, values)
        # Import a tool's code on its first call, because hosts wait for the tool list.
        handler = getattr(import_module(f"{__name__}.{tool.module}"), params.name)
        result: types.CallToolResult = await handler(context, arguments)
    except (ToolError, CompactionError) as error:
        from mcp_server_compaction.protocol.telemetry import count_archive_error

        count_archive_error(error)
        return failure(error, is_read_only=tool.is_read_only)
    return result


def structured(
    reply: BaseModel,
    *,
    lists: Mapping[str, Any] | None = None,
    truncate: bool = True,
    lead: str = "",
) -> types.CallToolResult:
    """Return the reply as structured content and as the same JSON in a text block.

    Hosts show a model only one of the two, so both contain the same information.

    Args:
        reply: The reply. Fields that are None are omitted.
        lists: Message lists and edits, which only the structured content contains, because only
            programs ask for them.
        truncate: Whether to truncate long texts in `reply` to keep it within `MAX_REPLY_CHARS`.
        lead: Name of the text field to put first. The other fields are truncated before it.

    Raises:
        ToolError: A value in `lists` contains half of a surrogate pair, which is not valid UTF-8.
    """
    content = reply.model_dump(mode="json", exclude_none=True)
    if lead in content:
        text = content.pop(lead)
        content = {lead: text, **truncated(content, MAX_REPLY_CHARS // 5)}
    if truncate:
        content = truncated(content, MAX_REPLY_CHARS)
    if not is_utf8(content):  # Halves of surrogate pairs become question marks.
        content = json.loads(compact_json(content).encode("utf-8", "replace"))
    for name, value in (lists or {}).items():
        if not is_utf8(value):
            raise ToolError(
                f"The {name} contain half of a surrogate pair, which MCP cannot transfer. Call "
                "again with reply='receipt', or use the command line: "
                "mcp-server-compaction compact --out FILE."
            )
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=compact_json(content))],
        structured_content={**content, **(lists or {})},
    )


def failure(error: Exception, *, is_read_only: bool = False) -> types.CallToolResult:
    """Return an expected failure as a result that the model can read."""
    text = escape_surrogates(
        str(error).rstrip() + ("" if is_read_only else " Nothing was changed.")
    )
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def is_utf8(value: Any) -> bool:
    """Whether every string in `value` can be sent as UTF-8, so has no lone surrogates."""
    try:
        to_json(value)
    except ValueError:
        return False
    return True


def escape_surrogates(text: str) -> str:
    r"""Return `text` with each lone surrogate as an escape such as \udc80."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def truncated(value: JsonObject, max_chars: int) -> JsonObject:
    """Return `value` with long texts and lists truncated as little as needed to fit `max_chars`.

    Lists of objects at the top level stay complete, because the reply's schema describes them.
    """
    result, text_chars = value, max_chars
    is_whole = {key: is_list(item) and any(map(is_object, item)) for key, item in value.items()}
    while len(compact_json(result)) > max_chars and text_chars > 1:
        text_chars = text_chars * 3 // 4
        result = {
            key: item if is_whole[key] else _truncate(item, text_chars)
            for key, item in value.items()
        }
    return result


def _truncate(value: Any, max_chars: int) -> Any:
    """Return `value` with texts of at most `max_chars`, and lists of fewer items."""
    max_items = max(2, max_chars // 50)
    if isinstance(value, str) and len(value) > max_chars:
        return f"{value[:max_chars]}… [{len(value) - max_chars} more characters]"
    if is_object(value):
        fields = list(value.items())[: max(_MIN_FIELDS, max_items)]
        result = {key: _truncate(item, max_chars) for key, item in fields}
        return result if len(fields) == len(value) else {**result, "…": f"{len(value)} fields"}
    if is_list(value):
        items = [_truncate(item, max_chars) for item in value[:max_items]]
        return items if len(value) <= max_items else [*items, f"… {len(value) - max_items} more"]
    return value
