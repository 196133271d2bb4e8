"""What fills the context now, and what the next compaction would make of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anyio import to_thread
from context_compaction.archive import SessionInfo
from context_compaction.errors import QueryError
from context_compaction.messages.model import JsonObject
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.tokens.counter import counter_for
from context_compaction.tokens.models import profile_for

from mcp_server_compaction.viewer.sizes import (
    KINDS,
    Piece,
    bar,
    by_kind,
    by_tool,
    counted_model,
    pieces_of,
)
from mcp_server_compaction.viewer.web import Page, Visit
from mcp_server_compaction.viewer.words import sentences

# More messages than any window holds; what is older is not counted here.
MOST_MESSAGES = 20_000
_BIGGEST = 25


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
    window = visit.number("window", 0) or profile_for(model).context_window
    shown = {
        "info": info,
        "policy": policy,
        "policies": tuple(POLICIES),
        "window": window,
        "model": model or "",
    }
    is_part = visit.query.get("part") == "counted"
    if not is_part and visit.query.get("format") != "json":
        return Page("context.html", {"session_id": info.session_id}, shown)
    document, counted = await _counted(visit, info, policy, window, model)
    return Page("context_counted.html", document, shown | counted)


async def _counted(
    visit: Visit, info: SessionInfo, policy: str, window: int, model: str | None
) -> tuple[JsonObject, dict[str, Any]]:
    format, raws = await visit.archive.context(info.session_id, after=-MOST_MESSAGES)
    count = await to_thread.run_sync(counter_for, model)
    pieces = await to_thread.run_sync(pieces_of, raws, format, count)
    trigger, planned = window, None
    if raws:
        trigger, planned = await _plan(visit, info, raws, format, policy, window, model)
    kinds = by_kind(pieces)
    used = sum(kinds.values())
    free = max(0, trigger - used)
    parts = [*kinds.items(), ("free", free), ("reserve", max(0, window - max(trigger, used)))]
    biggest = sorted(pieces, key=lambda piece: -piece.tokens)[:_BIGGEST]
    document: JsonObject = {
        "session_id": info.session_id,
        "message_count": len(raws),
        "context_window": window,
        "trigger_tokens": trigger,
        "used_tokens": used,
        "free_tokens": free,
        "tokens_by_kind": kinds,
        "results_by_tool": [
            {"tool": name, "results": number, "tokens": tokens}
            for name, number, tokens in by_tool(pieces)
        ],
        "biggest": [_piece_document(piece) for piece in biggest],
        "method": count.method,
        "plan": planned.receipt if planned else None,
    }
    return document, {
        "bar": bar(parts, window),
        "parts": [(kind, _NAMES.get(kind, kind), tokens) for kind, tokens in parts if tokens],
        "tools": by_tool(pieces),
        "biggest": biggest,
        "plan": planned,
        "words": sentences(planned.receipt) if planned and planned.receipt else [],
        "cleared": _cleared(planned, pieces),
    }


_NAMES = {**KINDS, "free": "free until compaction starts", "reserve": "reserve for the answer"}


async def _plan(
    visit: Visit,
    info: SessionInfo,
    raws: Sequence[JsonObject],
    format: str,
    policy: str,
    window: int,
    model: str | None,
) -> tuple[int, CompactResult]:
    """The trigger, and what the next compaction would do; where it is not due, would do now."""
    from context_compaction.pipeline.compact import compact

    request = CompactRequest(
        mode="plan",
        format=format,
        session_id=info.session_id,
        context_window=window,
        model=model,
        policy=policy,
        summarizer="extractive",
    )
    due = await compact(raws, request, archive=visit.archive)
    if due.status != "unchanged" or due.tokens.before <= due.tokens.target:
        return due.tokens.trigger, due
    now = replace(request, context_window=None, target_tokens=due.tokens.target)
    return due.tokens.trigger, await compact(raws, now, archive=visit.archive)


def _cleared(planned: CompactResult | None, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """What a plan would change, largest first, with the beginning of its text."""
    if planned is None or planned.status != "planned":
        return []
    texts = {piece.at: piece for piece in reversed(pieces)}
    saving = [edit for edit in planned.edits if edit.tokens_before > edit.tokens_after]
    saving.sort(key=lambda edit: edit.tokens_after - edit.tokens_before)
    return [
        {"edit": edit, "text": texts[edit.index].text if edit.index in texts else edit.note}
        for edit in saving[:100]
    ]


def _piece_document(piece: Piece) -> JsonObject:
    return {
        "message": piece.at,
        "block": piece.block,
        "kind": piece.kind,
        "name": piece.label,
        "tokens": piece.tokens,
        "text": piece.text,
    }
