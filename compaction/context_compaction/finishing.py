"""A shape with its words put in: files restored, void thinking gone, and whether it fits.

Pure but for the count.
"""

from collections.abc import Sequence
from dataclasses import replace

from context_compaction.cache_markers import keep_cache_markers
from context_compaction.cut_point import CutPoint, history_of, turn_prefix_of
from context_compaction.draft import Draft
from context_compaction.layer_context import FileText
from context_compaction.messages import Message, Messages
from context_compaction.pins import block_of
from context_compaction.repair import label_misplaced_system, open_with_user
from context_compaction.summary import (
    acknowledge,
    checkpoint_message,
    summary_message,
    with_turn_context,
)
from context_compaction.task import Shape, Task, layer_context, span_of
from context_compaction.thinking import strip_void_thinking
from context_compaction.words_room import pins_at

# Files may be put back up to this part of the whole: a list that was to be made smaller must come
# out smaller, however short it was.
_RESTORED_SHARE = 0.95


def without_words(task: Task, shape: Shape) -> Messages:
    """What `shape` comes to before any word is written or file put back."""
    return finish(task, shape, summary="", checkpoint="", files=()).messages


def finish(
    task: Task, shape: Shape, *, summary: str, checkpoint: str, files: Sequence[FileText]
) -> Draft:
    """The draft with its words put in, files restored and void thinking taken out."""
    draft = shape.draft
    if shape.cut is not None:
        draft = _replaced(task, shape, shape.cut, summary, checkpoint)
        if files:
            draft = _restored(task, shape, draft, files)
        if task.settings.acknowledge:
            ends = bool(task.messages) and task.messages[-1].role == "assistant"
            step = acknowledge(draft.messages, ends_with_assistant=ends, count=task.count)
            draft = draft.then("acknowledge", step, task.count)
    if task.rules.system_follows_user:
        draft = draft.then("repair", label_misplaced_system(draft.messages), task.count)
    if task.rules.first_role_user:
        draft = draft.then("repair", open_with_user(draft.messages), task.count)
    if task.rules.thinking_is_bound:
        stripped = strip_void_thinking(
            task.messages, draft.messages, count=task.count, rule=task.settings.thinking
        )
        draft = draft.then("thinking", stripped, task.count)
    return replace(draft, messages=keep_cache_markers(task.messages, draft.messages))


def fits(task: Task, messages: Messages, *, spare_tokens: int = 0) -> bool:
    """Whether `messages` are within the limits, with `spare_tokens` still to come."""
    if task.room_tokens(messages) < spare_tokens:
        return False
    return task.count.request_bytes(messages) <= task.limits.bytes


def excess_tokens(task: Task, shape: Shape, summary: str, checkpoint: str) -> int:
    """How far `shape` with these words is above the limit; 0 and less where it fits."""
    done = finish(task, shape, summary=summary, checkpoint=checkpoint, files=())
    return -task.room_tokens(done.messages)


def _replaced(task: Task, shape: Shape, where: CutPoint, summary: str, checkpoint: str) -> Draft:
    draft = shape.draft
    history = history_of(draft.messages, where)
    prefix = turn_prefix_of(draft.messages, where)
    made: Message | None = None
    block = block_of(pins_at(task, shape, where), task.pins.unpinned)
    if where.folds_request:
        span = span_of(task, (*history, *prefix))
        made = summary_message(span, with_turn_context(summary, checkpoint), block)
        return _summarized(task, shape, where, made, None)
    if history or block:
        # With nothing but pinned text to carry, the span is that of the turn's beginning.
        made = summary_message(span_of(task, history or prefix), summary, block)
    inside = checkpoint_message(span_of(task, prefix), checkpoint) if prefix else None
    return _summarized(task, shape, where, made, inside)


def _summarized(
    task: Task, shape: Shape, where: CutPoint, summary: Message | None, checkpoint: Message | None
) -> Draft:
    draft, context = shape.draft, layer_context(task, shape.rung)
    context = replace(context, cut=where, summary=summary, checkpoint=checkpoint)
    for name, layer in task.policy.at_stage("replace"):
        draft = draft.then(name, layer.apply(draft.messages, context), task.count)
    return _without_subsumed(draft)


def _restored(task: Task, shape: Shape, draft: Draft, files: Sequence[FileText]) -> Draft:
    for name, layer in task.policy.at_stage("restore"):
        context = replace(
            layer_context(task, shape.rung),
            files=files,
            files_at=_restore_at(draft.messages, shape),
            limit_tokens=min(
                task.count.messages(draft.messages) + task.room_tokens(draft.messages),
                int(task.count.messages(task.messages) * _RESTORED_SHARE),
            ),
        )
        draft = draft.then(name, layer.apply(draft.messages, context), task.count)
    return draft


def _restore_at(messages: Messages, shape: Shape) -> int:
    """Right after the summary, before the running turn's request."""
    if shape.cut is None:
        return 0
    anchor_at = shape.cut.goes_on_at
    source = shape.draft.messages
    if anchor_at < len(source):
        wanted = source[anchor_at]
        return next(at for at, message in enumerate(messages) if _is_of(message, wanted))
    return len(messages)


def _is_of(message: Message, original: Message) -> bool:
    """Whether `message` is `original`, or what an edit has left of it."""
    return message is original or (message.index is not None and message.index == original.index)


def _without_subsumed(draft: Draft) -> Draft:
    """Leave out edits of messages that a summary has replaced: its pointer covers them."""
    present = {message.index for message in draft.messages}
    edits = tuple(
        edit for edit in draft.edits if edit.action == "summarized" or edit.index in present
    )
    wanted = {pointer for edit in edits for pointer in edit.pointers}
    blobs = tuple(blob for blob in draft.blobs if blob.output_id in wanted)
    return Draft(draft.messages, edits, blobs, draft.layers)
