"""Tool: find what was said or printed, in messages and in stored outputs."""

from mcp_types import CallToolResult, ToolAnnotations

from mcp_server_compaction.schemas import SearchAnswer, SearchArguments
from mcp_server_compaction.searching import query_of, search_briefly
from mcp_server_compaction.tools.spec import RequestContext, ToolSpec, structured


async def search_transcript(context: RequestContext, arguments: SearchArguments) -> CallToolResult:
    """Run one search and answer with its page of hits."""
    query = query_of(arguments)
    archive = await context.lifespan_context.archive()
    return structured(await search_briefly(archive, query))


SEARCH_TRANSCRIPT = ToolSpec(
    name="search_transcript",
    title="Search transcripts",
    description="Find what left your context: messages and stored outputs of archived sessions. "
    "words: any of them, best first.",
    arguments=SearchArguments,
    answer=SearchAnswer,
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    run=search_transcript,
)
