"""A shape with its words put in: files restored, void thinking gone, and whether it fits.

Pure but for the count.
"""

from collections.abc import Sequence
from dataclasses import replace

from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    Plan,
    layer_context_of,
    span_of,
)
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import CutPoint, history_of, turn_prefix_of
from context_compaction.layers.repair import label_misplaced_system, open_with_user
from context_compaction.layers.strip_thinking import strip_void_thinking
from context_compaction.layers.summary_message import (
    acknowledge,
    checkpoint_message,
    summary_message,
    with_turn_context,
)
from context_compaction.messages import placeholders
from context_compaction.messages.cache_control import keep_cache_markers
from context_compaction.messages.model import Message, Messages
from context_compaction.messages.pins import Pin, block_of, fit_to_budget

# Files may be put back up to this part of the whole: a list that was to be made smaller must come
# out smaller, however short it was.
_RESTORED_SHARE = 0.95


def without_summary(task: CompactionContext, shape: Plan) -> Messages:
    """What `shape` comes to before any word is written or file put back."""
    return finish(task, shape, summary="", checkpoint="", files=()).messages


def finish(
    task: CompactionContext,
    shape: Plan,
    *,
    summary: str,
    checkpoint: str,
    files: Sequence[FileText],
) -> EditedMessages:
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


def fits(task: CompactionContext, messages: Messages, *, spare_tokens: int = 0) -> bool:
    """Whether `messages` are within the limits, with `spare_tokens` still to come."""
    if task.room_tokens(messages) < spare_tokens:
        return False
    return task.count.request_bytes(messages) <= task.limits.bytes


def excess_tokens(task: CompactionContext, shape: Plan, summary: str, checkpoint: str) -> int:
    """How far `shape` with these words is above the limit; 0 and less where it fits."""
    done = finish(task, shape, summary=summary, checkpoint=checkpoint, files=())
    return -task.room_tokens(done.messages)


def _replaced(
    task: CompactionContext, shape: Plan, where: CutPoint, summary: str, checkpoint: str
) -> EditedMessages:
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
    task: CompactionContext,
    shape: Plan,
    where: CutPoint,
    summary: Message | None,
    checkpoint: Message | None,
) -> EditedMessages:
    draft, context = shape.draft, layer_context_of(task, shape.rung)
    context = replace(context, cut=where, summary=summary, checkpoint=checkpoint)
    for name, layer in task.policy.at_stage("replace"):
        draft = draft.then(name, layer.apply(draft.messages, context), task.count)
    return _without_subsumed(draft)


def _restored(
    task: CompactionContext, shape: Plan, draft: EditedMessages, files: Sequence[FileText]
) -> EditedMessages:
    for name, layer in task.policy.at_stage("restore"):
        context = replace(
            layer_context_of(task, shape.rung),
            files=files,
            files_at=_restore_at(draft.messages, shape),
            limit_tokens=min(
                task.count.messages(draft.messages) + task.room_tokens(draft.messages),
                int(task.count.messages(task.messages) * _RESTORED_SHARE),
            ),
        )
        draft = draft.then(name, layer.apply(draft.messages, context), task.count)
    return draft


def _restore_at(messages: Messages, shape: Plan) -> int:
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


def _without_subsumed(draft: EditedMessages) -> EditedMessages:
    """Leave out edits of messages that a summary has replaced: its pointer covers them."""
    present = {message.index for message in draft.messages}
    edits = tuple(
        edit for edit in draft.edits if edit.action == "summarized" or edit.index in present
    )
    wanted = {pointer for edit in edits for pointer in edit.pointers}
    blobs = tuple(blob for blob in draft.blobs if blob.output_id in wanted)
    return EditedMessages(draft.messages, edits, blobs, draft.layers)


# Summary and checkpoint share their tokens by what they stand for; each gets this part at least.
_LEAST_SHARE = 0.25


# Words may come to this part of what they stand for: a list that was to be made smaller must come
# out smaller, however short it was.
_SUMMARY_SHARE = 0.2


def with_cut(task: CompactionContext, shape: Plan, where: CutPoint, tokens: int) -> Plan:
    """`shape` cut at `where`, `tokens` shared between the words for history and for the turn."""
    parts = history_of(shape.draft.messages, where), turn_prefix_of(shape.draft.messages, where)
    history_size, prefix_size = (sum(map(task.count.message, part)) for part in parts)
    pinned_tokens = rules_tokens(task, shape, where)
    tokens = min(tokens, max(0, _bound_tokens(task, shape, where) - pinned_tokens))
    of_prefix = prefix_size / max(1, history_size + prefix_size)
    if all(parts):
        of_prefix = min(max(of_prefix, _LEAST_SHARE), 1 - _LEAST_SHARE)
    checkpoint_tokens = int(tokens * of_prefix)
    summary_tokens = tokens - checkpoint_tokens if parts[0] else 0
    return Plan(shape.draft, shape.rung, where, summary_tokens, checkpoint_tokens)


def rules_tokens(task: CompactionContext, shape: Plan, where: CutPoint) -> int:
    """What the rules come to that are pinned unasked at `where`."""
    return sum(pin.tokens for pin in pins_at(task, shape, where) if pin.is_automatic)


def _bound_tokens(task: CompactionContext, shape: Plan, where: CutPoint) -> int:
    """What the words for all that a cut at `where` replaces may come to."""
    source = shape.draft.messages
    gone = (*history_of(source, where), *turn_prefix_of(source, where))
    kept_tokens = task.count.messages(source) - sum(map(task.count.message, gone))
    replaced_tokens = max(0, task.count.messages(task.messages) - kept_tokens)
    # Earlier words of ours stand for far more than they count: what they told may be told again.
    made_tokens = sum(
        task.count.message(message) for message in gone if placeholders.is_synthetic(message)
    )
    return made_tokens + int(max(0, replaced_tokens - made_tokens) * _SUMMARY_SHARE)


def pins_at(task: CompactionContext, shape: Plan, where: CutPoint) -> tuple[Pin, ...]:
    """What a summary at `where` carries: all pins but those of messages that stay in full."""
    source = shape.draft.messages
    gone = {m.index for m in (*history_of(source, where), *turn_prefix_of(source, where))}
    gone |= {edit.index for edit in shape.draft.edits if edit.layer == "request"}
    leaving = [pin for pin in task.pins.candidates if pin.index is None or pin.index in gone]
    settings = shape.rung.settings
    bound_tokens = _bound_tokens(task, shape, where) if leaving else 0
    return fit_to_budget(
        leaving,
        limit_tokens=settings.pinned_tokens,
        automatic_tokens=min(settings.automatic_pin_tokens, bound_tokens),
    )
