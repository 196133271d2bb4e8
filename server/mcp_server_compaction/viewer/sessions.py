"""Pages that list and search the sessions, and that show a transcript, one block or one output."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from anyio import to_thread
from context_compaction import (
    PASSAGE_CHARS,
    Archive,
    ArchivedMessage,
    CompactionError,
    History,
    Hit,
    JsonObject,
    NotFoundError,
    QueryError,
    SessionInfo,
)
from markupsafe import Markup, escape
from starlette.responses import Response

from mcp_server_compaction.protocol.schemas import SearchArguments, parse_arguments
from mcp_server_compaction.protocol.searching import missing_terms_note, query_of, search_reply
from mcp_server_compaction.protocol.sessions import branches_document, iso_time, session_document
from mcp_server_compaction.reading.plain_text import block_text
from mcp_server_compaction.reading.text_source import MemorySource, TextSource, open_source
from mcp_server_compaction.viewer import blocks, markup
from mcp_server_compaction.viewer.marks import Mark, mark_of, output_mark, read_compactions
from mcp_server_compaction.viewer.web import Page, PageRequest, error_page, number_field

SESSIONS_PER_PAGE = 40
# A transcript is loaded in parts, so that a page of any session has few messages at a time.
MESSAGES_PER_PART = 30
LINES_PER_PAGE = 1_000
# At most so many sessions are sorted or filtered.
_MAX_SORTED = 20_000
_SORT_KEYS: Mapping[str, Callable[[SessionInfo], Any]] = {
    "recent": lambda info: -info.last_seconds,
    "tokens": lambda info: -info.text_chars,
    "saved": lambda info: -info.saved_tokens,
    "messages": lambda info: -info.message_count,
    "title": lambda info: (info.title or info.session_id).casefold(),
    "folder": lambda info: (not info.folder, info.folder.casefold()),
}
_WORD = re.compile(r"[^\W_]{2,}")
HITS_PER_PAGE = 20


async def session_list(request: PageRequest) -> Page:
    """`/?q=WORDS&host=H&sort=S&cursor=C`: a page of sessions, by default newest first.

    WORDS are part of the title, the ID or the folder. A list that is filtered or sorted otherwise
    is made of the newest sessions of the archive, and its cursor counts sessions.
    """
    query = request.query
    words, host, sort = query.get("q", ""), query.get("host", ""), query.get("sort", "recent")
    if sort not in _SORT_KEYS:
        raise QueryError(f"Unknown order {sort[:20]!r}. Available: {', '.join(_SORT_KEYS)}.")
    if words or host or sort != "recent":
        start = number_field(query, "cursor") or 0
        found, _ = await request.archive.sessions(limit=_MAX_SORTED)
        found = [info for info in found if _matches(info, words, host)]
        found.sort(key=_SORT_KEYS[sort])
        infos = found[start : start + SESSIONS_PER_PAGE]
        stop = start + SESSIONS_PER_PAGE
        next_cursor = str(stop) if stop < len(found) else None
    else:
        cursor = query.get("cursor")
        infos, next_cursor = await request.archive.sessions(limit=SESSIONS_PER_PAGE, cursor=cursor)
        infos = _children_after_parents(infos)
    fields = {"q": words, "host": host, "sort": sort}
    next_page = f"/?{urlencode(fields | {'cursor': next_cursor})}" if next_cursor else None
    sizes = {"host": "", "folder": "", "text_chars": 0, "saved_tokens": 0}
    document = {
        "sessions": [
            session_document(info) | {name: getattr(info, name) for name in sizes} for info in infos
        ],
        "next_page": next_page,
    }
    values = {"infos": infos, "is_first": "cursor" not in query, **fields}
    return Page("rows.html" if query.get("part") == "rows" else "sessions.html", document, values)


def _matches(info: SessionInfo, words: str, host: str) -> bool:
    """Whether a session ran in a host, and its title, ID or folder contains all of the words."""
    text = f"{info.title} {info.session_id} {info.folder}".casefold()
    return host in ("", info.host) and all(word in text for word in words.casefold().split())


def _children_after_parents(infos: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Sort sub-agents after the session that started them, if that session is on the page."""
    index_by_id = {info.session_id: index for index, info in enumerate(infos)}

    def position(info: SessionInfo) -> tuple[int, bool]:
        """Return the index of the first ancestor, and whether it is another session."""
        start = index = index_by_id[info.session_id]
        for _ in infos:  # bounded, because two sessions may name each other as parents
            index = index_by_id.get(infos[index].parent_session_id or "", index)
        return index, index != start

    return sorted(infos, key=position)


async def session(request: PageRequest) -> Page:
    """`/sessions/ID?at=SEQ`: a session, with the part of its transcript around a message."""
    info = await request.archive.session_info(request.path("session_id"))
    last = max(0, info.next_seq - 1)
    current = min(number_field(request.query, "at") or 0, last)
    first = current - current % MESSAGES_PER_PART
    part = await _transcript_part(request, info, first, first + MESSAGES_PER_PART - 1)
    values = {
        "current": current,
        "first": first,
        "part_size": MESSAGES_PER_PART,
        "stop": min(first + MESSAGES_PER_PART - 1, last),
        "head": request.query.get("head"),
    }
    document = session_document(info) | {
        "messages_shown": part.document["messages"],
        "first_shown": first,
    }
    return Page("session.html", document, {**part.values, **values})


async def messages(request: PageRequest) -> Page:
    """`/sessions/ID/messages/A-B`: a part of a transcript, which the page of the session loads."""
    info = await request.archive.session_info(request.path("session_id"))
    start = int(request.http.path_params["start"])
    stop = min(int(request.http.path_params["stop"]), start + 4 * MESSAGES_PER_PART - 1)
    return await _transcript_part(request, info, start, stop)


async def _transcript_part(request: PageRequest, info: SessionInfo, start: int, stop: int) -> Page:
    context = blocks.ViewContext(info.session_id, info.next_seq)
    archived: Sequence[ArchivedMessage] = ()
    if info.message_count:
        head = request.query.get("head")
        archived = await _read_messages(request.archive, start, stop, context, head)
    compactions = await read_compactions(request.archive, info.session_id)
    marks = {m.seq: mark_of(m.seq, compactions) for m in archived}
    views = await to_thread.run_sync(blocks.message_views, archived, context)
    document: JsonObject = {
        "session_id": info.session_id,
        "messages": [_message_document(m, marks[m.seq]) for m in archived],
    }
    values = {
        "messages": views,
        "info": info,
        "marks": marks,
        "compactions": {c.stop_seq: c for c in compactions},
    }
    return Page("messages.html", document, values)


def _message_document(message: ArchivedMessage, mark: Mark) -> JsonObject:
    return {
        "seq": message.seq,
        "format": message.format,
        "time": iso_time(message.timestamp_seconds),
        "state": mark.state,
        "compaction": mark.compaction.number if mark.compaction else None,
        "message": message.raw,
    }


async def _read_messages(
    archive: Archive, start: int, stop: int, context: blocks.ViewContext, head: str | None = None
) -> Sequence[ArchivedMessage]:
    """Read messages, and add the tool calls of the two messages before them to `context`."""
    first, last = max(0, start - 2), max(start, stop)
    archived = await archive.read_messages(context.session_id, first, last, head=head)
    for message in archived:
        if message.seq < start:
            context.add_calls(blocks.parsed(message.raw, message.format))
    return [message for message in archived if message.seq >= start]


async def branches(request: PageRequest) -> Page:
    """`/sessions/ID/branches`: branches of an edited or forked conversation, newest first.

    The page of the session loads this part later, because all histories have to be read.
    """
    info = await request.archive.session_info(request.path("session_id"))
    histories: list[History] = []
    count = 0
    if info.message_count:
        histories, count = await request.archive.branches(info.session_id, limit=12)
    document = branches_document(info.session_id, histories, count)
    values = {"info": info, "branches": histories, "head": request.query.get("head")}
    return Page("branches.html", document, values)


async def block(request: PageRequest) -> Page:
    """`/sessions/ID/messages/SEQ/N`: one block by lines, or unfolded with `part=body`."""
    session_id = request.path("session_id")
    seq, number = int(request.http.path_params["seq"]), int(request.http.path_params["block"])
    info = await request.archive.session_info(session_id)
    context = blocks.ViewContext(
        session_id, info.next_seq, max_lines=blocks.UNFOLDED_LINES, max_chars=blocks.UNFOLDED_CHARS
    )
    archived = await _read_messages(request.archive, seq, seq, context)
    parts = blocks.parsed(archived[0].raw, archived[0].format).blocks if archived else ()
    if number >= len(parts):
        raise NotFoundError(f"Message {seq} has no part {number}.")
    if request.query.get("part") == "body":
        [message] = await to_thread.run_sync(blocks.message_views, archived, context)
        view = next((view for view in message.blocks if view.number == number), None)
        if view is None:
            raise NotFoundError(f"Part {number} of message {seq} has no text.")
        document = {"size_chars": view.size_chars}
        return Page("block.html", document, {"block": view, "seq": seq, "info": info})
    source = MemorySource(
        f"transcript://{session_id}/messages/{seq}-{seq}", block_text(parts[number])
    )
    address = f"/sessions/{quote(session_id)}?at={seq}#m{seq}"
    path = blocks.path_of(parts[number], context.calls)
    return await _lines_page(request, source, f"Message {seq}, part {number + 1}", address, path)


async def output(request: PageRequest) -> Page:
    """`/outputs/ID`: a stored output by lines, for example the original of a placeholder."""
    source = await open_source(request.archive, request.path("output_id"))
    info = await request.archive.output_info(request.path("output_id"))
    title = f"Output of {info.tool_name}" if info.tool_name else "Output"
    compactions = await read_compactions(request.archive, info.session_id)
    page = await _lines_page(request, source, title, f"/sessions/{quote(info.session_id)}", "")
    mark = output_mark(info.output_id, compactions)
    return replace(page, values={**page.values, "mark": mark, "info": info})


async def files(request: PageRequest) -> Page:
    """`/sessions/ID/files`: the files as the calls of a session left them, last used first.

    The page loads `part=list` by itself, because all calls have to be read.
    """
    info = await request.archive.session_info(request.path("session_id"))
    if not request.includes("list"):
        return Page("files.html", {"session_id": info.session_id}, {"info": info})
    source = await open_source(request.archive, f"transcript://{info.session_id}/files")
    lines = (await source.characters(0, source.size_chars)).splitlines()
    listed = [line.rsplit("  ", 1) for line in lines]
    document: JsonObject = {
        "session_id": info.session_id,
        "files": [{"path": path, "known": known} for path, known in listed],
    }
    return Page("file_list.html", document, {"info": info})


async def file(request: PageRequest) -> Page:
    """`/sessions/ID/files/PATH@SEQ`: a file by lines, as of message SEQ or the newest message."""
    session_id, path = request.path("session_id"), request.path("path")
    source = await open_source(request.archive, f"transcript://{session_id}/files/{path}")
    title = f"{path}:{source.gap}" if source.gap else path
    address = f"/sessions/{quote(session_id)}/files"
    return await _lines_page(request, source, title, address, path.rpartition("@")[0] or path)


async def restored(request: PageRequest) -> Response:
    """`/restore?pointer=P`: the exact content at a pointer as a file to save."""
    pointer = request.query.get("pointer", "")
    source = await open_source(request.archive, pointer, as_json=True)
    text = await source.characters(0, source.size_chars)
    name = re.sub(r"[^\w.-]+", "_", pointer.partition("@")[0].rsplit("/", 1)[-1]) or "content"
    return Response(
        text.encode("utf-8", "surrogatepass"),
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{quote(name)}"'},
    )


async def _lines_page(
    request: PageRequest, source: TextSource, title: str, address: str, path: str
) -> Page:
    """Return a page of a text by lines. Very long lines are cut and marked.

    Args:
        request: The request, with the number of the first line as `start`.
        source: The text.
        title: Heading of the page.
        address: Address of the session that contains the text.
        path: Path of the file that the text shows, for highlighting; "" if unknown.
    """
    start = number_field(request.query, "start") or 1
    part = await source.lines(start, LINES_PER_PAGE)
    text = "\n".join(blocks.shorten(line, 2_000) for line in part.text.split("\n"))
    lines = await to_thread.run_sync(markup.numbered_lines, text, part.start_line, path)
    next_start = start + LINES_PER_PAGE if start + LINES_PER_PAGE <= source.line_count else None
    document: JsonObject = {
        "pointer": source.pointer,
        "size_chars": source.size_chars,
        "line_count": source.line_count,
        "start_line": part.start_line,
        "text": part.text,
        "next_start": next_start,
    }
    previous = max(1, start - LINES_PER_PAGE)
    values = {"title": title, "lines": lines, "back": address, "previous": previous, "start": start}
    return Page("lines.html", document, values)


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
    return markup.with_matches(
        text, pattern, lambda match: Markup("<mark>{}</mark>").format(match[0])
    )
