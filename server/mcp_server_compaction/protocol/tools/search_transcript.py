"""Tool `search_transcript`: search the archived messages and outputs."""

from bisect import bisect_left
from collections.abc import Set
from dataclasses import replace
from functools import partial
from itertools import chain, repeat

from anyio import to_thread
from context_compaction import (
    PASSAGE_CHARS,
    Archive,
    NotFoundError,
    Query,
    SearchPage,
    compact_json,
    counter_for,
)
from mcp_types import CallToolResult

from mcp_server_compaction.hosts.session_imports import SEARCH_SECONDS
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import SearchArguments, SearchReply
from mcp_server_compaction.protocol.searching import query_of, search_reply
from mcp_server_compaction.protocol.tools.replies import MAX_REPLY_CHARS, structured
from mcp_server_compaction.reading.text_source import find_session

# Limit for a reply with the default number of hits. With 2,000 tokens, one search of three had to
# be followed by another; with 2,400, one search of four. Ten hits take about 1,900 tokens.
REPLY_TOKENS = 2_400

# Lengths of the passages relative to the first: the best hits mostly contain the answer, and short
# passages are enough to decide whether to read the other hits.
_SHARES = (1.0, 1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.35)
# Tool output gets a shorter passage than messages, because messages answer questions more often.
_TOOL_SHARE = 0.6
_FIRST_CHARS = range(40, int(PASSAGE_CHARS / _TOOL_SHARE) + 1, 20)


async def search_transcript(context: RequestContext, arguments: SearchArguments) -> CallToolResult:
    """Run a search and return one page of hits."""
    query = query_of(arguments)
    deps = context.lifespan_context
    await deps.imports.catch_up(SEARCH_SECONDS)
    archive = await deps.archive()
    if query.session_id is not None:
        query = replace(query, session_id=await find_session(archive, query.session_id))
    return structured(await search_briefly(archive, query), truncate=False)


async def search_briefly(archive: Archive, query: Query) -> SearchReply:
    """Return the hits of a query within `REPLY_TOKENS` and `MAX_REPLY_CHARS`.

    A query for more hits than the default gets proportionally more. The passages are as long as the
    limits allow, longest for the best hits. If even the shortest passages exceed the limits (IDs
    may have 128 characters), the page has fewer hits and its cursor continues after them.

    Raises:
        ArchiveError: The search fails.
    """
    default_hits: int = SearchArguments.model_fields["limit"].default
    factor = max(1.0, query.limit / default_hits)
    while True:
        page = await archive.search(query)
        try:
            # The pointers of a session with several branches must name a branch.
            sessions = {hit.session_id for hit in page.hits}
            branched = {s for s in sessions if (await archive.branches(s, limit=1))[1] > 1}
        except NotFoundError:
            continue  # A session was deleted since the search, so search again without it.
        reply = await to_thread.run_sync(partial(_fitted_reply, page, branched, factor))
        if reply is not None:
            return reply
        query = replace(query, limit=query.limit - max(1, query.limit // 4))


def _fitted_reply(page: SearchPage, branched: Set[str], factor: float) -> SearchReply | None:
    """Return the page with the longest passages that fit. None if the shortest do not fit."""
    count = counter_for("gpt-4o").text  # plain o200k: the limit is the same for every caller
    shares = [
        share * (_TOOL_SHARE if hit.role == "tool" else 1.0)
        for hit, share in zip(page.hits, chain(_SHARES, repeat(_SHARES[-1])), strict=False)
    ]

    def reply_with(first_chars: int) -> SearchReply:
        return search_reply(page, [max(30, int(share * first_chars)) for share in shares], branched)

    def is_too_long(first_chars: int) -> bool:
        text = compact_json(reply_with(first_chars).model_dump(mode="json", exclude_none=True))
        return len(text) > MAX_REPLY_CHARS * factor or count(text) > REPLY_TOKENS * factor

    index = bisect_left(_FIRST_CHARS, True, key=is_too_long)
    if index == 0 and len(page.hits) > 1:
        return None
    return reply_with(_FIRST_CHARS[max(0, index - 1)])
