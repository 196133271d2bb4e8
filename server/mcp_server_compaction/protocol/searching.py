"""Search arguments as a query of the archive, and its hits as a reply.

The command line and the viewer use this module as well, so it does not import the MCP SDK: the
import takes longer than a search.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from context_compaction import (
    MAX_HITS_PER_OUTPUT,
    TERMINAL_CODE,
    Hit,
    Query,
    QueryError,
    SearchPage,
    passage_span,
)

from mcp_server_compaction.protocol import schemas
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.reading.slices import DEFAULT_CHARS

_MINUTE_CHARS = len("2026-01-31T14:30")


def query_of(arguments: schemas.SearchArguments) -> Query:
    """Return the archive's query for `arguments`.

    Raises:
        QueryError: A time is invalid, or `since` is later than `until`.
    """
    since = _seconds("since", arguments.since)
    until = _seconds("until", arguments.until)
    if since is not None and until is not None and since > until:
        raise QueryError(f"since ({arguments.since}) is later than until ({arguments.until}).")
    # The archive rejects an invalid ID such as "@x", so "@x" is passed on unchanged.
    session_id, _, head = (arguments.session_id or "").partition("@")
    # The remaining arguments have the same names in a query.
    filters = arguments.model_dump(exclude={"query", "session_id", "since", "until"})
    return Query(
        text=arguments.query,
        session_id=session_id or arguments.session_id,
        head=head or None,
        since_seconds=since,
        until_seconds=until,
        **filters,
    )


def search_reply(
    page: SearchPage, passage_chars: Sequence[int], branched: Collection[str] = ()
) -> schemas.SearchReply:
    """Return a page of hits as the tool's reply.

    Args:
        page: The hits.
        passage_chars: Maximum length of each hit's passage in characters.
        branched: IDs of sessions with several branches; the pointers of their messages name the
            branch.

    Raises:
        ValueError: `passage_chars` does not have one length for each hit.
    """
    return schemas.SearchReply(
        hits=[
            _hit(hit, max_chars, hit.session_id in branched)
            for hit, max_chars in zip(page.hits, passage_chars, strict=True)
        ],
        total=page.total,
        total_is_exact=page.total_is_exact,
        next_cursor=page.next_cursor,
        note=_note(page),
    )


def _hit(hit: Hit, max_chars: int, is_branched: bool) -> schemas.SearchHit:
    position = hit.snippet_chars_before
    before = TERMINAL_CODE.sub("", hit.snippet[:position])
    passage = before + TERMINAL_CODE.sub("", hit.snippet[position:])
    start, stop = passage_span(passage, len(before), max_chars)
    is_whole = hit.size_chars == len(hit.snippet) and stop - start == len(passage)
    # The offset is useless if one read returns the whole text.
    reads_whole = hit.size_chars is not None and hit.size_chars < DEFAULT_CHARS
    following: schemas.NextMessage | None = None
    if hit.next is not None:
        pointer, role = _pointer(hit.next, is_branched), hit.next.role
        snippet = TERMINAL_CODE.sub("", hit.next.snippet)[:max_chars]
        following = schemas.NextMessage(pointer=pointer, role=role, snippet=snippet)
    return schemas.SearchHit(
        pointer=_pointer(hit, is_branched),
        session_id=hit.session_id if hit.kind == "output" else None,
        role=hit.role,
        tool_name=hit.tool_name and hit.tool_name[:64],
        time=iso_time(hit.timestamp_seconds)[:_MINUTE_CHARS],
        line=hit.line,
        offset_chars=None if is_whole or reads_whole else hit.offset_chars,
        size_chars=None if is_whole else hit.size_chars,
        snippet=passage[start:stop],
        note=f"{hit.repeats} more with the same text." if hit.repeats else None,
        next=following,
    )


def _pointer(hit: Hit, is_branched: bool) -> str:
    """Return the shortest pointer of a hit: an output ID, or session, message number and branch."""
    if hit.kind == "output":
        return hit.pointer
    head = f"@{hit.head}" if is_branched and hit.head else ""
    return f"transcript://{hit.session_id}/messages/{hit.seq}{head}"


def missing_terms_note(page: SearchPage) -> str:
    """Return which words have no matches, and whether parts of outputs may be missing.

    The note consists of sentences that end with a blank, or is empty.
    """
    missing, elsewhere = (", ".join(words)[:120] for words in (page.missing_terms, page.elsewhere))
    sentences = [
        f"No matches for: {missing}. " if missing else "",
        f"No matches with these filters, but elsewhere in the archive: {elsewhere}. "
        if elsewhere
        else "",
        "No text contains all of the words; these hits contain some. " if page.has_any else "",
    ]
    hit_counts = Counter(hit.pointer for hit in page.hits if hit.kind == "output")
    if MAX_HITS_PER_OUTPUT in hit_counts.values():
        sentences.append(f"At most {MAX_HITS_PER_OUTPUT} parts of one output are listed. ")
    return "".join(sentences)


def _note(page: SearchPage) -> str:
    if not page.hits and page.next_cursor:
        return (
            "No matches so far: the search stopped at its limit. Pass next_cursor as cursor to "
            "search older messages, or narrow the search with session_id, tool or since."
        )
    if not page.hits:
        note = missing_terms_note(page) or "No matches. "
        return f"{note}Try fewer or other words, or kind='regex'."
    more = " Pass next_cursor as cursor for more." if page.next_cursor else ""
    bound = "" if page.total_is_exact else " The total is a lower bound: counting stopped early."
    reading = "Read a hit with read_persisted_output and its pointer."
    return f"{missing_terms_note(page)}{reading}{more}{bound}"


def _seconds(name: str, text: str | None) -> float | None:
    """Return the Unix time of an ISO 8601 date or time, in UTC if no zone is given.

    For `until`, a date means its last moment, and so does a time without seconds.
    """
    if text is None:
        return None
    try:
        # A week would mean its first day, so it is refused.
        moment = datetime.fromisoformat("" if "W" in text else text)
    except ValueError as error:
        raise QueryError(
            f"Invalid {name}: {text!r}. Pass an ISO 8601 date or time, for example 2026-01-31 or "
            "2026-01-31T14:30:00+01:00."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds, is_date = moment.timestamp(), len(text) <= len("2026-01-31")
    if name == "until" and (is_date or not (moment.second or moment.microsecond)):
        # Numbers are added, because a datetime cannot lie after the year 9999.
        seconds += (86_400 if is_date else 60) - 1e-6
    return seconds
