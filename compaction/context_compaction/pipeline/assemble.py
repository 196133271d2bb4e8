"""Cut a list, and assemble the result: the list with its summary and restored files."""

from collections.abc import Sequence
from dataclasses import replace

from context_compaction.context import CompactionContext, EditedMessages, Plan
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import CutPoint, history_of, turn_prefix_of
from context_compaction.layers.insert_messages import (
    acknowledge,
    checkpoint_message,
    insert_files,
    summary_message,
    with_turn_context,
)
from context_compaction.layers.repair import repair_after_removal
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages, Text, make_message
from context_compaction.messages.pins import Pin, fit_to_budget, pin_block
from context_compaction.messages.speakers import passages
from context_compaction.pipeline.read import without_invalid_thinking
from context_compaction.pipeline.shorten import RULES_LAYER, fit_project_rules, is_of_request

# Host text before the running request stays up to this share of the limit.
_HOST_TEXT_SHARE = 1 / 50
# Lines about running work get at most this share of the limit, which is four jobs at 1,000 tokens.
_RUNNING_SHARE = 0.2
# Within this limit no summary gets long.
_SHORT_TOKENS = 400


def assemble(
    context: CompactionContext, plan: Plan, files: Sequence[FileText] = ()
) -> EditedMessages:
    """Return the list with its summary and restored files, without invalid thinking."""
    edited = plan.edited
    if plan.cut is not None:
        edited = _with_summary(context, plan, plan.cut)
        # Before files are restored, because they take the room of removed thinking.
        edited = _without_invalid_thinking(context, edited)
        if plan.bought_files:
            edited = _with_bought_files(context, plan, edited)
        elif files and not plan.fills:
            edited = _with_restored_files(context, plan, edited, files)
        if context.settings.acknowledge:
            ends = bool(context.messages) and context.messages[-1].role == "assistant"
            step = acknowledge(edited.messages, ends_with_assistant=ends, count=context.count)
            edited = edited.then("acknowledge", step, context.count)
    repaired = repair_after_removal(edited.messages, context.rules)
    edited = edited.then("repair", repaired, context.count)
    return _without_invalid_thinking(context, edited)


def _without_invalid_thinking(context: CompactionContext, edited: EditedMessages) -> EditedMessages:
    step = without_invalid_thinking(context, edited.messages, context.messages)
    return edited.then("thinking", step, context.count)


def _with_summary(context: CompactionContext, plan: Plan, cut: CutPoint) -> EditedMessages:
    history, prefix = plan.history, plan.prefix
    pins = pin_block(plan.pins, context.pins.unpinned)
    may_grow = context.budget.message_tokens > _SHORT_TOKENS
    first = inside = None
    if cut.folds_request:
        text = with_turn_context(plan.summary, plan.checkpoint)
        first = summary_message(context.span_of(plan.replaced), text, pins, may_grow=may_grow)
    elif history or pins:
        # A summary of pinned text alone refers to the beginning of the running turn.
        replaced = history or history_of(plan.edited.messages, cut) or prefix
        span = context.span_of(replaced)
        first = summary_message(span, plan.summary, pins, may_grow=may_grow)
    if prefix and not cut.folds_request:
        inside = checkpoint_message(context.span_of(prefix), plan.checkpoint)
    layer_context = replace(context.layer_context, cut=cut, summary=first, checkpoint=inside)
    edited = plan.edited
    for name, layer in context.policy.at_stage("replace"):
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return _without_subsumed(edited)


def _without_subsumed(edited: EditedMessages) -> EditedMessages:
    """Remove edits of messages that a summary has replaced, because its pointer covers them."""
    present = {message.index for message in edited.messages}
    edits = tuple(
        edit for edit in edited.edits if edit.action == "summarized" or edit.index in present
    )
    pointers = {pointer for edit in edits for pointer in edit.pointers}
    blobs = tuple(blob for blob in edited.blobs if blob.output_id in pointers)
    return EditedMessages(edited.messages, edits, blobs, edited.layers)


def _with_restored_files(
    context: CompactionContext, plan: Plan, edited: EditedMessages, files: Sequence[FileText]
) -> EditedMessages:
    """Return `edited` with the files that the policy's layer chooses."""
    for name, layer in context.policy.at_stage("restore"):
        files_at = _restore_index(edited.messages, plan)
        # A message may follow that acknowledges the summary, and one that separates user messages.
        reserved = 2 * context.count.message(make_message("assistant", placeholders.ACKNOWLEDGED))
        fitting_tokens = context.count.messages(edited.messages) + context.room_tokens(
            edited.messages
        )
        # The result must be smaller than the list, however short that was.
        limit_tokens = min(fitting_tokens, context.count.messages(context.messages)) - reserved
        layer_context = replace(
            context.layer_context, files=files, files_at=files_at, limit_tokens=limit_tokens
        )
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return edited


def _with_bought_files(
    context: CompactionContext, plan: Plan, edited: EditedMessages
) -> EditedMessages:
    """Return `edited` with the files that the fill has bought, in one message."""
    index = _restore_index(edited.messages, plan)
    step = insert_files(edited.messages, plan.bought_files, index, context.count)
    return edited.then("restore", step, context.count)


def _restore_index(messages: Messages, plan: Plan) -> int:
    """Return the index of restored files: after the summary, before the running turn's request."""
    if plan.cut is None:
        return 0
    source, anchor_at = plan.edited.messages, plan.cut.first_index_after_summary
    if anchor_at >= len(source):
        return len(messages)
    # The anchor itself is missing if nothing of it is left, so a later message can take its place.
    later_ids = {id(message) for message in source[anchor_at:]}
    indices = {message.index for message in source[anchor_at:]} - {None}
    return next(
        (
            index
            for index, message in enumerate(messages)
            if id(message) in later_ids or message.index in indices
        ),
        len(messages),
    )


def cut_at(
    context: CompactionContext,
    edited: EditedMessages,
    cut: CutPoint,
    *,
    removes_rules: bool = False,
) -> Plan:
    """Return the plan that cuts `edited` at `cut`; its texts are written later.

    With `removes_rules` even project rules and the user's automatic pins are replaced.
    """
    step = fit_project_rules(
        edited.messages,
        context.budget.message_tokens,
        context.count,
        pinned=context.pins.marked,
        removes_all=removes_rules,
    )
    edited = edited.then(RULES_LAYER, step, context.count)
    return plan_of_cut(context, edited, cut, removes_rules=removes_rules)


def plan_of_cut(
    context: CompactionContext,
    edited: EditedMessages,
    cut: CutPoint,
    *,
    removes_rules: bool = False,
) -> Plan:
    """Return the plan that replaces the messages before `cut`, with the pins of these messages."""
    source = edited.messages
    history, prefix = history_of(source, cut), turn_prefix_of(source, cut)
    if prefix and not cut.folds_request and not any(map(_is_summarizable, history)):
        most_tokens = int(context.share_tokens * _HOST_TEXT_SHARE)
        has_own = any(map(placeholders.is_synthetic, history))
        history = history if has_own or context.count.messages(history) > most_tokens else ()
    plan = Plan(edited, cut, history, prefix)
    return replace(plan, pins=_pins_of(context, plan, removes_rules=removes_rules))


def _is_summarizable(message: Message) -> bool:
    """Whether the message has content for a summary.

    False for text inserted by the host, for restored files and for an empty earlier summary.
    """
    if placeholders.is_synthetic(message):
        return bool((placeholders.body_of(message) or "").strip())
    has_other_blocks = any(not isinstance(block, Text) for block in message.blocks)
    return has_other_blocks or any(
        author != "host" and text.strip() for author, text in passages(message)
    )


def _pins_of(context: CompactionContext, plan: Plan, *, removes_rules: bool) -> tuple[Pin, ...]:
    """Return the pins that the summary carries: all except those of messages that stay in full."""
    removed = {message.index for message in plan.replaced}
    removed |= {edit.index for edit in plan.edited.edits if is_of_request(edit)}
    leaving = [pin for pin in context.pins.candidates if pin.index is None or pin.index in removed]
    settings = context.settings
    return fit_to_budget(
        leaving,
        limit_tokens=settings.pinned_tokens,
        automatic_tokens=0 if removes_rules else settings.automatic_pin_tokens,
        running_tokens=int(context.share_tokens * _RUNNING_SHARE),
    )
