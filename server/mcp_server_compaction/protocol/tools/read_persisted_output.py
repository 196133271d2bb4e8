"""Tool: read back what left the context, exactly."""

from context_compaction import Archive
from mcp_types import CallToolResult, TextContent

from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import ReadArguments
from mcp_server_compaction.protocol.tools.answers import is_utf8, sendable
from mcp_server_compaction.reading.slices import TextPart, read_part
from mcp_server_compaction.reading.text_source import open_source


async def read_persisted_output(
    context: RequestContext, arguments: ReadArguments
) -> CallToolResult:
    """Handle a call of the tool."""
    return await read_output(await context.lifespan_context.archive(), arguments)


async def read_output(archive: Archive, arguments: ReadArguments) -> CallToolResult:
    """The text asked for alone, and in a second block what part it is.

    There is no structured content: hosts that prefer it would show the text escaped, or not at all.

    Raises:
        CompactionError: There is no such output, or no such part of it.
    """
    as_json = bool(arguments.as_json) or arguments.json_path is not None
    source = await open_source(archive, arguments.output_id, as_json=as_json)
    part = _sendable_part(await read_part(source, arguments))
    return CallToolResult(
        content=[
            TextContent(type="text", text=part.text),
            TextContent(type="text", text=f"[{source.pointer}: {part.note}{source.gap}]"),
        ]
    )


def _sendable_part(part: TextPart) -> TextPart:
    """`part`, with lone surrogates spelt out if it has any: UTF-8 cannot carry them."""
    if is_utf8(part.text):
        return part
    note = f"{part.note} Halves of surrogate pairs are spelt out as \\udxxx."
    return TextPart(sendable(part.text), note)
