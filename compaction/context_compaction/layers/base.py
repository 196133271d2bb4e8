"""The types of a layer, and the function by which clearing layers replace blocks.

A layer is a pure function from messages to a `Step`. `replace_blocks` applies the chosen
replacements of blocks in one batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from context_compaction.activity.background import started_line
from context_compaction.activity.calls import gist_of, is_steering
from context_compaction.activity.outcome import error_line, is_failed
from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages import model, placeholders
from context_compaction.messages.pins import Pins
from context_compaction.messages.placeholders import SpanOf
from context_compaction.messages.tool_pairs import ProviderRules
from context_compaction.request import Settings
from context_compaction.tokens.counter import MessageCounter

# When a layer runs. "clear": first. "fold": if clearing is not enough. "replace": if history is
# replaced by a summary. "restore": after that.
Stage: TypeAlias = Literal["clear", "fold", "replace", "restore"]


@dataclass(frozen=True, slots=True)
class FileText:
    """A file to restore.

    Attributes:
        path: The path in the calls.
        text: The content; "" if it is unknown or must not be shown.
        note: Why the content may be out of date; "" if it is certain.
    """

    path: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class LayerContext:
    """The inputs of a layer besides the messages.

    Attributes:
        settings: The constants.
        count: The token counter.
        rules: The provider's rules.
        span_of: Returns the archived originals of messages, for a pointer.
        pins: The pinned texts. Messages that are pinned as a whole are restored after a layer.
        limit_tokens: Token limit for the messages; 0 clears everything that may be cleared.
        limit_bytes: Byte limit for the messages in a request.
        newest_only: Whether only the newest results may be edited, because they are not cached yet.
        fresh_tokens: Token limit for the newest tool results, which the model has not seen yet.
        unread_tokens: Token limit for the newest tool results once a result is persisted. 0 keeps
            only a preview of the policy's length.
        cut: Where the replaced history ends; only for the stages "replace" and "restore".
        summary: The message that replaces history.
        checkpoint: The message that replaces the start of the running turn.
        files: Files that may be restored, highest priority first.
        files_at: Index at which restored files are inserted.
    """

    settings: Settings
    count: MessageCounter
    rules: ProviderRules
    span_of: SpanOf
    pins: Pins
    limit_tokens: int
    limit_bytes: int
    newest_only: bool = False
    fresh_tokens: int = 0
    unread_tokens: int = 0
    cut: CutPoint | None = None
    summary: model.Message | None = None
    checkpoint: model.Message | None = None
    files: Sequence[FileText] = ()
    files_at: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """An entry of the registry.

    Attributes:
        apply: Returns the edited list, or the same object if nothing changes. It edits nothing in
            place, reads no clock and does no I/O.
        description: What the layer did, for people: the rest of a sentence after its name.
        stage: When the layer runs. The order in a policy counts within a stage.
        acts_below_trigger: Whether the layer runs if nothing has to become smaller.
        uses_limit: Whether the result depends on `limit_tokens`.
    """

    apply: Callable[[model.Messages, LayerContext], model.Step]
    description: str
    stage: Stage = "clear"
    acts_below_trigger: bool = False
    uses_limit: bool = False


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

    block: model.Block
    blobs: Sequence[model.Blob]
    edit: model.Edit

    @property
    def saved_tokens(self) -> int:
        """Tokens saved in the context."""
        return self.edit.tokens_before - self.edit.tokens_after


def smaller(
    old: model.Block,
    new: model.Block,
    blobs: Sequence[model.Blob],
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
    edit = model.Edit("", action, None, *sizes, pointers, tool_name, note)
    return Replacement(new, blobs, edit) if sizes[1] < sizes[0] else None


def is_protected(tool_name: str, settings: Settings) -> bool:
    """Whether a tool's results are never cleared: the caller protects it, or it steers the work."""
    is_named = tool_name.lower() in map(str.lower, settings.protected_tools)
    return is_named or is_steering(tool_name)


def clear_result(
    result: model.ToolResult,
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
    content = model.result_text(result)
    if line := error_line(content) if is_failed(result) else started_line(content):
        text = f"{text}\n{placeholders.quoted(line)}"
    cleared = model.edit_result(result, (model.Text(text, author="compaction"),))
    return smaller(result, cleared, blobs, count, "cleared", tool_name, reason)


def persist_result(
    result: model.ToolResult, tool_name: str, count: MessageCounter, show: Callable[[str], str]
) -> Replacement | None:
    """Return `result` with its texts replaced by one marker. Other parts, such as images, stay.

    `show` gets the marker with a blank preview, and returns the preview. None if the result would
    not become smaller.
    """
    texts = tuple(part for part in result.content if isinstance(part, model.Text))
    media = tuple(part for part in result.content if not isinstance(part, model.Text))
    blobs = result_blobs(result, tool_name, texts)
    if not blobs:
        return None
    size_chars = sum(len(part.text) for part in texts)
    shown = show(placeholders.persisted(blobs, " ", tool_name, size_chars))
    text = placeholders.persisted(blobs, shown, tool_name, size_chars)
    marked = model.edit_result(result, (model.Text(text, author="compaction"), *media))
    return smaller(result, marked, blobs, count, "persisted", tool_name)


def clip_call(call: model.ToolCall, count: MessageCounter, limit_chars: int) -> Replacement | None:
    """Return `call` with string arguments above `limit_chars` clipped. None if nothing is saved."""
    # A tenth of the limit, or more of a small limit, is enough to recognize the argument.
    head_chars = max(limit_chars // 10, min(limit_chars // 2, 100))
    blobs: list[model.Blob] = []

    def clip(value: Any) -> Any:
        if not isinstance(value, str) or len(value) <= limit_chars:
            return value
        if placeholders.is_clipped(value):
            return value
        blob = model.make_blob(value, tool_name=call.name, call_id=call.call_id)
        blobs.append(blob)
        return placeholders.clipped(gist_of(value)[:head_chars], len(value), blob)

    arguments: object = call.arguments
    if model.is_object(arguments):
        clipped: Any = {name: clip(value) for name, value in arguments.items()}
    else:
        clipped = clip(arguments)
    if not blobs:
        return None
    shorter = replace(call, arguments=clipped, edited=True)
    return smaller(call, shorter, blobs, count, "clipped", call.name)


def clear_marker(
    result: model.ToolResult, tool_name: str, count: MessageCounter
) -> Replacement | None:
    """Return `result` without the preview in its marker. None if it contains no marker."""
    for number, part in enumerate(result.content):
        text = part.text if isinstance(part, model.Text) and part.author == "compaction" else ""
        if shorter := placeholders.placeholder_from_marker(text):
            if line := started_line(placeholders.preview_in(text)):
                shorter = f"{shorter}\n{line}"
            content = [*result.content]
            content[number] = model.Text(shorter, author="compaction")
            cleared = model.edit_result(result, tuple(content))
            ids = placeholders.ids_in_placeholder(text)
            note = "the model has seen its preview"
            return smaller(result, cleared, (), count, "cleared", tool_name, note, ids)
    return None


def replace_blocks(
    messages: model.Messages, chosen: Mapping[Place, Replacement], *, layer: str
) -> model.Step:
    """Return the list with every chosen block replaced; the same object if none is chosen."""
    if not chosen:
        return model.Step(messages)
    out = list(messages)
    edits: list[model.Edit] = []
    blobs: list[model.Blob] = []
    for place, replacement in sorted(chosen.items()):
        message = out[place.message]
        blocks = [*message.blocks]
        blocks[place.block] = replacement.block
        out[place.message] = model.edit_message(message, blocks)
        blobs.extend(replacement.blobs)
        edits.append(replace(replacement.edit, layer=layer, index=message.index))
    return model.Step(tuple(out), tuple(edits), tuple(blobs))


def result_chars(result: model.ToolResult) -> int:
    """Return the length of all parts in characters. Media count as their JSON."""
    return sum(len(_part_text(part)) for part in result.content)


def result_blobs(
    result: model.ToolResult, tool_name: str, parts: Sequence[model.Part] | None = None
) -> tuple[model.Blob, ...]:
    """Return a blob for each part that is not empty: text as it is, other parts as JSON.

    `parts` limits the blobs to some parts of the result.
    """
    return tuple(
        model.make_blob(
            _part_text(part),
            media_type="text/plain" if isinstance(part, model.Text) else model.JSON_MEDIA_TYPE,
            tool_name=tool_name,
            call_id=result.call_id,
        )
        for part in (result.content if parts is None else parts)
        if _part_text(part)
    )


def _part_text(part: model.Part) -> str:
    return part.text if isinstance(part, model.Text) else model.media_json(part)
