"""The search page: the tool's search, with passages and filters."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from context_compaction import PASSAGE_CHARS, CompactionError, Hit
from markupsafe import Markup, escape

from mcp_server_compaction.protocol.arguments import parse_arguments
from mcp_server_compaction.protocol.schemas import SearchArguments
from mcp_server_compaction.protocol.tools.search_transcript import (
    missing_terms_note,
    query_of,
    search_reply,
)
from mcp_server_compaction.viewer.markup import replaced
from mcp_server_compaction.viewer.web import Page, Visit, failure

_FIELDS = {"q": "query", "session": "session_id", "role": "role", "tool": "tool", "path": "path",
           "since": "since", "until": "until", "kind": "kind", "order": "order",
           "cursor": "cursor"}  # fmt: skip
_WORD = re.compile(r"[^\W_]{2,}")
HITS = 20


async def search(visit: Visit) -> Page:
    """`/search?q=…`: hits, best or newest first."""
    query = visit.query
    shown: dict[str, Any] = {name: query.get(name, "") for name in _FIELDS}
    if not query.get("q", "").strip():
        return Page("search.html", {"hits": [], "note": ""}, {"asked": shown, "hits": None})
    wanted = {_FIELDS[name]: text for name, text in query.items() if name in _FIELDS}
    try:
        arguments = parse_arguments(SearchArguments, wanted | {"limit": HITS})
        page = await visit.archive.search(query_of(arguments))
    except CompactionError as error:
        # With the form as it was filled in, to be corrected.
        page_of_failure = failure(error)
        shown_again = {"asked": shown, "hits": None, "problem": page_of_failure.document["error"]}
        return replace(page_of_failure, template="search.html", shown=shown_again)
    answer = search_reply(page, [PASSAGE_CHARS] * len(page.hits))
    more = None
    if answer.next_cursor:
        kept = {name: text for name, text in query.items() if name in _FIELDS}
        more = f"/search?{urlencode(kept | {'cursor': answer.next_cursor})}"
    marks = _words_of(arguments.query) if arguments.kind != "regex" else []
    hits = [
        {"hit": hit, "address": _address_of(hit), "html": _marked(hit.snippet, marks)}
        for hit in page.hits
    ]
    return Page(
        "search.html",
        answer.model_dump(mode="json", exclude_none=True) | {"next_page": more},
        {"asked": shown, "hits": hits, "more": more, "unfound": missing_terms_note(page)},
    )


def _address_of(hit: Hit) -> str:
    """The address of the page that contains a hit."""
    if hit.kind == "output":
        line = hit.line or 1
        start = max(1, line - 20)
        output_id = hit.pointer.removeprefix("output://")
        return f"/outputs/{quote(output_id)}?start={start}#L{line}"
    return f"/sessions/{quote(hit.session_id)}?at={hit.seq}#m{hit.seq}"


def _marked(text: str, words: Sequence[str]) -> Markup:
    """The text with the words that were asked for marked."""
    if not words:
        return escape(text)
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    return replaced(text, pattern, lambda found: Markup("<mark>{}</mark>").format(found[0]))


def _words_of(query: str) -> list[str]:
    return sorted(set(_WORD.findall(query)), key=len, reverse=True)[:40]
