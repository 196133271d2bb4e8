"""The search page: the search tool with filters and whole passages."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from context_compaction import PASSAGE_CHARS, Archive, CompactionError, Hit
from markupsafe import Markup, escape

from mcp_server_compaction.protocol.arguments import parse_arguments
from mcp_server_compaction.protocol.schemas import SearchArguments
from mcp_server_compaction.protocol.searching import missing_terms_note, query_of, search_reply
from mcp_server_compaction.viewer.marks import mark_of, output_mark, read_compactions
from mcp_server_compaction.viewer.markup import with_matches
from mcp_server_compaction.viewer.web import Page, PageRequest, error_page

_WORD = re.compile(r"[^\W_]{2,}")
HITS_PER_PAGE = 20


async def search(request: PageRequest) -> Page:
    """`/search?query=WORDS`: hits, best or newest first. Fields are arguments of the tool."""
    empty = dict.fromkeys(SearchArguments.model_fields, "")
    fields = {name: text for name, text in request.query.items() if name in empty}
    values: dict[str, Any] = {"fields": empty | fields, "hits": None}
    if not fields.get("query", "").strip():
        return Page("search.html", {"hits": [], "note": ""}, values)
    try:
        arguments = parse_arguments(SearchArguments, fields | {"limit": HITS_PER_PAGE})
        found = await request.archive.search(query_of(arguments))
    except CompactionError as error:
        # The form keeps its values, so that they can be corrected.
        page = error_page(error)
        message = {"problem": page.document["error"]}
        return replace(page, template="search.html", values=values | message)
    reply = search_reply(found, [PASSAGE_CHARS] * len(found.hits))
    next_page = None
    if reply.next_cursor:
        next_page = f"/search?{urlencode(fields | {'cursor': reply.next_cursor})}"
    words = set(_WORD.findall(arguments.query)) if arguments.kind != "regex" else ()
    document = reply.model_dump(mode="json", exclude_none=True) | {"next_page": next_page}
    values |= {
        "hits": await _hit_values(request.archive, found.hits, words),
        "missing_terms": missing_terms_note(found),
    }
    return Page("search.html", document, values)


async def _hit_values(
    archive: Archive, hits: Sequence[Hit], words: Collection[str]
) -> list[dict[str, object]]:
    """Return each hit with its address, its passage, its session, and what became of it."""
    session_ids = {hit.session_id for hit in hits}
    infos = {name: await archive.session_info(name) for name in session_ids}
    compactions = {name: await read_compactions(archive, name) for name in session_ids}
    return [
        {
            "hit": hit,
            "address": _address_of(hit),
            "html": _with_marks(hit.snippet, words),
            "info": infos[hit.session_id],
            "mark": mark_of(hit.seq, compactions[hit.session_id])
            if hit.kind == "message"
            else output_mark(hit.pointer.removeprefix("output://"), compactions[hit.session_id]),
        }
        for hit in hits
    ]


def _address_of(hit: Hit) -> str:
    """Return the address of the page that contains a hit."""
    if hit.kind == "output":
        line = hit.line or 1
        start = max(1, line - 20)
        output_id = hit.pointer.removeprefix("output://")
        return f"/outputs/{quote(output_id)}?start={start}#L{line}"
    return f"/sessions/{quote(hit.session_id)}?at={hit.seq}#m{hit.seq}"


def _with_marks(text: str, words: Collection[str]) -> Markup:
    """Render a text with the words of the query marked."""
    if not words:
        return escape(text)
    longest_first = sorted(words, key=len, reverse=True)[:40]
    pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
    return with_matches(text, pattern, lambda match: Markup("<mark>{}</mark>").format(match[0]))
