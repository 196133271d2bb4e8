"""From search arguments to the archive's query, and from a page of hits to an answer."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from context_compaction.archive import Hit, Query, SearchPage
from context_compaction.archive.dates import asked_times
from context_compaction.errors import QueryError

from mcp_server_compaction.protocol.schemas import (
    HitAnswer,
    NextAnswer,
    SearchAnswer,
    SearchArguments,
)
from mcp_server_compaction.protocol.sessions import iso_time

MAX_TOOL_NAME_CHARS = 64
MAX_TERMS_CHARS = 120

_DATE_CHARS = len("2026-01-31")
_MINUTE_CHARS = len("2026-01-31T14:30")


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
    return Query(
        text=arguments.query,
        kind=arguments.kind,
        order=arguments.order,
        session_id=session_id or arguments.session_id,
        head=head or None,
        role=arguments.role,
        tool=arguments.tool,
        path=arguments.path,
        since_seconds=since,
        until_seconds=until,
        limit=arguments.limit,
        cursor=arguments.cursor,
    )


def search_answer(
    page: SearchPage,
    passage_chars: Sequence[int],
    marks: Mapping[int, str] | None = None,
    branched: Collection[str] = (),
) -> SearchAnswer:
    """A page of hits as the tool answers it.

    Args:
        page: The hits.
        passage_chars: What the passage of each may count.
        marks: By position, what to know of a hit that shows an edit.
        branched: The sessions of which a message's number alone names no history.
    """
    told = marks or {}
    return SearchAnswer(
        hits=[
            _hit_answer(hit, max_chars, told.get(n), hit.session_id in branched)
            for n, (hit, max_chars) in enumerate(zip(page.hits, passage_chars, strict=True))
        ],
        total=page.total,
        total_is_exact=page.total_is_exact,
        next_cursor=page.next_cursor,
        note=_note(page),
    )


def _hit_answer(hit: Hit, max_chars: int, mark: str | None, is_branched: bool) -> HitAnswer:
    from context_compaction.activity.error_line import TERMINAL_CODE
    from context_compaction.archive.snippets import passage_span

    place = hit.snippet_chars_before
    before = TERMINAL_CODE.sub("", hit.snippet[:place])
    passage = before + TERMINAL_CODE.sub("", hit.snippet[place:])
    start, stop = passage_span(passage, len(before), max_chars)
    is_whole = hit.size_chars == len(hit.snippet) and stop - start == len(passage)
    return HitAnswer(
        pointer=_pointer(hit, is_branched),
        session_id=hit.session_id if hit.kind == "output" else None,
        role=hit.role,
        tool_name=hit.tool_name and hit.tool_name[:MAX_TOOL_NAME_CHARS],
        time=iso_time(hit.timestamp_seconds)[:_MINUTE_CHARS],
        line=hit.line,
        offset_chars=None if is_whole or _reads_whole(hit) else hit.offset_chars,
        size_chars=None if is_whole else hit.size_chars,
        snippet=passage[start:stop],
        note=" ".join(filter(None, (mark, _repeated(hit.repeats)))) or None,
        next=_next_answer(hit.next, max_chars, is_branched),
    )


def _reads_whole(hit: Hit) -> bool:
    """Whether one read of a hit shows all of it, so that its place there is of no use."""
    from mcp_server_compaction.reading.slices import DEFAULT_CHARS

    return hit.size_chars is not None and hit.size_chars < DEFAULT_CHARS


def _repeated(count: int) -> str:
    return f"{count} more with the same text." if count else ""


def _pointer(hit: Hit, is_branched: bool) -> str:
    """The shortest that reads a hit: an output's id, or session and number of a message."""
    if hit.kind == "output":
        return hit.pointer
    head = f"@{hit.head}" if is_branched and hit.head else ""
    return f"transcript://{hit.session_id}/messages/{hit.seq}{head}"


def _next_answer(hit: Hit | None, max_chars: int, is_branched: bool) -> NextAnswer | None:
    if hit is None:
        return None
    return NextAnswer(
        pointer=_pointer(hit, is_branched), role=hit.role, snippet=hit.snippet[:max_chars]
    )


def unfound(page: SearchPage) -> str:
    """What a page does not have: words, parts of outputs. In sentences that end with a blank."""
    from context_compaction.archive.search.hits import MAX_HITS_PER_OUTPUT

    missing, elsewhere = (
        ", ".join(words)[:MAX_TERMS_CHARS] for words in (page.missing_terms, page.elsewhere)
    )
    nowhere = f"Nowhere found: {missing}. " if missing else ""
    away = f"Not here, but elsewhere in the archive: {elsewhere}. " if elsewhere else ""
    some = "No text has all of the words: these have some. " if page.has_any else ""
    listed = Counter(hit.pointer for hit in page.hits if hit.kind == "output")
    is_cut = MAX_HITS_PER_OUTPUT in listed.values()
    few = f"Of one output at most {MAX_HITS_PER_OUTPUT} parts are listed. " if is_cut else ""
    return nowhere + away + some + few


def _note(page: SearchPage) -> str:
    from context_compaction.archive.patterns import SCAN_BYTES, SCAN_SECONDS

    if not page.hits and page.next_cursor:
        return (
            f"Nothing found so far: the search stopped after {SCAN_BYTES >> 20} MB or "
            f"{SCAN_SECONDS:g} seconds. Pass next_cursor as cursor to go on with what is older, or "
            "narrow it by session_id, tool, since."
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
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        times = list(asked_times(text))
        if len(times) == 1:
            return times[0][name == "until"]
        raise QueryError(
            f"{name} is {text!r}. Give an ISO 8601 date or time, as 2026-01-31 or "
            "2026-01-31T14:30:00+01:00, or a month, as 2026-01."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if name == "until" and len(text) <= _MINUTE_CHARS:  # all of the day or minute
        whole = timedelta(days=1) if len(text) <= _DATE_CHARS else timedelta(minutes=1)
        moment += whole - timedelta(microseconds=1)
    return moment.timestamp()
