"""A plan whose history is replaced: where it is cut, and the list with its summary put in. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    layer_context_of,
    span_of,
)
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import (
    CutPoint,
    cut_all,
    cut_keeping,
    find_cut,
    history_of,
    turn_prefix_of,
)
from context_compaction.layers.repair import alternate_roles, repairs_after_removal
from context_compaction.layers.strip_thinking import strip_invalid_thinking
from context_compaction.layers.summary_message import (
    acknowledge,
    checkpoint_message,
    summary_message,
    with_turn_context,
)
from context_compaction.messages import placeholders
from context_compaction.messages.cache_control import keep_cache_markers
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Message, Messages, Text, make_message
from context_compaction.messages.pins import Pin, fit_to_budget, pin_block
from context_compaction.messages.speakers import passages
from context_compaction.pipeline.clear import plan_by_clearing
from context_compaction.pipeline.kept import is_of_request
from context_compaction.pipeline.project_rules import RULES_LAYER, shorten_rules

# Files may be put back up to this part of the whole: a list that was to be made smaller must come
# out smaller, however short it was.
_RESTORED_SHARE = 0.95

# Where a policy cuts, words may come to this part of what they stand for.
_SUMMARY_SHARE = 0.2
# Lines of the host's before the running request stay up to this part of the limit.
_HOST_LINES_SHARE = 1 / 50
# In so many tokens no summary gets long.
_SHORT_TOKENS = 400


def assemble(
    context: CompactionContext,
    plan: Plan,
    summary: str = "",
    checkpoint: str = "",
    files: Sequence[FileText] = (),
) -> EditedMessages:
    """The list with its summary put in, files restored and void thinking taken out."""
    edited = plan.edited
    if plan.cut is not None:
        replaced = _replaced(context, plan, plan.cut, summary, checkpoint)
        edited = _without_void_thinking(context, replaced)  # files have its room
        if plan.files:
            edited = _with_files(context, plan, edited)
        elif files and not plan.fills:
            edited = _restored(context, plan, edited, files)
        if context.settings.acknowledge:
            ends = bool(context.messages) and context.messages[-1].role == "assistant"
            step = acknowledge(edited.messages, ends_with_assistant=ends, count=context.count)
            edited = edited.then("acknowledge", step, context.count)
    for mend in repairs_after_removal(context.rules):
        edited = edited.then("repair", mend(edited.messages), context.count)
    edited = _without_void_thinking(context, edited)
    if plan.cut is None:  # no summary that could take over a marker
        return edited
    return replace(edited, messages=keep_cache_markers(context.markers(), edited.messages))


def _without_void_thinking(context: CompactionContext, edited: EditedMessages) -> EditedMessages:
    if not context.rules.thinking_is_bound:
        return edited
    stripped = strip_invalid_thinking(
        context.messages,
        edited.messages,
        count=context.count,
        rule=context.settings.thinking,
        model=context.request.model,
    )
    return edited.then("thinking", stripped, context.count)


def fits(context: CompactionContext, messages: Messages, *, spare_tokens: int = 0) -> bool:
    """Whether `messages` are within the limits, with `spare_tokens` still to come."""
    if context.room_tokens(messages) < spare_tokens:
        return False
    return context.count.request_bytes(messages) <= context.limits.bytes


def _replaced(
    context: CompactionContext, plan: Plan, where: CutPoint, summary: str, checkpoint: str
) -> EditedMessages:
    history, prefix = plan.history, plan.prefix
    made: Message | None = None
    block = pin_block(plan.pins, context.pins.unpinned)
    may_grow = context.limits.tokens > _SHORT_TOKENS
    if where.folds_request:
        span = span_of(context, plan.replaced)
        made = summary_message(
            span, with_turn_context(summary, checkpoint), block, may_grow=may_grow
        )
        return _summarized(context, plan, where, made, None)
    if history or block:
        # With nothing but pinned text to carry, the span is that of the turn's beginning.
        replaced = history or history_of(plan.edited.messages, where) or prefix
        made = summary_message(span_of(context, replaced), summary, block, may_grow=may_grow)
    inside = checkpoint_message(span_of(context, prefix), checkpoint) if prefix else None
    return _summarized(context, plan, where, made, inside)


def _summarized(
    context: CompactionContext,
    plan: Plan,
    where: CutPoint,
    summary: Message | None,
    checkpoint: Message | None,
) -> EditedMessages:
    edited, layer_context = plan.edited, layer_context_of(context, plan.level)
    layer_context = replace(layer_context, cut=where, summary=summary, checkpoint=checkpoint)
    for name, layer in context.policy.at_stage("replace"):
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return _without_subsumed(edited)


def _restored(
    context: CompactionContext,
    plan: Plan,
    edited: EditedMessages,
    files: Sequence[FileText],
) -> EditedMessages:
    for name, layer in context.policy.at_stage("restore"):
        files_at = _restore_at(edited.messages, plan)
        layer_context = replace(
            layer_context_of(context, plan.level),
            files=files,
            files_at=files_at,
            limit_tokens=min(
                context.count.messages(edited.messages)
                + context.room_tokens(edited.messages)
                - _turn_tokens(context, edited.messages, files_at),
                int(context.count.messages(context.messages) * _RESTORED_SHARE),
            ),
        )
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return edited


def _with_files(context: CompactionContext, plan: Plan, edited: EditedMessages) -> EditedMessages:
    """`edited` with the files of `plan` put back."""
    texts = [placeholders.restored_file(path, text, note) for path, text, note in plan.files]
    message = make_message("user", placeholders.restored_files(texts))
    at = _restore_at(edited.messages, plan)
    edits = tuple(
        Edit("restore", "restored", None, 0, context.count.text(text), note=path)
        for (path, _, _), text in zip(plan.files, texts, strict=True)
    )
    step = Step((*edited.messages[:at], message, *edited.messages[at:]), edits)
    return edited.then("restore", step, context.count)


def _turn_tokens(context: CompactionContext, messages: Messages, at: int) -> int:
    """Tokens added once a message of the user's is at `at`: for roles and an acknowledgement."""
    acknowledged = context.count.message(make_message("assistant", placeholders.ACKNOWLEDGED))
    said_tokens = acknowledged if context.settings.acknowledge else 0
    if not context.rules.roles_alternate:
        return said_tokens
    restored = (*messages[:at], make_message("user", ""), *messages[at:])
    alternating = alternate_roles(restored, context.rules).messages
    return context.count.messages(alternating) - context.count.messages(restored) + said_tokens


def _restore_at(messages: Messages, plan: Plan) -> int:
    """Right after the summary, before the running turn's request."""
    if plan.cut is None:
        return 0
    anchor_at = plan.cut.first_index_after_summary
    source = plan.edited.messages
    if anchor_at < len(source):
        wanted = source[anchor_at]
        return next(at for at, message in enumerate(messages) if _is_of(message, wanted))
    return len(messages)


def _is_of(message: Message, original: Message) -> bool:
    """Whether `message` is `original`, or an edited form of it."""
    return message is original or (message.index is not None and message.index == original.index)


def _without_subsumed(edited: EditedMessages) -> EditedMessages:
    """Leave out edits of messages that a summary has replaced: its pointer covers them."""
    present = {message.index for message in edited.messages}
    edits = tuple(
        edit for edit in edited.edits if edit.action == "summarized" or edit.index in present
    )
    wanted = {pointer for edit in edits for pointer in edit.pointers}
    blobs = tuple(blob for blob in edited.blobs if blob.output_id in wanted)
    return EditedMessages(edited.messages, edits, blobs, edited.layers)


def cut_at(
    context: CompactionContext, edited: EditedMessages, level: EffortLevel, where: CutPoint
) -> Plan:
    """The plan that cuts `edited` at `where`, without the texts that are still to be written."""
    step = shorten_rules(
        edited.messages,
        context.limits.tokens,
        context.count,
        pinned=context.pins.marked,
        lets_go=level.is_last,
    )
    edited = edited.then(RULES_LAYER, step, context.count)
    source = edited.messages
    history, prefix = history_of(source, where), turn_prefix_of(source, where)
    if prefix and not where.folds_request and not any(map(_may_be_told, history)):
        most_tokens = int(context.share_tokens * _HOST_LINES_SHARE)
        is_ours = any(map(placeholders.is_synthetic, history))
        history = history if is_ours or context.count.messages(history) > most_tokens else ()
    plan = Plan(edited, level, where, history, prefix)
    return replace(plan, pins=_pins_of(context, plan))


def _may_be_told(message: Message) -> bool:
    """Whether a summary has something to tell of a message: more than lines of the host's own."""
    if placeholders.is_synthetic(message):
        return bool((placeholders.body_of(message) or "").strip())
    has_others = any(not isinstance(block, Text) for block in message.blocks)
    return has_others or any(
        author != "host" and text.strip() for author, text in passages(message)
    )


def _pins_of(context: CompactionContext, plan: Plan) -> tuple[Pin, ...]:
    """The pins that the summary carries: all but those of messages that stay in full."""
    gone = {message.index for message in plan.replaced}
    gone |= {edit.index for edit in plan.edited.edits if is_of_request(edit)}
    leaving = [pin for pin in context.pins.candidates if pin.index is None or pin.index in gone]
    settings = plan.level.settings
    automatic_tokens = 0 if plan.level.is_last else settings.automatic_pin_tokens
    return fit_to_budget(
        leaving,
        limit_tokens=settings.pinned_tokens,
        automatic_tokens=automatic_tokens,
    )


def own_cut(context: CompactionContext, level: EffortLevel, *, always_cut: bool) -> Plan | None:
    """The plan by the policy's own rule for where to cut; None where that does not fit."""
    cleared = plan_by_clearing(context, level)
    if fits(context, cleared.edited.messages) and not always_cut:
        return cleared
    where = _own_cut_point(context, cleared.edited, level)
    if where is None:
        return cleared if fits(context, cleared.edited.messages) else None
    plan = cut_at(context, cleared.edited, level, where)
    settings = level.settings
    pinned_tokens = sum(pin.tokens for pin in plan.pins if pin.is_automatic)
    reserved_tokens = max(0, _reserve_tokens(context, level) - pinned_tokens)
    plan = _with_room(context, plan, reserved_tokens)
    bare = assemble(context, plan).messages
    if not fits(context, bare, spare_tokens=plan.text_tokens):
        return None
    free_tokens = context.room_tokens(bare)
    most_tokens = max(reserved_tokens, min(settings.summary_tokens - pinned_tokens, free_tokens))
    return _with_room(context, plan, most_tokens)


def _reserve_tokens(context: CompactionContext, level: EffortLevel) -> int:
    """Tokens that a cut leaves free for the summary that replaces history."""
    share_tokens = int(context.share_tokens * level.settings.summary_fraction)
    return min(level.settings.summary_tokens, share_tokens)


def _own_cut_point(
    context: CompactionContext, edited: EditedMessages, level: EffortLevel
) -> CutPoint | None:
    settings, rules = level.settings, context.rules
    if level.keep_messages:
        return cut_keeping(edited.messages, rules, keep_messages=level.keep_messages)
    if settings.replace_all:
        return cut_all(edited.messages, rules)
    room_tokens = context.share_tokens - _reserve_tokens(context, level)
    is_of_target = settings.keep_recent_of == "target"
    base_tokens = room_tokens if is_of_target else context.limits.window_tokens
    found = find_cut(
        edited.messages,
        count=context.count,
        rules=rules,
        keep_tokens=min(int(base_tokens * level.keep_fraction), room_tokens),
        keep_turns=settings.keep_recent_turns,
        max_tokens=room_tokens,
    )
    if found is None or found.request_at is None or settings.split_turn == "checkpoint":
        return found
    return replace(found, folds_request=True)


def _with_room(context: CompactionContext, plan: Plan, tokens: int) -> Plan:
    """`plan` with at most `tokens` shared between the summary and the checkpoint by their size."""
    history_tokens, prefix_tokens = map(context.count.total, (plan.history, plan.prefix))
    tokens = min(tokens, max(0, _bound_tokens(context, plan)))
    checkpoint_tokens = tokens * prefix_tokens // max(1, history_tokens + prefix_tokens)
    return replace(
        plan, summary_tokens=tokens - checkpoint_tokens, checkpoint_tokens=checkpoint_tokens
    )


def _bound_tokens(context: CompactionContext, plan: Plan) -> int:
    """The most that texts may count, for the size of what they replace."""
    made: Iterable[Message] = filter(placeholders.is_synthetic, plan.replaced)
    # An earlier summary stands for far more than it counts: what it said may be said again.
    made_tokens = context.count.total([*made])
    replaced_tokens = context.count.total(plan.replaced)
    return made_tokens + int((replaced_tokens - made_tokens) * _SUMMARY_SHARE)
