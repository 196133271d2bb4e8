"""Clearing: the layers that replace no history, in a policy's order. Pure."""

import math
from dataclasses import replace
from itertools import dropwhile, takewhile

from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    layer_context_of,
)
from context_compaction.layers.base import Layer, LayerContext
from context_compaction.layers.offload_media import offload_media
from context_compaction.layers.persist import fresh_result_tokens
from context_compaction.messages.pins import restore_pinned
from context_compaction.settings import Settings

# Of the target, for results that the model has asked for and not read, where not all can stay.
_UNREAD_SHARE = 0.35
_MORE_CLEARINGS = 2


def first_level(settings: Settings) -> EffortLevel:
    """The level that a policy applies by itself."""
    return EffortLevel(
        settings, settings.keep_recent_fraction, clears_all=settings.clear_every_turn
    )


def gentle_level(context: CompactionContext, *, is_idle: bool) -> EffortLevel:
    """The level at which a list is cleared before anything of its history is replaced."""
    is_refused = context.request.mode == "reactive"
    unread_tokens = 0
    if context.budget.is_over and _scales(context, "preview_chars"):
        unread_tokens = int(context.share_tokens * _UNREAD_SHARE)
    return replace(
        first_level(context.settings),
        # After a pause the prompt cache is cold, and after a refusal it is of no use.
        needs_minimum=not is_idle and not is_refused,
        fresh_tokens=0 if is_refused else _fresh_tokens(context),
        unread_tokens=unread_tokens,
    )


def _scales(context: CompactionContext, *names: str) -> bool:
    """Whether the settings `names` give way to the budget: no policy or caller fixes them."""
    named = set(names) & set(context.request.settings)
    return context.settings.scale_to_budget and not named


def _fresh_tokens(context: CompactionContext) -> int:
    """The most that the newest results may count before the model has seen them.

    They stay whole while the list is below its trigger. With a smaller share every call edits the
    list once it is nearly full.
    """
    if not _scales(context, "persist_result_tokens", "persist_newest_chars"):
        return 0
    budget = context.budget
    left_tokens = (budget.trigger_tokens - budget.before.upper) / context.count.margin
    return max(0, int(fresh_result_tokens(context.messages, context.count) + left_tokens))


def plan_by_clearing(context: CompactionContext, level: EffortLevel) -> Plan:
    """The list after the clearing layers alone."""
    layer_context = layer_context_of(context, level)
    layers = context.policy.at_stage("clear")
    # What a layer does regardless of the limit is done once.
    begun = EditedMessages(context.messages)
    for name, layer in takewhile(lambda of: not of[1].uses_limit, layers):
        begun = _cleared_by(layer, name, begun, context, layer_context)

    def cleared(weighing: LayerContext) -> EditedMessages:
        edited = begun
        for name, layer in dropwhile(lambda of: not of[1].uses_limit, layers):
            edited = _cleared_by(layer, name, edited, context, weighing)
        offloaded = offload_media(edited.messages, layer_context)
        return edited.then("offload", offloaded, context.count)

    edited = cleared(replace(layer_context, limit_tokens=0) if level.clears_all else layer_context)
    for _ in range(_MORE_CLEARINGS if context.request_count.anchor_tokens else 0):
        # Beside a provider's count a placeholder weighs more than the text that went for it.
        missing_tokens = -context.room_tokens(edited.messages)
        if missing_tokens <= 0 or level.clears_all:
            break
        scale = context.count.margin**2 / context.request_count.scale
        limit_tokens = context.count.messages(edited.messages) - math.ceil(missing_tokens * scale)
        edited = cleared(replace(layer_context, limit_tokens=limit_tokens))
    return Plan(edited, level)


def below_trigger(context: CompactionContext, level: EffortLevel, *, is_idle: bool) -> Plan:
    """Only what is not cached yet may be edited; or, after a long pause, anything old."""
    if level.settings.clear_every_turn or is_idle:
        return plan_by_clearing(context, replace(level, clears_all=True))
    layer_context = replace(layer_context_of(context, level), newest_only=True)
    edited = EditedMessages(context.messages)
    for name, layer in context.policy.at_stage("clear"):
        if layer.acts_below_trigger:
            edited = _cleared_by(layer, name, edited, context, layer_context)
    return Plan(edited, level)


def collapsed(context: CompactionContext, cleared: Plan) -> Plan:
    """`cleared` with finished sub-tasks collapsed; the same plan where there are none."""
    layer_context, edited = layer_context_of(context, cleared.level), cleared.edited
    for name, layer in context.policy.at_stage("fold"):
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return cleared if edited is cleared.edited else Plan(edited, cleared.level)


def _cleared_by(
    layer: Layer,
    name: str,
    edited: EditedMessages,
    context: CompactionContext,
    layer_context: LayerContext,
) -> EditedMessages:
    step = layer.apply(edited.messages, layer_context)
    step = restore_pinned(edited.messages, step, context.pins.marked)
    return edited.then(name, step, context.count)
