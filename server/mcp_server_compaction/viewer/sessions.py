"""The list of sessions, and a session: its messages in parts, its blocks and outputs by lines."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote, urlencode

from anyio import to_thread
from context_compaction import (
    Archive,
    ArchivedMessage,
    History,
    JsonObject,
    NotFoundError,
    SessionInfo,
    tool_calls,
)

from mcp_server_compaction.protocol.sessions import branches_document, iso_time, session_document
from mcp_server_compaction.reading.plain_text import block_text
from mcp_server_compaction.reading.text_source import MemorySource, TextSource, open_source
from mcp_server_compaction.viewer import markup
from mcp_server_compaction.viewer.blocks import (
    UNFOLD_CHARS,
    UNFOLD_LINES,
    MessageView,
    Reading,
    block_at,
    message_views,
    parsed,
    path_of,
    shorten,
)
from mcp_server_compaction.viewer.web import Page, Visit, whole_number

# Sessions of one page.
PAGE_SIZE = 40
# Messages of one part of a transcript. The page has few parts at a time, however long it is.
PART = 30
LINES = 1_000


async def listing(visit: Visit) -> Page:
    """`/`: a page of sessions; `q` names words of the title or id."""
    words = visit.query.get("q", "")
    cursor = visit.query.get("cursor")
    infos, next_cursor = await _matching(visit.archive, words, cursor)
    infos = _as_tree(infos)
    more = f"/?{urlencode({'q': words, 'cursor': next_cursor})}" if next_cursor else None
    document = {"sessions": [session_document(info) for info in infos], "next_page": more}
    rows = [(info, _local_day(info.last_seconds)) for info in infos]
    return Page(
        "rows.html" if visit.query.get("part") == "rows" else "sessions.html",
        document,
        {"rows": rows, "more": more, "words": words, "is_first": cursor is None},
    )


async def _matching(
    archive: Archive, words: str, cursor: str | None
) -> tuple[list[SessionInfo], str | None]:
    """A page of the sessions with all of the words, and the cursor of the next page.

    It reads 4,000 sessions at most; the next page goes on from there.
    """
    wanted = words.casefold().split()
    if not wanted:
        return await archive.sessions(limit=PAGE_SIZE, cursor=cursor)
    found: list[SessionInfo] = []
    for _ in range(10):
        infos, cursor = await archive.sessions(limit=400, cursor=cursor)
        for info in infos:
            text = f"{info.title} {info.session_id}".casefold()
            if all(word in text for word in wanted):
                found.append(info)
        if cursor is None or len(found) >= PAGE_SIZE:
            break
    return found, cursor


def _local_day(seconds: float) -> str:
    """The day, as 2026-11-22, by this machine's clock."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d")


def _as_tree(infos: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Sub-agents behind the session that started them, where that is on the same page."""
    here = {info.session_id: at for at, info in enumerate(infos)}

    def place(info: SessionInfo) -> tuple[int, bool]:
        """Where the first of its ancestors is, and whether that is another session."""
        at = here[info.session_id]
        passed = {at}
        while (parent := here.get(infos[at].parent_session_id or "", at)) not in passed:
            at = parent
            passed.add(at)
        return at, at != here[info.session_id]

    return sorted(infos, key=place)


async def session(visit: Visit) -> Page:
    """`/sessions/ID?at=SEQ`: the session, and the part of its transcript around a message."""
    session_id = visit.path("session_id")
    info = await visit.archive.session_info(session_id)
    head = visit.query.get("head")
    last = max(0, info.message_count - 1)
    at = min(whole_number(visit.query, "at") or 0, last)
    first = at - at % PART
    views, raws = await _part(visit.archive, info, first, first + PART - 1, head)
    document = session_document(info) | {
        "messages_shown": _message_documents(raws),
        "first_shown": first,
    }
    return Page(
        "session.html",
        document,
        {
            "info": info,
            "messages": views,
            "at": at,
            "first": first,
            "part": PART,
            "stop": min(first + PART - 1, last),
            "head": head,
        },
    )


async def branches(visit: Visit) -> Page:
    """`/sessions/ID/branches`: how the conversation was edited or forked, newest first.

    Apart from the session's page, which is there before all histories were walked.
    """
    info = await visit.archive.session_info(visit.path("session_id"))
    found: list[History] = []
    count = 0
    if info.message_count:
        found, count = await visit.archive.branches(info.session_id, limit=12)
    document = branches_document(info.session_id, found, count)
    shown = {"info": info, "branches": found, "count": count, "head": visit.query.get("head")}
    return Page("branches.html", document, shown)


async def messages(visit: Visit) -> Page:
    """`/sessions/ID/messages/A-B`: a part of the transcript, for the page that shows it."""
    info = await visit.archive.session_info(visit.path("session_id"))
    start = int(visit.request.path_params["start"])
    stop = min(int(visit.request.path_params["stop"]), start + 4 * PART - 1)
    views, raws = await _part(visit.archive, info, start, stop, visit.query.get("head"))
    document: JsonObject = {"session_id": info.session_id, "messages": _message_documents(raws)}
    return Page("messages.html", document, {"messages": views, "info": info, "start": start})


async def block(visit: Visit) -> Page:
    """`/sessions/ID/messages/SEQ/N`: one block whole, by lines; `part=body` what one unfolds."""
    session_id, seq = visit.path("session_id"), int(visit.request.path_params["seq"])
    number = int(visit.request.path_params["block"])
    if visit.query.get("part") == "body":
        info = await visit.archive.session_info(session_id)
        reading = Reading(
            session_id, info.message_count, max_lines=UNFOLD_LINES, max_chars=UNFOLD_CHARS
        )
        found = await _with_calls(visit.archive, session_id, seq, seq, None, reading)
        views = await to_thread.run_sync(message_views, found, reading)
        view = next((b for m in views for b in m.blocks if b.number == number), None)
        if view is None:
            raise _no_block(seq, number)
        return Page(
            "block.html", {"size_chars": view.size_chars}, {"block": view, "seq": seq, "info": info}
        )
    reading = Reading()
    found = await _with_calls(visit.archive, session_id, seq, seq, None, reading)
    asked = block_at(found[0].raw, found[0].format, number) if found else None
    if asked is None:
        raise _no_block(seq, number)
    text = block_text(asked)
    source = MemorySource(f"transcript://{session_id}/messages/{seq}-{seq}", text)
    back = f"/sessions/{quote(session_id)}?at={seq}#m{seq}"
    return await _lines_page(
        visit, source, f"Message {seq}, part {number + 1}", back, path_of(asked, reading.calls)
    )


async def output(visit: Visit) -> Page:
    """`/outputs/ID`: a stored output by lines, the original behind a placeholder."""
    source = await open_source(visit.archive, visit.path("output_id"))
    info = await visit.archive.output_info(visit.path("output_id"))
    back = f"/sessions/{quote(info.session_id)}"
    title = f"Output of {info.tool_name}" if info.tool_name else "Output"
    return await _lines_page(visit, source, title, back, "")


async def _lines_page(visit: Visit, source: TextSource, title: str, back: str, path: str) -> Page:
    """A text by lines, `LINES` at a time; a line too long for a page is cut and marked so."""
    start = whole_number(visit.query, "start") or 1
    found = await source.lines(start, LINES)
    text = "\n".join(shorten(line, 2_000) for line in found.text.split("\n"))
    lines = await to_thread.run_sync(markup.numbered_lines, text, found.start_line, path)
    next_start = start + LINES if start + LINES <= source.line_count else None
    document: JsonObject = {
        "pointer": source.pointer,
        "size_chars": source.size_chars,
        "line_count": source.line_count,
        "start_line": found.start_line,
        "text": found.text,
        "next_start": next_start,
    }
    return Page(
        "lines.html",
        document,
        {
            "title": title,
            "lines": lines,
            "back": back,
            "previous": max(1, start - LINES),
            "start": start,
        },
    )


async def _part(
    archive: Archive, info: SessionInfo, start: int, stop: int, head: str | None
) -> tuple[list[MessageView], Sequence[ArchivedMessage]]:
    if not info.message_count:
        return [], []
    reading = Reading(info.session_id, info.message_count)
    found = await _with_calls(archive, info.session_id, start, stop, head, reading)
    return await to_thread.run_sync(message_views, found, reading), found


async def _with_calls(
    archive: Archive, session_id: str, start: int, stop: int, head: str | None, reading: Reading
) -> Sequence[ArchivedMessage]:
    """The messages, their `reading` having learnt the calls of the two before them."""
    found = await archive.read_messages(session_id, max(0, start - 2), max(start, stop), head=head)
    for earlier in found:
        if earlier.seq < start:
            message = parsed(earlier.raw, earlier.format)
            reading.calls |= {call.call_id: call for call in tool_calls(message)}
    return [one for one in found if one.seq >= start]


def _message_documents(found: Sequence[ArchivedMessage]) -> list[JsonObject]:
    return [
        {"seq": m.seq, "format": m.format, "time": iso_time(m.timestamp_seconds), "message": m.raw}
        for m in found
    ]


def _no_block(seq: int, number: int) -> NotFoundError:
    return NotFoundError(f"Message {seq} has no part {number}.")
