"""Replace chosen blocks of a list in one batch. All clearing layers edit in this way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from context_compaction.activity.background import started_line
from context_compaction.activity.calls import gist_of, is_steering
from context_compaction.activity.outcome import error_line, is_failed
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
        edit: The change, still without its layer and the index of the message.
    """

    block: Block
    blobs: Sequence[Blob]
    edit: Edit

    @property
    def saved_tokens(self) -> int:
        """Tokens saved in the context."""
        return self.edit.tokens_before - self.edit.tokens_after


def smaller(
    old: Block,
    new: Block,
    blobs: Sequence[Blob],
    count: MessageCounter,
    action: str,
    tool_name: str | None = None,
    note: str = "",
    archived_ids: tuple[str, ...] = (),
) -> Replacement | None:
    """Return the replacement of `old` by `new`; None if that saves no tokens.

    `archived_ids` are outputs with the content of `old` if an earlier edit has archived it.
    """
    sizes = count.block(old), count.block(new)
    pointers = archived_ids or tuple(blob.output_id for blob in blobs)
    edit = Edit("", action, None, *sizes, pointers, tool_name, note)
    return Replacement(new, blobs, edit) if sizes[1] < sizes[0] else None


def is_protected(tool_name: str, settings: Settings) -> bool:
    """Whether a tool's results are never cleared: the caller protects it, or it steers the work."""
    is_named = tool_name.lower() in map(str.lower, settings.protected_tools)
    return is_named or is_steering(tool_name)


def clear_result(
    result: ToolResult,
    tool_name: str,
    count: MessageCounter,
    reason: str = "",
    words: str = "",
) -> Replacement | None:
    """Return the placeholder for `result`. None if it is one, must stay, or would not get smaller.

    It keeps the line of the error if the call failed, and the ID of work in the background.

    Args:
        result: The result.
        tool_name: Name of its tool.
        count: The token counter.
        reason: Why it is cleared, for the placeholder.
        words: A policy's own words for the placeholder.
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
    if line := error_line(content) if is_failed(result) else started_line(content):
        text = f"{text}\n{placeholders.quoted(line)}"
    cleared = edit_result(result, (Text(text, author="compaction"),))
    return smaller(result, cleared, blobs, count, "cleared", tool_name, reason)


def persist_result(
    result: ToolResult, tool_name: str, count: MessageCounter, show: Callable[[str], str]
) -> Replacement | None:
    """Return `result` with its texts replaced by one marker. Other parts, such as images, stay.

    `show` gets the marker with a blank preview, and returns the preview. None if the result would
    not become smaller.
    """
    texts = tuple(part for part in result.content if isinstance(part, Text))
    media = tuple(part for part in result.content if not isinstance(part, Text))
    blobs = result_blobs(result, tool_name, texts)
    if not blobs:
        return None
    size_chars = sum(len(part.text) for part in texts)
    shown = show(placeholders.persisted(blobs, " ", tool_name, size_chars))
    text = placeholders.persisted(blobs, shown, tool_name, size_chars)
    marked = edit_result(result, (Text(text, author="compaction"), *media))
    return smaller(result, marked, blobs, count, "persisted", tool_name)


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
    return smaller(call, shorter, blobs, count, "clipped", call.name)


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
            ids = placeholders.ids_in_placeholder(text)
            note = "the model has seen its preview"
            return smaller(result, cleared, (), count, "cleared", tool_name, note, ids)
    return None


def replace_blocks(messages: Messages, chosen: Mapping[Place, Replacement], *, layer: str) -> Step:
    """Return the list with every chosen block replaced; the same object if none is chosen."""
    if not chosen:
        return Step(messages)
    out = list(messages)
    edits: list[Edit] = []
    blobs: list[Blob] = []
    for place, replacement in sorted(chosen.items()):
        message = out[place.message]
        blocks = [*message.blocks]
        blocks[place.block] = replacement.block
        out[place.message] = edit_message(message, blocks)
        blobs.extend(replacement.blobs)
        edits.append(replace(replacement.edit, layer=layer, index=message.index))
    return Step(tuple(out), tuple(edits), tuple(blobs))
