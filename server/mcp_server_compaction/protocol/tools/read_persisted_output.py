"""Tool `read_persisted_output`: read archived content exactly."""

from context_compaction import Archive
from mcp_types import CallToolResult, TextContent

from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import ReadArguments
from mcp_server_compaction.protocol.tools.replies import escape_surrogates
from mcp_server_compaction.reading.slices import read_part
from mcp_server_compaction.reading.text_source import open_source


async def read_persisted_output(
    context: RequestContext, arguments: ReadArguments
) -> CallToolResult:
    """Handle a call of the tool."""
    return await read_output(await context.lifespan_context.archive(), arguments)


async def read_output(archive: Archive, arguments: ReadArguments) -> CallToolResult:
    """Return the requested text alone, and in a second block which part of the whole it is.

    The reply has no structured content, because hosts that prefer structured content would show the
    text escaped, or not at all.

    Raises:
        CompactionError: The content or the requested part of it does not exist.
    """
    as_json = bool(arguments.as_json) or arguments.json_path is not None
    source = await open_source(archive, arguments.output_id, as_json=as_json)
    part = await read_part(source, arguments)
    text, note = escape_surrogates(part.text), part.note
    if text != part.text:
        note += " Halves of surrogate pairs are escaped as \\udxxx."
    return CallToolResult(
        content=[
            TextContent(type="text", text=text),
            TextContent(type="text", text=f"[{source.pointer}: {note}{source.gap}]"),
        ]
    )
