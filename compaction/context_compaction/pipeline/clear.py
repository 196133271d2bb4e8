"""Clearing: the layers that replace no history, in the policy's order."""

import math
from dataclasses import replace
from itertools import dropwhile, takewhile

from context_compaction.context import CompactionContext, EditedMessages, EffortLevel, Plan
from context_compaction.layers.base import Layer, LayerContext
from context_compaction.layers.offload_media import offload_media
from context_compaction.layers.persist import fresh_result_tokens
from context_compaction.messages.pins import restore_pinned
from context_compaction.settings import Settings

# Share of the target for tool results that the model has not read yet, if not all can stay.
_UNREAD_SHARE = 0.35
_MORE_CLEARINGS = 2


def first_level(settings: Settings) -> EffortLevel:
    """Return the effort level of a policy's own settings."""
    return EffortLevel(
        settings, settings.keep_recent_fraction, clears_all=settings.clear_every_turn
    )


def gentle_level(context: CompactionContext, *, is_idle: bool = False) -> EffortLevel:
    """Return the level at which a list is cleared before any history is replaced."""
    is_rejected = context.request.mode == "reactive"
    unread_tokens = 0
    if context.budget.is_over and _scales(context, "preview_chars"):
        unread_tokens = int(context.share_tokens * _UNREAD_SHARE)
    return replace(
        first_level(context.settings),
        # After a pause the prompt cache is cold, and after a rejection it is useless.
        needs_minimum=not is_idle and not is_rejected,
        fresh_tokens=0 if is_rejected else _fresh_tokens(context),
        unread_tokens=unread_tokens,
    )


def _scales(context: CompactionContext, *names: str) -> bool:
    """Whether the budget may scale the settings `names`: neither policy nor caller fixes them."""
    named = set(names) & set(context.request.settings)
    return context.settings.scale_to_budget and not named


def _fresh_tokens(context: CompactionContext) -> int:
    """Return the token limit for the newest tool results, which the model has not seen yet.

    They stay whole while the list is below its trigger. With a smaller limit every call would edit
    the list once it is nearly full.
    """
    if not _scales(context, "persist_result_tokens", "persist_newest_chars"):
        return 0
    budget = context.budget
    remaining_tokens = (budget.trigger_tokens - budget.before.upper) / context.count.margin
    return max(0, int(fresh_result_tokens(context.messages, context.count) + remaining_tokens))


def plan_by_clearing(context: CompactionContext, level: EffortLevel) -> Plan:
    """Return the plan of the clearing layers alone."""
    layer_context = context.layer_context(level)
    layers = context.policy.at_stage("clear")
    # Layers whose result does not depend on the limit run once.
    started = EditedMessages(context.messages)
    for name, layer in takewhile(lambda item: not item[1].uses_limit, layers):
        started = _cleared_by(layer, name, started, context, layer_context)

    def cleared(limited: LayerContext) -> EditedMessages:
        edited = started
        for name, layer in dropwhile(lambda item: not item[1].uses_limit, layers):
            edited = _cleared_by(layer, name, edited, context, limited)
        offloaded = offload_media(edited.messages, layer_context)
        return edited.then("offload", offloaded, context.count)

    edited = cleared(replace(layer_context, limit_tokens=0) if level.clears_all else layer_context)
    for _ in range(_MORE_CLEARINGS if context.request_count.anchor_tokens else 0):
        # Relative to a provider's count, a placeholder weighs more than the text it replaces.
        missing_tokens = -context.room_tokens(edited.messages)
        if missing_tokens <= 0 or level.clears_all:
            break
        scale = context.count.margin**2 / context.request_count.scale
        limit_tokens = context.count.messages(edited.messages) - math.ceil(missing_tokens * scale)
        edited = cleared(replace(layer_context, limit_tokens=limit_tokens))
    return Plan(edited, level)


def below_trigger(context: CompactionContext, level: EffortLevel, *, is_idle: bool) -> Plan:
    """Return a plan that edits only uncached messages; after a long pause, all old ones."""
    if level.settings.clear_every_turn or is_idle:
        return plan_by_clearing(context, replace(level, clears_all=True))
    layer_context = replace(context.layer_context(level), newest_only=True)
    edited = EditedMessages(context.messages)
    for name, layer in context.policy.at_stage("clear"):
        if layer.acts_below_trigger:
            edited = _cleared_by(layer, name, edited, context, layer_context)
    return Plan(edited, level)


def collapsed(context: CompactionContext, cleared: Plan) -> Plan:
    """Return `cleared` with finished sub-tasks collapsed; the same plan without any."""
    layer_context, edited = context.layer_context(cleared.level), cleared.edited
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
