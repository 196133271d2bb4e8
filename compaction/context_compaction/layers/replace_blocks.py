"""Replace chosen blocks of a list in one batch: the one way in which the clearing layers edit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from context_compaction.activity.calls import gist_of
from context_compaction.activity.outcome import error_line
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, Edit, Step
from context_compaction.messages.model import (
    Block,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    edit_message,
    edit_result,
)
from context_compaction.messages.tool_results import (
    argument_blob,
    result_blobs,
    result_chars,
    result_text,
)
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter


class Place(NamedTuple):
    """Position of a message, and of a block in the message."""

    message: int
    block: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a block.

    Attributes:
        block: The new block.
        blobs: The archived content of the old one.
        saved_tokens: The tokens saved in the context.
        action: The word for the receipt.
        tool_name: The tool concerned, if one is.
        note: The reason, for people.
        kept: The outputs that contain the replaced text, where an earlier edit has archived them.
    """

    block: Block
    blobs: tuple[Blob, ...]
    saved_tokens: int
    action: str
    tool_name: str | None = None
    note: str = ""
    kept: tuple[str, ...] = ()


def protected_names(settings: Settings) -> frozenset[str]:
    """The tools whose calls and results stay, in lower case."""
    return frozenset(name.lower() for name in settings.protected_tools)


def clear_result(
    result: ToolResult,
    tool_name: str,
    count: MessageCounter,
    reason: str = "",
    words: str = "",
    outcome: str = "",
) -> Replacement | None:
    """The placeholder for `result`; None where it would not be smaller, or is one already.

    A failed result keeps its error line, another one `outcome`. `words` are a policy's own.
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
    if line := error_line(result_text(result)) if result.is_error else outcome:
        text = f"{text}\n{placeholders.quoted(line)}"
    cleared = edit_result(result, (Text(text, author="compaction"),))
    saved_tokens = count.block(result) - count.block(cleared)
    if saved_tokens <= 0:
        return None
    return Replacement(cleared, blobs, saved_tokens, "cleared", tool_name, reason)


def clip_call(call: ToolCall, count: MessageCounter, limit_chars: int) -> Replacement | None:
    """`call` with its string arguments above `limit_chars` cut to a head.

    None where there are none, or nothing is saved.
    """
    # A tenth of the limit, and more of a small one: enough to recognise it.
    head_chars = max(limit_chars // 10, min(limit_chars // 2, 100))
    blobs: list[Blob] = []

    def clip(value: Any) -> Any:
        if (
            not isinstance(value, str)
            or len(value) <= limit_chars
            or placeholders.is_clipped(value)
        ):
            return value
        blob = argument_blob(call, value)
        blobs.append(blob)
        return placeholders.clipped(gist_of(value)[:head_chars], len(value), blob)

    arguments = call.arguments
    if isinstance(arguments, dict):
        named = cast("dict[str, Any]", arguments)
        clipped: Any = {name: clip(value) for name, value in named.items()}
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
    """`result` without the preview in our marker; None where it contains no marker."""
    for at, part in enumerate(result.content):
        text = part.text if isinstance(part, Text) and part.author == "compaction" else ""
        if shorter := placeholders.placeholder_from_marker(text):
            content = [*result.content]
            content[at] = Text(shorter, author="compaction")
            cleared = edit_result(result, tuple(content))
            saved_tokens = count.block(result) - count.block(cleared)
            kept = placeholders.ids_in_placeholder(text)
            note = "its preview has been read"
            return Replacement(cleared, (), saved_tokens, "cleared", tool_name, note, kept)
    return None


def replace_blocks(
    messages: Messages, chosen: Mapping[Place, Replacement], count: MessageCounter, *, layer: str
) -> Step:
    """The list with every chosen block replaced; the same object where none was chosen."""
    if not chosen:
        return Step(messages)
    out = list(messages)
    edits: list[Edit] = []
    blobs: list[Blob] = []
    for place in sorted(chosen):
        done = chosen[place]
        message = out[place.message]
        before = count.block(message.blocks[place.block])
        blocks = [*message.blocks]
        blocks[place.block] = done.block
        out[place.message] = edit_message(message, blocks)
        blobs.extend(done.blobs)
        edits.append(
            Edit(
                layer,
                done.action,
                message.index,
                before,
                before - done.saved_tokens,
                done.kept or tuple(blob.output_id for blob in done.blobs),
                done.tool_name,
                done.note,
            )
        )
    return Step(tuple(out), tuple(edits), tuple(blobs))
