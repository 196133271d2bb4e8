"""Tools that read archived content exactly, archive a large output, and search the archive."""

from bisect import bisect_left
from collections.abc import Set
from dataclasses import replace
from functools import partial
from itertools import chain, repeat

from anyio import to_thread
from context_compaction import (
    PASSAGE_CHARS,
    Archive,
    Blob,
    NotFoundError,
    Query,
    SearchPage,
    Settings,
    compact_json,
    counter_for,
    make_blob,
    persisted,
    preview,
    redact,
)
from mcp_types import CallToolResult, TextContent

from mcp_server_compaction.hosts.session_imports import SEARCH_SECONDS
from mcp_server_compaction.protocol import schemas
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.searching import query_of, search_reply
from mcp_server_compaction.protocol.tools import MAX_REPLY_CHARS, escape_surrogates, structured
from mcp_server_compaction.reading.slices import read_part
from mcp_server_compaction.reading.text_source import find_session, open_source

# Session of outputs that belong to no conversation.
OUTPUTS_SESSION = "outputs"
# Tool name in a marker if the call does not name the tool.
UNNAMED_TOOL = "unknown"
# Limit for a reply with the default number of hits. With 2,000 tokens, one search of three had to
# be followed by another; with 2,400, one search of four. Ten hits take about 1,900 tokens.
REPLY_TOKENS = 2_400
# Lengths of the passages relative to the first: the best hits mostly contain the answer, and short
# passages are enough to decide whether to read the other hits.
_SHARES = (1.0, 1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.35)
# Tool output gets a shorter passage than messages, because messages answer questions more often.
_TOOL_SHARE = 0.6
_FIRST_CHARS = range(40, int(PASSAGE_CHARS / _TOOL_SHARE) + 1, 20)


async def read_persisted_output(
    context: RequestContext, arguments: schemas.ReadArguments
) -> CallToolResult:
    """Handle a call of the tool."""
    return await read_output(await context.lifespan_context.archive(), arguments)


async def read_output(archive: Archive, arguments: schemas.ReadArguments) -> CallToolResult:
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


async def persist_large_output(
    context: RequestContext, arguments: schemas.PersistArguments
) -> CallToolResult:
    """Store the output and return its marker. Every size is stored unless a threshold is passed."""
    deps = context.lifespan_context
    threshold_tokens, text = arguments.threshold_tokens, arguments.output
    if text is None:
        text = await deps.config.roots.read_text(arguments.path or "")
    tokens = await to_thread.run_sync(partial(count_text, text, deps.config.model))
    is_small = threshold_tokens is not None and tokens < threshold_tokens
    reply = schemas.PersistReply(
        persisted=not is_small,
        tokens=tokens,
        size_chars=len(text),
        threshold_tokens=threshold_tokens,
    )
    if is_small:
        reply.note = (
            "Nothing was stored, because the output is smaller than threshold_tokens. Keep the "
            "output, or call again without threshold_tokens to store it."
        )
        return structured(reply)
    archive = await deps.archive()
    if archive.redaction == "on":  # so that the preview shows no secret
        text = await to_thread.run_sync(redact, text)
    blob = make_blob(text, tool_name=arguments.tool_name, call_id=arguments.tool_call_id)
    reply.session_id = arguments.session_id or OUTPUTS_SESSION
    await archive.commit(reply.session_id, blobs=[blob])
    await deps.changes.listed(context.session, reply.session_id)
    preview_chars = arguments.preview_chars
    if preview_chars is None:
        preview_chars = Settings().preview_chars
    reply.output_id, reply.size_bytes = blob.output_id, len(blob.data)
    reply.line_count = (await archive.output_info(blob.output_id)).line_count
    reply.marker = marker_of(blob, text, arguments.tool_name or UNNAMED_TOOL, preview_chars)
    # The marker is whole, because the caller puts it into its context.
    return structured(reply, truncate=False)


def count_text(text: str, model: str | None) -> int:
    """Return the tokens of `text`. Call it in a thread, because the first call is slow."""
    return counter_for(model).text(text)


def marker_of(blob: Blob, text: str, tool_name: str, preview_chars: int) -> str:
    """Return the marker that replaces a stored text, in the form that compaction uses."""
    return persisted([blob], preview(text, max_chars=preview_chars), tool_name, len(text))


async def search_transcript(
    context: RequestContext, arguments: schemas.SearchArguments
) -> CallToolResult:
    """Run a search and return one page of hits."""
    query = query_of(arguments)
    deps = context.lifespan_context
    await deps.imports.catch_up(SEARCH_SECONDS)
    archive = await deps.archive()
    if query.session_id is not None:
        query = replace(query, session_id=await find_session(archive, query.session_id))
    return structured(await search_briefly(archive, query), truncate=False)


async def search_briefly(archive: Archive, query: Query) -> schemas.SearchReply:
    """Return the hits of a query within `REPLY_TOKENS` and `MAX_REPLY_CHARS`.

    A query for more hits than the default gets proportionally more. The passages are as long as the
    limits allow, longest for the best hits. If even the shortest passages exceed the limits (IDs
    may have 128 characters), the page has fewer hits and its cursor continues after them.

    Raises:
        ArchiveError: The search fails.
    """
    default_hits: int = schemas.SearchArguments.model_fields["limit"].default
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


def _fitted_reply(
    page: SearchPage, branched: Set[str], factor: float
) -> schemas.SearchReply | None:
    """Return the page with the longest passages that fit. None if the shortest do not fit."""
    count = counter_for("gpt-4o").text  # plain o200k: the limit is the same for every caller
    shares = [
        share * (_TOOL_SHARE if hit.role == "tool" else 1.0)
        for hit, share in zip(page.hits, chain(_SHARES, repeat(_SHARES[-1])), strict=False)
    ]

    def reply_with(first_chars: int) -> schemas.SearchReply:
        return search_reply(page, [max(30, int(share * first_chars)) for share in shares], branched)

    def is_too_long(first_chars: int) -> bool:
        text = compact_json(reply_with(first_chars).model_dump(mode="json", exclude_none=True))
        return len(text) > MAX_REPLY_CHARS * factor or count(text) > REPLY_TOKENS * factor

    index = bisect_left(_FIRST_CHARS, True, key=is_too_long)
    if index == 0 and len(page.hits) > 1:
        return None
    return reply_with(_FIRST_CHARS[max(0, index - 1)])
