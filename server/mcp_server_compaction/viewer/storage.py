"""Pages that show the size of the archive, delete sessions and export a session.

Every deletion is shown first, and exactly the sessions that were shown are deleted.
"""

import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any

from anyio import to_thread
from context_compaction import (
    Archive,
    ArchivedMessage,
    JsonObject,
    PruneRules,
    QueryError,
    SessionInfo,
    redact_json,
)
from starlette.responses import RedirectResponse, Response, StreamingResponse

from mcp_server_compaction.protocol.sessions import session_document
from mcp_server_compaction.reading.text_source import json_line
from mcp_server_compaction.viewer.blocks import ViewContext, message_views
from mcp_server_compaction.viewer.web import Page, PageRequest, number_field, static_text, templates

_MESSAGES_PER_READ = 200


async def usage(request: PageRequest) -> Page:
    """`/storage`: size of each session, largest first. The page loads `part=sizes` by itself."""
    if not request.includes("sizes"):
        return Page("storage.html", {})
    measured = await request.archive.usage()
    sessions = sorted(measured.sessions, key=lambda s: -s.log_bytes - s.own_bytes)
    listed = sessions[:500]
    document = {
        "total_bytes": measured.total_bytes,
        "unnamed_output_bytes": measured.unnamed_bytes,
        "session_count": len(sessions),
        "sessions": [asdict(s) for s in listed],
    }
    values = {"sessions": listed, "hidden_count": len(sessions) - len(listed)}
    return Page("storage_sizes.html", document, values)


async def plan(request: PageRequest) -> Page:
    """`/storage/prune?days=90&mb=500`: the sessions that pruning would delete."""
    return await _planned(request, request.query)


async def prune(request: PageRequest) -> Page | Response:
    """Delete the sessions of a plan. If the plan has changed, show the new plan instead."""
    form = await request.form()
    page = await _planned(request, form)
    if form.get("plan_hash") != page.values["plan_hash"]:
        return replace(page, status=409)
    await request.archive.delete([s.session_id for s in page.values["plan"].sessions])
    return RedirectResponse("/storage", 303)


async def _planned(request: PageRequest, fields: Mapping[str, str]) -> Page:
    days, megabytes = number_field(fields, "days"), number_field(fields, "mb")
    if days is None and megabytes is None:
        raise QueryError("Enter an age in days, a size in MB, or both.")
    rules = PruneRules(
        before_seconds=None if days is None else time.time() - days * 86_400,
        max_bytes=None if megabytes is None else megabytes * 1024 * 1024,
    )
    planned = await request.archive.prune(rules, dry_run=True)
    ids = "\n".join(s.session_id for s in planned.sessions)
    document: JsonObject = {
        "dry_run": True,
        "sessions": [asdict(s) for s in planned.sessions],
        "session_count": planned.session_count,
        "freed_bytes": planned.freed_bytes,
        "remaining_bytes": planned.remaining_bytes,
    }
    values = {
        "plan": planned,
        "plan_hash": blake2b(ids.encode(), digest_size=16).hexdigest(),
        "days": fields.get("days", ""),
        "mb": fields.get("mb", ""),
    }
    return Page("prune.html", document, values)


async def protect(request: PageRequest) -> Response:
    """Protect a session from pruning, or end the protection."""
    form = await request.form()
    retained = form.get("protected") == "yes"
    await request.archive.retain(request.path("session_id"), retained=retained)
    return RedirectResponse("/storage", 303)


async def confirm_delete(request: PageRequest) -> Page:
    """`/sessions/ID/delete`: asks whether to delete the session."""
    info = await request.archive.session_info(request.path("session_id"))
    document: JsonObject = {"session_id": info.session_id, "messages": info.message_count}
    return Page("delete.html", document, {"info": info})


async def delete(request: PageRequest) -> Response:
    """Delete one session with all its bytes; the user types its ID to confirm.

    Raises:
        QueryError: The typed ID is not the ID of this session.
    """
    info = await request.archive.session_info(request.path("session_id"))
    form = await request.form()
    if form.get("session", "") != info.session_id:
        raise QueryError(f"Nothing was deleted. Type the session ID {info.session_id} to confirm.")
    await request.archive.delete([info.session_id])
    return RedirectResponse("/", 303)


async def export(request: PageRequest) -> Page:
    """`/sessions/ID/export`: the form to download a session."""
    info = await request.archive.session_info(request.path("session_id"))
    return Page("export.html", session_document(info), {"info": info})


async def download(request: PageRequest) -> Response:
    """`/sessions/ID/download?as=html|jsonl|context&redact=on`: the session as a streamed file."""
    info = await request.archive.session_info(request.path("session_id"))
    kind = request.query.get("as", "html")
    files = {
        "html": (_html_file, "html", "text/html"),
        "jsonl": (_json_lines_file, "jsonl", "application/jsonl"),
        "context": (_context_file, "context.json", "application/json"),
    }
    if kind not in files:
        raise QueryError(f"Unknown format {kind[:20]!r}. Use as={' or as='.join(files)}.")
    file_texts, ending, media_type = files[kind]
    name = f"{info.session_id.replace(':', '_')}.{ending}"
    texts = file_texts(request.archive, info, request.query.get("redact") == "on")
    return StreamingResponse(
        (text.encode("utf-8", "backslashreplace") async for text in texts),
        media_type=media_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _all_messages(
    archive: Archive, info: SessionInfo, redacts: bool
) -> AsyncIterator[Sequence[ArchivedMessage]]:
    """Read all messages in parts. Damaged and missing numbers are skipped."""
    for start in range(0, info.next_seq, _MESSAGES_PER_READ):
        stop = start + _MESSAGES_PER_READ - 1
        if messages := await archive.read_messages(info.session_id, start, stop):
            yield await to_thread.run_sync(_redacted, messages) if redacts else messages


def _redacted(messages: Sequence[ArchivedMessage]) -> Sequence[ArchivedMessage]:
    return [replace(message, raw=redact_json(message.raw)) for message in messages]


async def _json_lines_file(
    archive: Archive, info: SessionInfo, redacts: bool
) -> AsyncIterator[str]:
    async for messages in _all_messages(archive, info, redacts):
        yield "".join(f"{json_line(message.raw)}\n" for message in messages)


async def _context_file(archive: Archive, info: SessionInfo, redacts: bool) -> AsyncIterator[str]:
    """Yield the messages of the current context as one JSON list."""
    _, raws = await archive.context(info.session_id)
    shown = await to_thread.run_sync(redact_json, raws) if redacts else raws
    for index, raw in enumerate(shown):
        yield f"{',' if index else '['}\n{json_line(raw)}"
    yield "\n]\n" if shown else "[]\n"


async def _html_file(archive: Archive, info: SessionInfo, redacts: bool) -> AsyncIterator[str]:
    title = await to_thread.run_sync(redact_json, info.title) if redacts else info.title
    values: dict[str, Any] = {
        "info": info,
        "title": title,
        "style": static_text("style.css"),
        "exported": True,
    }
    yield templates().get_template("export_head.html").render(values)
    context = ViewContext(max_lines=sys.maxsize, max_chars=sys.maxsize, is_exported=True)
    template = templates().get_template("messages.html")
    async for messages in _all_messages(archive, info, redacts):
        views = await to_thread.run_sync(message_views, messages, context)
        yield await to_thread.run_sync(template.render, values | {"messages": views})
    yield "</main></body></html>\n"
