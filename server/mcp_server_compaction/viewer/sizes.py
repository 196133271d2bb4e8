"""What fills a context: the tokens of each block, by kind and by tool."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from context_compaction import (
    Block,
    Document,
    Image,
    JsonObject,
    MessageCounter,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ids_in_placeholder,
    seems_synthetic,
    tool_calls,
)
from context_compaction.tokens.counter import MESSAGE_TOKENS

from mcp_server_compaction.reading.plain_text import block_text
from mcp_server_compaction.viewer.blocks import parsed

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

# Families that are not themselves the name of a model.
_MODEL_OF_FAMILY = {"openai": "gpt"}


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


def counted_model(receipts: Sequence[JsonObject]) -> str | None:
    """A model that is counted like the newest compaction counted; None where none names one."""
    for receipt in reversed(receipts):
        tokens: JsonObject = receipt.get("tokens") or {}
        family = str(tokens.get("method", "")).rpartition("/")[2]
        if family and family != "unknown":
            return _MODEL_OF_FAMILY.get(family, family)
    return None


def pieces_of(raws: Sequence[JsonObject], format: str, count: MessageCounter) -> list[Piece]:
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
    return " ".join(text[:400].split())[:120]


def by_kind(pieces: Sequence[Piece]) -> dict[str, int]:
    """The tokens of each kind that occurs, in the order of `KINDS`."""
    found = dict.fromkeys(KINDS, 0)
    for piece in pieces:
        found[piece.kind] += piece.tokens
    return {kind: tokens for kind, tokens in found.items() if tokens}


def by_tool(pieces: Sequence[Piece]) -> list[tuple[str, int, int]]:
    """For each tool the number of its results and their tokens, most first."""
    found: dict[str, list[int]] = {}
    for piece in pieces:
        if piece.kind == "result":
            found.setdefault(piece.name, []).append(piece.tokens)
    rows = [(name, len(sizes), sum(sizes)) for name, sizes in found.items()]
    return sorted(rows, key=lambda row: -row[2])
