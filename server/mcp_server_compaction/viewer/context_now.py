"""The page that shows what fills a session's context, and what the next compaction would do."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anyio import to_thread
from context_compaction import (
    MESSAGE_TOKENS,
    POLICIES,
    Block,
    CompactRequest,
    CompactResult,
    Document,
    Image,
    JsonObject,
    Message,
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

from mcp_server_compaction.reading.plain_text import block_text
from mcp_server_compaction.viewer.blocks import parsed, single_line
from mcp_server_compaction.viewer.formatting import counted_model, receipt_sentences
from mcp_server_compaction.viewer.marks import newest_receipt
from mcp_server_compaction.viewer.web import Page, PageRequest, number_field

# Kinds of content with their names, in the order of the page's bar chart.
KINDS = {
    "system": "system messages",
    "user": "user",
    "assistant": "assistant",
    "thinking": "thinking",
    "call": "tool calls",
    "result": "tool results",
    "image": "images and documents",
    "inserted": "summaries and placeholders",
    "other": "other blocks",
}
_NAMES = {**KINDS, "free": "free until compaction starts", "reserve": "response and safety margin"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One block of the context.

    Attributes:
        message: Index of the message among those that are counted (the newest 20,000).
        block: Index of the block in the message.
        kind: Kind of the content, a key of `KINDS`.
        name: Name of the tool, of the kind, or of an unknown block's type.
        tokens: Estimated number of tokens.
        text: Beginning of the text, on one line.
    """

    message: int
    block: int
    kind: str
    name: str
    tokens: int
    text: str = ""


async def context_now(request: PageRequest) -> Page:
    """Answer `/sessions/ID/context?policy=&model=&window=`, with `window` in tokens.

    The page contains a form. Browsers then request `part=counted`, because counting takes time.
    """
    info = await request.archive.session_info(request.path("session_id"))
    receipt = await newest_receipt(request.archive, info.session_id, "compacted")
    policy = request.query.get("policy") or receipt.get("policy") or request.config.policy
    if policy not in POLICIES:
        raise QueryError(f"Unknown policy {policy[:60]!r}. Available: {', '.join(POLICIES)}.")
    model = request.query.get("model") or counted_model(receipt) or request.config.model
    window = number_field(request.query, "window") or receipt.get("context_window")
    compact_request = CompactRequest(
        mode="plan",
        session_id=info.session_id,
        context_window=window or profile_for(model).context_window,
        model=model,
        policy=policy,
        summarizer="extractive",
    )
    values = {
        "info": info,
        "request": compact_request,
        "policies": tuple(POLICIES),
        "is_known": bool(receipt) and not {"policy", "window", "model"} & request.query.keys(),
    }
    if not request.includes("counted"):
        return Page("context.html", {"session_id": info.session_id}, values)
    # The caller may have set more of the budget than this page knows.
    known: JsonObject = receipt["tokens"] if values["is_known"] else {}
    document, counted = await _counted(request, compact_request, known)
    return Page("context_counted.html", document, values | counted)


async def _counted(
    request: PageRequest, compact_request: CompactRequest, known: JsonObject
) -> tuple[JsonObject, dict[str, Any]]:
    """Return the JSON document and the template values of the counted part.

    Args:
        request: The request.
        compact_request: The plan to make.
        known: Trigger and target of the session; empty if the plan decides.
    """
    session_id, window = str(compact_request.session_id), compact_request.context_window or 0
    # Only the newest 20,000 messages: a window hardly holds more.
    format, raws = await request.archive.context(session_id, after=-20_000)
    count = await to_thread.run_sync(counter_for, compact_request.model)
    pieces = await to_thread.run_sync(_pieces_of, raws, format, count)
    trigger, plan = window, None
    if raws:
        trigger, plan = await _plan(request, replace(compact_request, format=format), raws)
    trigger = known.get("trigger", trigger)
    tokens_by_kind = _tokens_by_kind(pieces)
    used = sum(tokens_by_kind.values())
    free, reserve = max(0, trigger - used), max(0, window - max(trigger, used))
    parts = [*tokens_by_kind.items(), ("free", free), ("reserve", reserve)]
    largest = sorted(pieces, key=lambda piece: -piece.tokens)[:10]
    document: JsonObject = {
        "session_id": session_id,
        "message_count": len(raws),
        "context_window": window,
        "policy": compact_request.policy,
        "trigger_tokens": trigger,
        "target_tokens": known.get("target", plan.tokens.target if plan else None),
        "used_tokens": used,
        "free_tokens": free,
        "tokens_by_kind": tokens_by_kind,
        "results_by_tool": _results_by_tool(pieces),
        "largest": [asdict(piece) for piece in largest],
        "method": count.method,
        "plan": plan.receipt if plan else None,
    }
    texts: dict[int | None, str] = {piece.message: piece.text for piece in reversed(pieces)}
    savings = [e for e in plan.edits if e.tokens_before > e.tokens_after] if plan else []
    savings.sort(key=lambda edit: edit.tokens_after - edit.tokens_before)
    planned = {**plan.receipt, "tokens": None} if plan else JsonObject()
    return document, {
        "scale": 1000 / max(window, trigger, used, 1),
        "parts": [(kind, _NAMES[kind], tokens) for kind, tokens in parts if tokens],
        "plan": plan,
        "sentences": [*receipt_sentences(planned)],
        "savings": [(e, texts.get(e.index, e.note)) for e in savings[:100]],
    }


async def _plan(
    request: PageRequest, compact_request: CompactRequest, raws: Sequence[JsonObject]
) -> tuple[int, CompactResult]:
    """Return the trigger, and the plan of a compaction that starts now.

    A context that is above the target, but not above the trigger, is planned without a window, so
    that there is a plan to show.
    """
    from context_compaction import compact

    plan = await compact(raws, compact_request, archive=request.archive)
    trigger = plan.tokens.trigger
    if plan.status == "unchanged" and plan.tokens.before > plan.tokens.target:
        forced = replace(compact_request, context_window=None, target_tokens=plan.tokens.target)
        plan = await compact(raws, forced, archive=request.archive)
    return trigger, plan


def _pieces_of(raws: Sequence[JsonObject], format: str, count: MessageCounter) -> list[Piece]:
    """Return all blocks of a message list with their tokens. Blocking, so call it in a thread."""
    calls: dict[str, ToolCall] = {}
    pieces: list[Piece] = []
    for index, raw in enumerate(raws):
        message = parsed(raw, format)
        calls |= {call.call_id: call for call in tool_calls(message)}
        for number, block in enumerate(message.blocks):
            kind, name = _kind_and_name(block, message, calls)
            # The first block carries the tokens that a message costs in addition to its blocks.
            tokens = count.block(block) + (0 if number else MESSAGE_TOKENS)
            pieces.append(Piece(index, number, kind, name, tokens, _beginning(block)))
    return pieces


def _kind_and_name(
    block: Block, message: Message, calls: Mapping[str, ToolCall]
) -> tuple[str, str]:
    match block:
        case Text():
            kind = "inserted" if seems_synthetic(block.text) else message.role
            return kind, KINDS[kind]
        case Thinking():
            return "thinking", KINDS["thinking"]
        case ToolCall():
            return "call", block.name
        case ToolResult():
            call = calls.get(block.call_id)
            name = block.name or (call.name if call is not None else "unknown tool")
            # An image beside a placeholder is still a result.
            first = block.content[0] if len(block.content) == 1 else None
            is_placeholder = isinstance(first, Text) and ids_in_placeholder(first.text)
            return "inserted" if is_placeholder else "result", name
        case Image() | Document():
            return "image", KINDS["image"]
        case _:
            return "other", block.kind


def _beginning(block: Block) -> str:
    if isinstance(block, Image | Opaque):
        return ""
    if isinstance(block, ToolCall) and not isinstance(block.arguments, str):
        return single_line(json.dumps(block.arguments, ensure_ascii=False), 120)
    return single_line(block_text(block), 120)


def _tokens_by_kind(pieces: Sequence[Piece]) -> dict[str, int]:
    """Return the tokens of each kind that occurs, in the order of `KINDS`."""
    totals: Counter[str] = Counter()
    for piece in pieces:
        totals[piece.kind] += piece.tokens
    return {kind: totals[kind] for kind in KINDS if totals[kind]}


def _results_by_tool(pieces: Sequence[Piece]) -> list[JsonObject]:
    """Return the number and tokens of each tool's results, without placeholders.

    The tool with the most tokens comes first.
    """
    counts, totals = Counter[str](), Counter[str]()
    for piece in pieces:
        if piece.kind == "result":
            counts[piece.name] += 1
            totals[piece.name] += piece.tokens
    return [
        {"tool": tool, "results": counts[tool], "tokens": tokens}
        for tool, tokens in totals.most_common()
    ]
