"""Tool: find what was written or printed, in messages and in stored outputs."""

import re
from bisect import bisect_left
from calendar import monthrange
from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, repeat

from anyio import to_thread
from context_compaction import (
    MAX_HITS_PER_OUTPUT,
    PASSAGE_CHARS,
    TERMINAL_CODE,
    Archive,
    Hit,
    NotFoundError,
    Query,
    QueryError,
    SearchPage,
    compact_json,
    counter_for,
    passage_span,
)
from mcp_types import CallToolResult

from mcp_server_compaction.hosts.session_imports import SEARCH_SECONDS
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import (
    HitAnswer,
    NextAnswer,
    SearchAnswer,
    SearchArguments,
)
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.protocol.tools.answers import MAX_ANSWER_CHARS, structured
from mcp_server_compaction.reading.slices import DEFAULT_CHARS
from mcp_server_compaction.reading.text_source import find_session

# A reply stays in a context, and so does the next where this one does not answer: with 2,000 one
# search of three did not, with 2,400 one of four. Ten hits have some 1,900.
REPLY_TOKENS = 2_400
USUAL_HITS = 10

# The lengths of the passages beside the first: the best have the answer, mostly, and of the others
# what tells whether to read on.
_SHARES = (1.0, 1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.35)
# What a tool printed has so much of its share: what was said about it answers more often.
_PRINTED_SHARE = 0.6
_FIRST_CHARS = range(40, int(PASSAGE_CHARS / _PRINTED_SHARE) + 1, 20)

_MONTH = re.compile(r"\d{4}-\d\d")
_DATE_CHARS = len("2026-01-31")
_MINUTE_CHARS = len("2026-01-31T14:30")


async def search_transcript(context: RequestContext, arguments: SearchArguments) -> CallToolResult:
    """Run one search and answer with its page of hits."""
    query = query_of(arguments)
    deps = context.lifespan_context
    await deps.imports.catch_up(SEARCH_SECONDS)
    archive = await deps.archive()
    if query.session_id is not None:
        query = replace(query, session_id=await find_session(archive, query.session_id))
    return structured(await search_briefly(archive, query), cut=False)


async def search_briefly(archive: Archive, query: Query) -> SearchAnswer:
    """The answer to a query within `REPLY_TOKENS` and `MAX_ANSWER_CHARS`.

    More hits than usual have more in proportion. The passages are as long as that allows, those of
    the best hits longest. Where even the shortest are too long (ids may have 128 characters), there
    are fewer hits, and the cursor goes on after them.

    Raises:
        ArchiveError: The search fails.
    """
    pages = max(query.limit, USUAL_HITS) / USUAL_HITS
    while True:
        page = await archive.search(query)
        try:
            branched = await _branched(archive, {hit.session_id for hit in page.hits})
        except NotFoundError:
            continue  # a session was deleted since: nothing of it is found again
        fitted = await to_thread.run_sync(partial(_fitted, page, branched, pages))
        if fitted is not None:
            return fitted
        query = replace(query, limit=query.limit - max(1, query.limit // 4))


def _fitted(page: SearchPage, branched: Set[str], pages: float) -> SearchAnswer | None:
    """The page with passages as long as the reply's limit allows; None where no length does."""
    count = counter_for().text
    shares = [
        share * (_PRINTED_SHARE if hit.role == "tool" else 1.0)
        for hit, share in zip(page.hits, chain(_SHARES, repeat(_SHARES[-1])), strict=False)
    ]

    def answer(first_chars: int) -> SearchAnswer:
        chars = [max(30, int(share * first_chars)) for share in shares]
        return search_answer(page, chars, branched)

    def is_too_long(first_chars: int) -> bool:
        text = compact_json(answer(first_chars).model_dump(mode="json", exclude_none=True))
        return len(text) > MAX_ANSWER_CHARS * pages or count(text) > REPLY_TOKENS * pages

    too_long = bisect_left(_FIRST_CHARS, True, key=is_too_long)
    if too_long == 0 and len(page.hits) > 1:
        return None
    return answer(_FIRST_CHARS[max(0, too_long - 1)])


async def _branched(archive: Archive, sessions: Set[str]) -> set[str]:
    """The sessions of several branches: there a pointer names its own."""
    return {name for name in sessions if (await archive.branches(name, limit=1))[1] > 1}


def query_of(arguments: SearchArguments) -> Query:
    """The archive's query for `arguments`.

    Raises:
        QueryError: A time cannot be read, or the times leave nothing between them.
    """
    since = _seconds("since", arguments.since)
    until = _seconds("until", arguments.until)
    if since is not None and until is not None and since > until:
        raise QueryError(f"since ({arguments.since}) is later than until ({arguments.until}).")
    session_id, _, head = (arguments.session_id or "").partition("@")
    # All others have the same name and meaning in both.
    others = arguments.model_dump(exclude={"query", "session_id", "since", "until"})
    return Query(
        text=arguments.query,
        session_id=session_id or arguments.session_id,
        head=head or None,
        since_seconds=since,
        until_seconds=until,
        **others,
    )


def search_answer(
    page: SearchPage,
    passage_chars: Sequence[int],
    branched: Collection[str] = (),
) -> SearchAnswer:
    """A page of hits as the tool answers it.

    Args:
        page: The hits.
        passage_chars: What the passage of each may count.
        branched: The sessions of which a message's number alone names no history.
    """
    return SearchAnswer(
        hits=[
            _hit_answer(hit, max_chars, hit.session_id in branched)
            for hit, max_chars in zip(page.hits, passage_chars, strict=True)
        ],
        total=page.total,
        total_is_exact=page.total_is_exact,
        next_cursor=page.next_cursor,
        note=_note(page),
    )


def _hit_answer(hit: Hit, max_chars: int, is_branched: bool) -> HitAnswer:
    place = hit.snippet_chars_before
    before = TERMINAL_CODE.sub("", hit.snippet[:place])
    passage = before + TERMINAL_CODE.sub("", hit.snippet[place:])
    start, stop = passage_span(passage, len(before), max_chars)
    is_whole = hit.size_chars == len(hit.snippet) and stop - start == len(passage)
    # Where one read of a hit shows all of it, its place there is of no use.
    reads_whole = hit.size_chars is not None and hit.size_chars < DEFAULT_CHARS
    following: NextAnswer | None = None
    if hit.next is not None:
        pointer, role = _pointer(hit.next, is_branched), hit.next.role
        following = NextAnswer(pointer=pointer, role=role, snippet=hit.next.snippet[:max_chars])
    return HitAnswer(
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
    """The shortest that reads a hit: an output's id, or session and number of a message."""
    if hit.kind == "output":
        return hit.pointer
    head = f"@{hit.head}" if is_branched and hit.head else ""
    return f"transcript://{hit.session_id}/messages/{hit.seq}{head}"


def unfound(page: SearchPage) -> str:
    """What a page does not have: words, parts of outputs. In sentences that end with a blank."""
    missing, elsewhere = (", ".join(words)[:120] for words in (page.missing_terms, page.elsewhere))
    nowhere = f"Nowhere found: {missing}. " if missing else ""
    away = f"Not here, but elsewhere in the archive: {elsewhere}. " if elsewhere else ""
    some = "No text has all of the words: these have some. " if page.has_any else ""
    listed = Counter(hit.pointer for hit in page.hits if hit.kind == "output")
    is_cut = MAX_HITS_PER_OUTPUT in listed.values()
    few = f"Of one output at most {MAX_HITS_PER_OUTPUT} parts are listed. " if is_cut else ""
    return nowhere + away + some + few


def _note(page: SearchPage) -> str:
    if not page.hits and page.next_cursor:
        return (
            "Nothing found so far: the search stopped at its limit. Pass next_cursor as cursor to "
            "go on with what is older, or narrow it by session_id, tool, since."
        )
    if not page.hits:
        return f"Nothing found. {unfound(page)}Try fewer or other words, or kind='regex'."
    more = " Pass next_cursor as cursor for more." if page.next_cursor else ""
    counted = "" if page.total_is_exact else " The total is a lower bound: counting stopped early."
    reading = "Read a hit with read_persisted_output and its pointer."
    return f"{unfound(page)}{reading}{more}{counted}"


def _seconds(name: str, text: str | None) -> float | None:
    """Unix time of an ISO 8601 date or time, or a month; UTC where no zone is given.

    A bare date, month or minute means its first moment, but for `until` its last.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)
    except ValueError as error:
        raise QueryError(
            f"{name} is {text!r}. Give an ISO 8601 date or time, as 2026-01-31 or "
            "2026-01-31T14:30:00+01:00, or a month, as 2026-01."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if name == "until" and len(text) <= _MINUTE_CHARS:  # all of the day or minute
        is_month = _MONTH.fullmatch(text) is not None
        days = monthrange(moment.year, moment.month)[1] if is_month else 1
        whole = timedelta(days=days) if len(text) <= _DATE_CHARS else timedelta(minutes=1)
        moment += whole - timedelta(microseconds=1)
    return moment.timestamp()
