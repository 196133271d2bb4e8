"""Tool: find what was written or printed, in messages and in stored outputs."""

from dataclasses import replace

from context_compaction.archive import Archive, Query
from mcp_types import CallToolResult

from mcp_server_compaction.hosts.session_imports import SEARCH_SECONDS
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.reply_size import most_tokens
from mcp_server_compaction.protocol.schemas import SearchAnswer, SearchArguments
from mcp_server_compaction.protocol.searching import SnippetSizes, query_of, search_answer
from mcp_server_compaction.protocol.tools.answers import dump, structured

# A reply stands in a context from then on. Ten hits of English prose have some 1,600 tokens.
REPLY_TOKENS = 2_000
USUAL_HITS = 10

# The best hits as whole passages, which mostly answer; of the others what tells whether to read on.
_SIZES = (
    *(SnippetSizes(first, 900, 240) for first in (10, 6, 5, 4)),
    SnippetSizes(4, 900, 150),
    SnippetSizes(4, 750, 120),
    SnippetSizes(4, 600, 100),
    SnippetSizes(3, 600, 90),
    SnippetSizes(3, 450, 80),
    SnippetSizes(2, 450, 70),
    SnippetSizes(1, 240, 60),
    SnippetSizes(0, 30, 30),
)


async def search_transcript(context: RequestContext, arguments: SearchArguments) -> CallToolResult:
    """Run one search and answer with its page of hits."""
    query = query_of(arguments)
    deps = context.lifespan_context
    await deps.imports.catch_up(SEARCH_SECONDS)
    archive = await deps.archive()
    return structured(await search_briefly(archive, query))


async def search_briefly(archive: Archive, query: Query) -> SearchAnswer:
    """The answer to a query within `REPLY_TOKENS`, or in proportion for more hits than usual.

    The best hits have whole passages; all are cut around their matches as little as needed. Where
    even that is not enough (ids may have 128 characters), there are fewer hits, and the cursor goes
    on after them.

    Raises:
        ArchiveError: The search fails.
    """
    max_tokens = REPLY_TOKENS * max(query.limit, USUAL_HITS) // USUAL_HITS
    from mcp_server_compaction.reading.edit_marks import edit_marks  # replay is heavy

    while True:
        page = await archive.search(query)
        marks = await edit_marks(archive, page.hits)
        for sizes in _SIZES:
            answer = search_answer(page, sizes, marks)
            text = dump(answer.model_dump(mode="json", exclude_none=True))
            if most_tokens(text) <= max_tokens or query.limit == 1:
                return answer
        query = replace(query, limit=query.limit - max(1, query.limit // 4))
