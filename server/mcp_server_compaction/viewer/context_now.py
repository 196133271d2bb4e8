"""What fills the context now, by kind and by tool, and what the next compaction would do."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anyio import to_thread
from context_compaction import (
    POLICIES,
    Block,
    CompactRequest,
    CompactResult,
    Document,
    Image,
    JsonObject,
    MessageCounter,
    Opaque,
    QueryError,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    counter_for,
    ids_in_placeholder,
    profile_for,
    seems_synthetic,
    tool_calls,
)
from context_compaction.tokens.counter import MESSAGE_TOKENS

from mcp_server_compaction.reading.plain_text import block_text
from mcp_server_compaction.viewer.blocks import parsed, shorten
from mcp_server_compaction.viewer.web import Page, Visit, whole_number
from mcp_server_compaction.viewer.words import sentences

# In the order in which they stand in a bar, each with its name.
KINDS = {
    "system": "system messages",
    "user": "the user",
    "assistant": "the assistant",
    "thinking": "thinking",
    "call": "calls of tools",
    "result": "results of tools",
    "image": "pictures and documents",
    "made": "summaries and placeholders",
    "other": "other blocks",
}
_NAMES = {**KINDS, "free": "free until compaction starts", "reserve": "reserve for the answer"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One block of a context.

    Attributes:
        message: The message's place in the list, from 0.
        block: The block's place in the message.
        kind: One of `KINDS`.
        name: The tool, or what the kind is called.
        tokens: Its estimate.
        text: The beginning of its text.
    """

    message: int
    block: int
    kind: str
    name: str
    tokens: int
    text: str = ""


async def context_now(visit: Visit) -> Page:
    """`/sessions/ID/context?policy=&window=`: the frame at once, `part=counted` what takes time."""
    info = await visit.archive.session_info(visit.path("session_id"))
    policy = visit.query.get("policy", visit.config.policy)
    if policy not in POLICIES:
        raise QueryError(
            f"There is no policy {policy[:60]!r}. Choose one of: {', '.join(POLICIES)}."
        )
    newest = await visit.archive.receipts(info.session_id, after=-1)
    model = visit.query.get("model") or _counted_model(newest) or visit.config.model
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
    # More messages than any window holds; what is older is not counted here.
    format, raws = await visit.archive.context(session_id, after=-20_000)
    count = await to_thread.run_sync(counter_for, request.model)
    pieces = await to_thread.run_sync(_pieces_of, raws, format, count)
    plan = await _plan(visit, replace(request, format=format), raws) if raws else None
    trigger = plan[0] if plan else window
    planned = plan[1] if plan else None
    kinds = _by_kind(pieces)
    used = sum(kinds.values())
    free = max(0, trigger - used)
    parts = [*kinds.items(), ("free", free), ("reserve", max(0, window - max(trigger, used)))]
    tools = _by_tool(pieces)
    biggest = sorted(pieces, key=lambda piece: -piece.tokens)[:25]
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
        "cleared": [(edit, texts.get(edit.index, edit.note)) for edit in saving[:100]],
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


def _counted_model(receipts: Sequence[JsonObject]) -> str | None:
    """A model that is counted like the newest compaction counted; None where none names one."""
    for receipt in reversed(receipts):
        tokens: JsonObject = receipt.get("tokens") or {}
        family = str(tokens.get("method", "")).rpartition("/")[2]
        if family and family != "unknown":
            return "gpt" if family == "openai" else family
    return None


def _pieces_of(raws: Sequence[JsonObject], format: str, count: MessageCounter) -> list[Piece]:
    """Every block of a list; call it in a thread, since counting takes its time."""
    calls: dict[str, ToolCall] = {}
    found: list[Piece] = []
    for at, raw in enumerate(raws):
        message = parsed(raw, format)
        calls |= {call.call_id: call for call in tool_calls(message)}
        for number, block in enumerate(message.blocks):
            kind, name = _kind_of(block, message.role, calls)
            # What a message costs beside its blocks is charged to its first one.
            tokens = count.block(block) + (0 if number else MESSAGE_TOKENS)
            text = "" if isinstance(block, Image | Opaque) else _beginning(block)
            found.append(Piece(at, number, kind, name, tokens, text))
    return found


def _kind_of(block: Block, role: str, calls: dict[str, ToolCall]) -> tuple[str, str]:
    match block:
        case Text():
            kind = "made" if seems_synthetic(block.text) else role
            return kind, KINDS[kind]
        case Thinking():
            return "thinking", KINDS["thinking"]
        case ToolCall():
            return "call", block.name
        case ToolResult():
            call = calls.get(block.call_id)
            name = block.name or (call.name if call is not None else "unknown tool")
            first = block.content[0] if len(block.content) == 1 else None
            if isinstance(first, Text) and ids_in_placeholder(first.text):
                return "made", name
            return "result", name
        case Image() | Document():
            return "image", KINDS["image"]
        case _:
            return "other", block.kind


def _beginning(block: Block) -> str:
    text = block_text(block)
    if isinstance(block, ToolCall) and not isinstance(block.arguments, str):
        text = json.dumps(block.arguments, ensure_ascii=False)
    return shorten(" ".join(text[:400].split()), 120)


def _by_kind(pieces: Sequence[Piece]) -> dict[str, int]:
    """The tokens of each kind that occurs, in the order of `KINDS`."""
    found = dict.fromkeys(KINDS, 0)
    for piece in pieces:
        found[piece.kind] += piece.tokens
    return {kind: tokens for kind, tokens in found.items() if tokens}


def _by_tool(pieces: Sequence[Piece]) -> list[tuple[str, int, int]]:
    """For each tool the number of its results and their tokens, most first."""
    found: dict[str, list[int]] = {}
    for piece in pieces:
        if piece.kind == "result":
            found.setdefault(piece.name, []).append(piece.tokens)
    rows = [(name, len(sizes), sum(sizes)) for name, sizes in found.items()]
    return sorted(rows, key=lambda row: -row[2])
