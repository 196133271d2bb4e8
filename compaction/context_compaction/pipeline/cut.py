"""A plan whose history is replaced: what goes, what is pinned, how long its text may be. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from context_compaction.context import CompactionContext, EditedMessages, EffortLevel, Plan
from context_compaction.layers.cut_point import (
    CutPoint,
    cut_all,
    cut_keeping,
    find_cut,
    history_of,
    turn_prefix_of,
)
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Text
from context_compaction.messages.pins import Pin, fit_to_budget
from context_compaction.messages.speakers import passages
from context_compaction.pipeline.assemble import assemble, fits
from context_compaction.pipeline.clear import plan_by_clearing
from context_compaction.pipeline.kept import is_of_request
from context_compaction.pipeline.project_rules import RULES_LAYER, shorten_rules

# Where a policy cuts, words may come to this part of what they stand for.
_SUMMARY_SHARE = 0.2
# Lines of the host's before the running request stay up to this part of the limit.
_HOST_LINES_SHARE = 1 / 50


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
    plan = replace(plan, pins=_pins_of(context, plan))
    return replace(plan, bare=assemble(context, plan).messages)


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
    if not fits(context, plan.bare, spare_tokens=plan.text_tokens):
        return None
    free_tokens = context.room_tokens(plan.bare)
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
