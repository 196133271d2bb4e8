"""Pages of compactions: the message list before and after, what was removed and why, and undo."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from anyio import to_thread
from cachetools import LRUCache
from context_compaction import (
    Archive,
    CompactRequest,
    JsonObject,
    NotFoundError,
    QueryError,
    SessionInfo,
    SettingsError,
    StoredReceipt,
    compact,
    counter_for,
    read_dropped_names,
)
from starlette.responses import RedirectResponse, Response

from mcp_server_compaction.hosts.resume import RESUME_FORMATS
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.viewer.blocks import ViewContext
from mcp_server_compaction.viewer.changes import KINDS, Row, row_views, rows_of, single_rows
from mcp_server_compaction.viewer.formatting import counted_model, receipt_sentences
from mcp_server_compaction.viewer.marks import is_compaction, newest_receipt, undone_times
from mcp_server_compaction.viewer.web import Page, PageRequest, number_field

_ROWS_PER_PART = 60
# Rows by session, number and time of the compaction; browsers load one compaction in parts.
_Rows: TypeAlias = LRUCache[tuple[str, int, float], Sequence[Row]]
_RECENT_ROWS: WeakKeyDictionary[Archive, _Rows] = WeakKeyDictionary()
_CALL_DISTANCE = 3  # a result is at most so many messages after its call, or has no name


async def compaction_list(request: PageRequest) -> Page:
    """`/sessions/ID/compactions`: all compactions, newest first.

    Repairs and undone compactions have receipts with numbers, too, so they are also listed.
    """
    info = await request.archive.session_info(request.path("session_id"))
    stored = await request.archive.stored_receipts(info.session_id)
    document: JsonObject = {
        "session_id": info.session_id,
        "compactions": [
            {"number": n, "time": iso_time(entry.timestamp_seconds), "receipt": entry.receipt}
            for n, entry in enumerate(stored)
        ][::-1],
    }
    # For the chart: number of messages, and tokens of the context before and after.
    receipts = [entry.receipt for entry in stored if is_compaction(entry.receipt)]
    steps: list[tuple[int, int, int]] = [
        (receipt["state"]["stop_seq"] + 1, receipt["tokens"]["before"], receipt["tokens"]["after"])
        for receipt in receipts
        if "stop_seq" in (receipt.get("state") or ()) and receipt.get("tokens")
    ]
    tokens = receipts[-1]["tokens"] if receipts else None
    values = {"info": info, "steps": steps, "tokens": tokens, "stored": stored}
    values["undone"] = undone_times(stored)
    return Page("compactions.html", document, values)


async def compaction(request: PageRequest) -> Page:
    """`/sessions/ID/compactions/N?show=KIND&from=R`: one compaction; N may be `last`.

    The page shows changed rows, or rows of a kind, or all, starting with row R. It loads later rows
    (`part=rows`) and the names that left the context (`part=losses`) by itself.
    """
    info = await request.archive.session_info(request.path("session_id"))
    stored = await request.archive.stored_receipts(info.session_id)
    numbers = [n for n, receipt in enumerate(stored) if is_compaction(receipt.receipt)]
    number = _requested_number(request.path("number"), info, numbers)
    receipt = stored[number].receipt
    document: JsonObject = {
        "session_id": info.session_id,
        "number": number,
        "time": iso_time(stored[number].timestamp_seconds),
        "receipt": receipt,
    }
    if request.includes("losses"):
        losses = await read_dropped_names(request.archive, info.session_id, number)
        document["receipt"] = receipt | {"losses": losses}
        if request.query.get("part") == "losses":
            return Page("losses.html", document, {"info": info})
    rows = await _rows(request.archive, info.session_id, number, stored[number])
    values = await _row_values(request, info, receipt, rows)
    if request.query.get("part") == "rows":
        return Page("change_rows.html", document, values | {"info": info})
    if request.query.get("format") == "json":
        document["rows"] = [
            {
                "kind": row.kind,
                "before": row.seqs,
                "after": [{"source_seq": e.source_seq, "message": e.raw} for e in row.after],
            }
            for row in rows
        ]
    totals = Counter[str]()
    for row in rows:
        totals[row.kind] += len(row.before) or not row.replaced_count
    values |= {
        "info": info,
        "number": number,
        "seconds": stored[number].timestamp_seconds,
        "receipt": document["receipt"],
        "sentences": [*receipt_sentences(receipt)],
        "totals": {kind: totals[kind] for kind in KINDS if totals[kind]},
        "is_undone": number in undone_times(stored),
        "previous": max((n for n in numbers if n < number), default=None),
        "next": min((n for n in numbers if n > number), default=None),
    }
    return Page("compaction.html", document, values)


async def _rows(
    archive: Archive, session_id: str, number: int, stored: StoredReceipt
) -> Sequence[Row]:
    """Return all rows of a compaction. They never change, so those of recent requests are kept."""
    known = _RECENT_ROWS.setdefault(archive, LRUCache(4))
    key = session_id, number, stored.timestamp_seconds
    if key not in known:
        lists = await archive.compacted_lists(session_id, number)
        known[key] = await to_thread.run_sync(rows_of, lists, stored.receipt)
    return known[key]


async def _row_values(
    request: PageRequest, info: SessionInfo, receipt: JsonObject, rows: Sequence[Row]
) -> dict[str, Any]:
    """Return the template values of one part of the rows.

    Raises:
        QueryError: The kind of rows is unknown.
    """
    show = request.query.get("show", "changes")
    if show not in (*KINDS, "changes", "all"):
        raise QueryError(
            f"Unknown rows {show[:20]!r}. Available: changes, all, {', '.join(KINDS)}."
        )
    # Kept messages are one line between the changes, unless all messages are shown.
    listed = [row for row in rows if show in ("changes", "all", row.kind)]
    if show == "all":
        listed = [one for row in listed for one in single_rows(row)]
    start = min(number_field(request.query, "from") or 0, len(listed))
    part = listed[start : start + _ROWS_PER_PART]
    raws = await _read_raws(request.archive, info.session_id, part)
    count = counter_for(counted_model(receipt))
    context = ViewContext(info.session_id, info.next_seq)
    views = await to_thread.run_sync(row_views, part, raws, context, info.format, count)
    stop = start + _ROWS_PER_PART
    return {
        "show": show,
        "rows": views,
        "start": start,
        "previous_start": max(0, start - _ROWS_PER_PART) if start else None,
        "next_start": stop if stop < len(listed) else None,
    }


async def _read_raws(
    archive: Archive, session_id: str, rows: Sequence[Row]
) -> dict[int, tuple[JsonObject, str]]:
    """Return the archived messages of rows with their formats, by number, in order.

    Some messages before each are read too, because results do not name their tools.
    """
    entries = (e for row in rows if not row.is_run for e in (*row.before, *row.after))
    seqs = {entry.seq for entry in entries if not entry.raw and entry.seq >= 0}
    wanted = sorted({max(0, seq - back) for seq in seqs for back in range(_CALL_DISTANCE + 1)})
    raws: dict[int, tuple[JsonObject, str]] = {}
    for _, run in groupby(enumerate(wanted), lambda pair: pair[1] - pair[0]):
        run_seqs = [seq for _, seq in run]
        messages = await archive.read_messages(session_id, run_seqs[0], run_seqs[-1])
        raws |= {message.seq: (message.raw, message.format) for message in messages}
    return raws


async def undo(request: PageRequest) -> Page | Response:
    """`POST /sessions/ID/compactions/N/undo`: undo compaction N and all later ones of the list.

    `POST /sessions/ID/put-back` with the field `pointer` puts only messages or an output back. A
    list that does not fit the window is refused with its figures; the form then asks for the
    window, in tokens.
    """
    session_id = request.path("session_id")
    number = request.http.path_params.get("number")
    info = await request.archive.session_info(session_id)
    form = await request.form()
    newest = await newest_receipt(request.archive, session_id, "compacted")
    window = number_field(form, "window") or newest.get("context_window")
    format, context = await request.archive.context(session_id)
    undo_request = CompactRequest(
        mode="undo",
        undo=number,
        restore=form.get("pointer"),
        session_id=session_id,
        format=format,
        model=counted_model(newest) or request.config.model,
        context_window=window,
        policy=newest.get("policy") or request.config.policy,
    )
    try:
        await compact(context, undo_request, archive=request.archive)
    except SettingsError as error:
        document = {"session_id": session_id, "number": number, "error": str(error)}
        values = {"info": info, "window": window, "pointer": undo_request.restore}
        return Page("undo.html", document, values, status=409)
    return RedirectResponse(f"/sessions/{session_id}/undone", 303)


async def undone(request: PageRequest) -> Page:
    """`/sessions/ID/undone`: the newest undo of a session, and how to continue from it."""
    info = await request.archive.session_info(request.path("session_id"))
    receipt = await newest_receipt(request.archive, info.session_id, "undone")
    document = {"session_id": info.session_id, "receipt": receipt or None}
    return Page("undone.html", document, {"info": info, "hosts": tuple(RESUME_FORMATS)})


def _requested_number(text: str, info: SessionInfo, numbers: Sequence[int]) -> int:
    """Return the number of the compaction that an address names.

    Raises:
        NotFoundError: The session has no such compaction.
    """
    if text == "last" and numbers:
        return numbers[-1]
    if text in map(str, numbers):
        return int(text)
    existing = ", ".join(map(str, numbers[-10:])) or "none"
    raise NotFoundError(
        f"Session {info.session_id} has no compaction {text[:20]!r}. Its newest: {existing}."
    )
