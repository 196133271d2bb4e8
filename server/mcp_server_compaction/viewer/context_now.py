"""What fills the context now, and what the next compaction would make of it."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from anyio import to_thread
from context_compaction import (
    POLICIES,
    CompactRequest,
    CompactResult,
    JsonObject,
    QueryError,
    counter_for,
    profile_for,
)

from mcp_server_compaction.viewer.sizes import (
    KINDS,
    by_kind,
    by_tool,
    counted_model,
    pieces_of,
)
from mcp_server_compaction.viewer.web import Page, Visit, whole_number
from mcp_server_compaction.viewer.words import sentences

# More messages than any window holds; what is older is not counted here.
MOST_MESSAGES = 20_000
_BIGGEST = 25
_MOST_CLEARED = 100
_NAMES = {**KINDS, "free": "free until compaction starts", "reserve": "reserve for the answer"}


async def context_now(visit: Visit) -> Page:
    """`/sessions/ID/context?policy=&window=`: the frame at once, `part=counted` what takes time."""
    info = await visit.archive.session_info(visit.path("session_id"))
    policy = visit.query.get("policy", visit.config.policy)
    if policy not in POLICIES:
        raise QueryError(
            f"There is no policy {policy[:60]!r}. Choose one of: {', '.join(POLICIES)}."
        )
    newest = await visit.archive.receipts(info.session_id, after=-1)
    model = visit.query.get("model") or counted_model(newest) or visit.config.model
    request = CompactRequest(
        mode="plan",
        session_id=info.session_id,
        context_window=whole_number(visit.query, "window") or profile_for(model).context_window,
        model=model,
        policy=policy,
        summarizer="extractive",
    )
    shown = {"info": info, "request": request, "policies": tuple(POLICIES)}
    is_part = visit.query.get("part") == "counted"
    if not is_part and visit.query.get("format") != "json":
        return Page("context.html", {"session_id": info.session_id}, shown)
    document, counted = await _counted(visit, request)
    return Page("context_counted.html", document, shown | counted)


async def _counted(visit: Visit, request: CompactRequest) -> tuple[JsonObject, dict[str, Any]]:
    session_id, window = str(request.session_id), request.context_window or 0
    format, raws = await visit.archive.context(session_id, after=-MOST_MESSAGES)
    count = await to_thread.run_sync(counter_for, request.model)
    pieces = await to_thread.run_sync(pieces_of, raws, format, count)
    plan = await _plan(visit, replace(request, format=format), raws) if raws else None
    trigger = plan[0] if plan else window
    planned = plan[1] if plan else None
    kinds = by_kind(pieces)
    used = sum(kinds.values())
    free = max(0, trigger - used)
    parts = [*kinds.items(), ("free", free), ("reserve", max(0, window - max(trigger, used)))]
    tools = by_tool(pieces)
    biggest = sorted(pieces, key=lambda piece: -piece.tokens)[:_BIGGEST]
    document: JsonObject = {
        "session_id": session_id,
        "message_count": len(raws),
        "context_window": window,
        "trigger_tokens": trigger,
        "used_tokens": used,
        "free_tokens": free,
        "tokens_by_kind": kinds,
        "results_by_tool": [
            {"tool": name, "results": number, "tokens": tokens} for name, number, tokens in tools
        ],
        "biggest": [asdict(piece) for piece in biggest],
        "method": count.method,
        "plan": planned.receipt if planned else None,
    }
    texts: dict[int | None, str] = {piece.message: piece.text for piece in reversed(pieces)}
    saving = [e for e in planned.edits if e.tokens_before > e.tokens_after] if planned else []
    saving.sort(key=lambda edit: edit.tokens_after - edit.tokens_before)
    return document, {
        "scale": 1000 / max(window, trigger, used, 1),
        "parts": [(kind, _NAMES[kind], tokens) for kind, tokens in parts if tokens],
        "plan": planned,
        "words": [*sentences(planned.receipt)] if planned and planned.receipt else [],
        "cleared": [(edit, texts.get(edit.index, edit.note)) for edit in saving[:_MOST_CLEARED]],
    }


async def _plan(
    visit: Visit, request: CompactRequest, raws: Sequence[JsonObject]
) -> tuple[int, CompactResult]:
    """The trigger, and what the next compaction would do; where it is not due, would do now."""
    from context_compaction import compact

    due = await compact(raws, request, archive=visit.archive)
    if due.status != "unchanged" or due.tokens.before <= due.tokens.target:
        return due.tokens.trigger, due
    now = replace(request, context_window=None, target_tokens=due.tokens.target)
    return due.tokens.trigger, await compact(raws, now, archive=visit.archive)
