"""A session as one file: a page that needs nothing else, or its exact JSON lines."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from anyio import to_thread
from context_compaction import Archive, ArchivedMessage, QueryError, SessionInfo, redact_json
from starlette.responses import Response, StreamingResponse

from mcp_server_compaction.protocol.sessions import session_document
from mcp_server_compaction.reading.text_source import json_line
from mcp_server_compaction.viewer.blocks import Reading, message_views
from mcp_server_compaction.viewer.web import Page, Visit, environment, static_file

_CHUNK = 200
_TYPES = {"html": "text/html", "jsonl": "application/jsonl"}
_ALL = 10**12


async def keep(visit: Visit) -> Page:
    """`/sessions/ID/keep`: what can be done with it."""
    info = await visit.archive.session_info(visit.path("session_id"))
    return Page("keep.html", session_document(info), {"info": info})


async def export(visit: Visit) -> Response:
    """`/sessions/ID/export?as=html|jsonl&redact=on`: the file, as it is made."""
    info = await visit.archive.session_info(visit.path("session_id"))
    kind = visit.query.get("as", "html")
    if kind not in _TYPES:
        raise QueryError(f"as is {kind[:20]!r}. Choose one of: {', '.join(_TYPES)}.")
    redacts = visit.query.get("redact") == "on"
    made = _html if kind == "html" else _json_lines
    name = f"{info.session_id.replace(':', '_')}.{kind}"
    return StreamingResponse(
        _encoded(made(visit.archive, info, redacts)),
        media_type=_TYPES[kind],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _encoded(texts: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for text in texts:
        yield text.encode("utf-8", "backslashreplace")


async def _messages(
    archive: Archive, info: SessionInfo, redacts: bool
) -> AsyncIterator[Sequence[ArchivedMessage]]:
    """All messages, some at a time; numbers that are damaged or missing are passed over."""
    last = info.message_count - 1
    start, found_count = 0, 0
    while found_count <= last:
        found = await archive.read_messages(info.session_id, start, start + _CHUNK - 1)
        if not found and start > last:
            return
        if found:
            yield await to_thread.run_sync(_redacted, found) if redacts else found
        found_count += len(found)
        start += _CHUNK


def _redacted(found: Sequence[ArchivedMessage]) -> Sequence[ArchivedMessage]:
    return [
        ArchivedMessage(m.session_id, m.seq, m.format, redact_json(m.raw), m.timestamp_seconds)
        for m in found
    ]


async def _json_lines(archive: Archive, info: SessionInfo, redacts: bool) -> AsyncIterator[str]:
    async for found in _messages(archive, info, redacts):
        yield "".join(f"{json_line(message.raw)}\n" for message in found)


async def _html(archive: Archive, info: SessionInfo, redacts: bool) -> AsyncIterator[str]:
    style = static_file("style.css")
    title = await to_thread.run_sync(redact_json, info.title) if redacts else info.title
    shown: dict[str, Any] = {
        "info": info,
        "title": title,
        "style": style[0].decode() if style else "",
        "exported": True,
    }
    yield environment().get_template("export_head.html").render(shown)
    reading = Reading(max_lines=_ALL, max_chars=_ALL, is_exported=True)
    template = environment().get_template("messages.html")
    async for found in _messages(archive, info, redacts):
        views = await to_thread.run_sync(message_views, found, reading)
        yield await to_thread.run_sync(template.render, shown | {"messages": views})
    yield "</main></body></html>\n"
