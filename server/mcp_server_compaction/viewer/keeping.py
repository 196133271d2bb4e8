"""Export, keep and clean: a session as one file, what takes how much room, and deleting it.

Everything is shown before it is deleted, and what was shown is what is deleted.
"""

import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
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
    SessionUsage,
    redact_json,
)
from starlette.responses import Response, StreamingResponse

from mcp_server_compaction.protocol.sessions import iso_time, session_document
from mcp_server_compaction.reading.text_source import json_line
from mcp_server_compaction.viewer.blocks import Reading, message_views
from mcp_server_compaction.viewer.web import (
    Page,
    Visit,
    environment,
    redirect,
    static_text,
    whole_number,
)

_TYPES = {"html": "text/html", "jsonl": "application/jsonl"}
_CHUNK = 200


async def usage(visit: Visit) -> Page:
    """`/archive`: how much room each session takes, the largest first."""
    found = await visit.archive.usage()
    sessions = sorted(found.sessions, key=lambda one: -one.log_bytes - one.own_bytes)
    shown = sessions[:500]
    document = {
        "total_bytes": found.total_bytes,
        "unnamed_output_bytes": found.unnamed_bytes,
        "session_count": len(sessions),
        "sessions": [_usage_document(one) for one in shown],
    }
    left = len(sessions) - len(shown)
    return Page("archive.html", document, {"sessions": shown, "left": left})


async def plan(visit: Visit) -> Page:
    """`/archive/prune?days=90&mb=500`: what retention would delete; nothing is deleted."""
    return await _planned(visit, visit.query)


async def prune(visit: Visit) -> Page | Response:
    """Delete what a page listed; where that is not what the rules now choose, list it again."""
    form = await visit.form()
    page = await _planned(visit, {name: values[0] for name, values in form.items()})
    if form.get("listed", [""])[0] != page.shown["listed"]:
        return replace(page, status=409)
    await visit.archive.delete([one.session_id for one in page.shown["plan"].sessions])
    return redirect("/archive")


async def _planned(visit: Visit, asked: Mapping[str, str]) -> Page:
    days, megabytes = whole_number(asked, "days"), whole_number(asked, "mb")
    if days is None and megabytes is None:
        raise QueryError("Say how many days sessions are kept, or how many MB they may take.")
    rules = PruneRules(
        before_seconds=None if days is None else time.time() - days * 86_400,
        max_bytes=None if megabytes is None else megabytes * 1024 * 1024,
    )
    planned = await visit.archive.prune(rules, dry_run=True)
    ids = "\n".join(one.session_id for one in planned.sessions)
    listed = blake2b(ids.encode(), digest_size=16).hexdigest()
    document: JsonObject = {
        "dry_run": True,
        "sessions": [_usage_document(one) for one in planned.sessions],
        "session_count": planned.session_count,
        "freed_bytes": planned.freed_bytes,
        "left_bytes": planned.left_bytes,
    }
    shown = {"plan": planned, "listed": listed}
    return Page("prune.html", document, shown | {n: asked.get(n, "") for n in ("days", "mb")})


async def confirm_delete(visit: Visit) -> Page:
    """`/sessions/ID/delete`: what would be deleted."""
    info = await visit.archive.session_info(visit.path("session_id"))
    family, _ = await visit.archive.sessions(limit=50, family_of=info.session_id)
    document: JsonObject = {"session_id": info.session_id, "messages": info.message_count}
    return Page("delete.html", document, {"info": info, "children": len(family) - 1})


async def delete(visit: Visit) -> Response:
    """Delete one session with all its bytes; the form names it, in words.

    Raises:
        QueryError: It names another.
    """
    info = await visit.archive.session_info(visit.path("session_id"))
    form = await visit.form()
    if form.get("session", [""])[0] != info.session_id:
        raise QueryError(f"Type the session's id, {info.session_id}, to delete it. Nothing was.")
    await visit.archive.delete([info.session_id])
    return redirect("/")


async def retain(visit: Visit) -> Response:
    """Exempt a session from retention, or end that."""
    form = await visit.form()
    keep = form.get("keep", [""])[0] == "yes"
    await visit.archive.retain(visit.path("session_id"), retained=keep)
    return redirect("/archive")


def _usage_document(one: SessionUsage) -> JsonObject:
    return {
        "session_id": one.session_id,
        "parent_session_id": one.parent_session_id,
        "retained": one.is_retained,
        "messages": one.message_count,
        "last_time": iso_time(one.last_seconds),
        "log_bytes": one.log_bytes,
        "output_bytes": one.own_bytes,
        "shared_output_bytes": one.shared_bytes,
    }


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
    texts = made(visit.archive, info, redacts)
    return StreamingResponse(
        (text.encode("utf-8", "backslashreplace") async for text in texts),
        media_type=_TYPES[kind],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


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
    title = await to_thread.run_sync(redact_json, info.title) if redacts else info.title
    shown: dict[str, Any] = {
        "info": info,
        "title": title,
        "style": static_text("style.css"),
        "exported": True,
    }
    yield environment().get_template("export_head.html").render(shown)
    reading = Reading(max_lines=sys.maxsize, max_chars=sys.maxsize, is_exported=True)
    template = environment().get_template("messages.html")
    async for found in _messages(archive, info, redacts):
        views = await to_thread.run_sync(message_views, found, reading)
        yield await to_thread.run_sync(template.render, shown | {"messages": views})
    yield "</main></body></html>\n"
