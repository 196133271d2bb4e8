"""Tool: find what was written or printed, in messages and in stored outputs."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from itertools import chain, islice, repeat

from context_compaction.archive import Archive, Query, SearchPage
from context_compaction.archive.snippets import PASSAGE_CHARS
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import compact_json
from mcp_types import CallToolResult

from mcp_server_compaction.hosts.session_imports import SEARCH_SECONDS
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.reply_size import most_tokens
from mcp_server_compaction.protocol.schemas import SearchAnswer, SearchArguments
from mcp_server_compaction.protocol.searching import query_of, search_answer
from mcp_server_compaction.protocol.tools.answers import MAX_ANSWER_CHARS, structured

# A reply stands in a context from then on, and so does the next where this one does not answer:
# with 2,000 one search of three did not, with 2,400 one of four. Ten hits have some 1,900.
REPLY_TOKENS = 2_400
USUAL_HITS = 10

# The lengths of the passages beside the first: the best have the answer, mostly, and of the others
# what tells whether to read on.
_SHARES = (1.0, 1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.35)
# What a tool printed has so much of its share: what was said about it answers more often.
_PRINTED_SHARE = 0.6
_LEAST_CHARS = 30
_FIRST_CHARS = range(40, int(PASSAGE_CHARS / _PRINTED_SHARE) + 1, 20)

_Answered = Callable[[int], SearchAnswer]


async def search_transcript(context: RequestContext, arguments: SearchArguments) -> CallToolResult:
    """Run one search and answer with its page of hits."""
    query = query_of(arguments)
    deps = context.lifespan_context
    await deps.imports.catch_up(SEARCH_SECONDS)
    archive = await deps.archive()
    return structured(await search_briefly(archive, query), cut=False)


async def search_briefly(archive: Archive, query: Query) -> SearchAnswer:
    """The answer to a query within `REPLY_TOKENS` and `MAX_ANSWER_CHARS`.

    More hits than usual have more in proportion. The passages are as long as that allows, those of
    the best hits longest. Where even the shortest are too long (ids may have 128 characters), there
    are fewer hits, and the cursor goes on after them.

    Raises:
        ArchiveError: The search fails.
    """
    from mcp_server_compaction.reading.edit_marks import edit_marks  # replay is heavy

    pages = max(query.limit, USUAL_HITS) / USUAL_HITS
    while True:
        page = await archive.search(query)
        try:
            marks = await edit_marks(archive, page.hits)
            branched = await _branched(archive, {hit.session_id for hit in page.hits})
        except NotFoundError:
            continue  # a session was deleted since: nothing of it is found again

        answered = partial(_answer, page, marks, branched)

        def is_too_long(first_chars: int, answered: _Answered = answered) -> bool:
            answer = answered(first_chars).model_dump(mode="json", exclude_none=True)
            text = compact_json(answer)
            return most_tokens(text) > REPLY_TOKENS * pages or len(text) > MAX_ANSWER_CHARS * pages

        too_long = bisect_left(_FIRST_CHARS, True, key=is_too_long)
        if too_long or query.limit == 1:
            return answered(_FIRST_CHARS[max(0, too_long - 1)])
        query = replace(query, limit=query.limit - max(1, query.limit // 4))


def _answer(
    page: SearchPage, marks: Mapping[int, str], branched: Set[str], first_chars: int
) -> SearchAnswer:
    shares = islice(chain(_SHARES, repeat(_SHARES[-1])), len(page.hits))
    chars = [
        max(_LEAST_CHARS, int(share * (_PRINTED_SHARE if hit.role == "tool" else 1) * first_chars))
        for hit, share in zip(page.hits, shares, strict=True)
    ]
    return search_answer(page, chars, marks, branched)


async def _branched(archive: Archive, sessions: Set[str]) -> set[str]:
    """The sessions of several branches: there a pointer names its own."""
    return {name for name in sessions if (await archive.branches(name, limit=1))[1] > 1}
