"""Replace chosen blocks of a list in one batch. All clearing layers edit in this way."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from context_compaction.activity.background import started_line
from context_compaction.activity.calls import gist_of
from context_compaction.activity.outcome import error_line
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, Edit, Step, make_blob
from context_compaction.messages.model import (
    Block,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    edit_message,
    edit_result,
    is_object,
)
from context_compaction.messages.tool_results import result_blobs, result_chars, result_text
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter


class Place(NamedTuple):
    """Index of a message, and number of a block in it."""

    message: int
    block: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a block.

    Attributes:
        block: The new block.
        blobs: The archived content of the old block.
        saved_tokens: Tokens saved in the context.
        action: The action of the `Edit`.
        tool_name: Tool of the call or result; None for other blocks.
        note: The reason, for people.
        archived_ids: Outputs that contain the old content if an earlier edit has archived it.
    """

    block: Block
    blobs: tuple[Blob, ...]
    saved_tokens: int
    action: str
    tool_name: str | None = None
    note: str = ""
    archived_ids: tuple[str, ...] = ()


def protected_names(settings: Settings) -> frozenset[str]:
    """Return the names of protected tools in lower case."""
    return frozenset(name.lower() for name in settings.protected_tools)


def clear_result(
    result: ToolResult,
    tool_name: str,
    count: MessageCounter,
    reason: str = "",
    words: str = "",
    outcome: str = "",
) -> Replacement | None:
    """Return the placeholder for `result`. None if it is one, must stay, or would not get smaller.

    Args:
        result: The result.
        tool_name: Name of its tool.
        count: The token counter.
        reason: Why it is cleared, for the placeholder.
        words: A policy's own words for the placeholder.
        outcome: A line to keep. A failed result keeps its error line instead. The ID of work in the
            background stays otherwise.
    """
    if placeholders.is_placeholder(result) or result.loads_tools:
        return None
    blobs = result_blobs(result, tool_name)
    if not blobs:
        return None
    size_chars = result_chars(result)
    text = (
        placeholders.custom_cleared_placeholder(words, tool_name, size_chars, blobs)
        if words
        else placeholders.cleared(tool_name, size_chars, blobs, reason)
    )
    content = result_text(result)
    if line := error_line(content) if result.is_error else outcome or started_line(content):
        text = f"{text}\n{placeholders.quoted(line)}"
    cleared = edit_result(result, (Text(text, author="compaction"),))
    saved_tokens = count.block(result) - count.block(cleared)
    if saved_tokens <= 0:
        return None
    return Replacement(cleared, blobs, saved_tokens, "cleared", tool_name, reason)


def clip_call(call: ToolCall, count: MessageCounter, limit_chars: int) -> Replacement | None:
    """Return `call` with string arguments above `limit_chars` clipped. None if nothing is saved."""
    # A tenth of the limit, or more of a small limit, is enough to recognize the argument.
    head_chars = max(limit_chars // 10, min(limit_chars // 2, 100))
    blobs: list[Blob] = []

    def clip(value: Any) -> Any:
        if not isinstance(value, str) or len(value) <= limit_chars:
            return value
        if placeholders.is_clipped(value):
            return value
        blob = make_blob(value, tool_name=call.name, call_id=call.call_id)
        blobs.append(blob)
        return placeholders.clipped(gist_of(value)[:head_chars], len(value), blob)

    arguments: object = call.arguments
    if is_object(arguments):
        clipped: Any = {name: clip(value) for name, value in arguments.items()}
    else:
        clipped = clip(arguments)
    if not blobs:
        return None
    shorter = replace(call, arguments=clipped, edited=True)
    saved_tokens = count.block(call) - count.block(shorter)
    if saved_tokens <= 0:
        return None
    return Replacement(shorter, tuple(blobs), saved_tokens, "clipped", call.name)


def clear_marker(result: ToolResult, tool_name: str, count: MessageCounter) -> Replacement | None:
    """Return `result` without the preview in its marker. None if it contains no marker."""
    for number, part in enumerate(result.content):
        text = part.text if isinstance(part, Text) and part.author == "compaction" else ""
        if shorter := placeholders.placeholder_from_marker(text):
            if line := started_line(placeholders.preview_in(text)):
                shorter = f"{shorter}\n{line}"
            content = [*result.content]
            content[number] = Text(shorter, author="compaction")
            cleared = edit_result(result, tuple(content))
            saved_tokens = count.block(result) - count.block(cleared)
            ids = placeholders.ids_in_placeholder(text)
            note = "the model has seen its preview"
            return Replacement(cleared, (), saved_tokens, "cleared", tool_name, note, ids)
    return None


def replace_blocks(
    messages: Messages, chosen: Mapping[Place, Replacement], count: MessageCounter, *, layer: str
) -> Step:
    """Return the list with every chosen block replaced; the same object if none is chosen."""
    if not chosen:
        return Step(messages)
    out = list(messages)
    edits: list[Edit] = []
    blobs: list[Blob] = []
    for place in sorted(chosen):
        replacement = chosen[place]
        message = out[place.message]
        tokens_before = count.block(message.blocks[place.block])
        blocks = [*message.blocks]
        blocks[place.block] = replacement.block
        out[place.message] = edit_message(message, blocks)
        blobs.extend(replacement.blobs)
        edits.append(
            Edit(
                layer,
                replacement.action,
                message.index,
                tokens_before,
                tokens_before - replacement.saved_tokens,
                replacement.archived_ids or tuple(blob.output_id for blob in replacement.blobs),
                replacement.tool_name,
                replacement.note,
            )
        )
    return Step(tuple(out), tuple(edits), tuple(blobs))
