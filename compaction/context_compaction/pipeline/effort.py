"""How hard to try: the effort levels from clearing alone to keeping next to nothing. Pure.

Each level starts from the same list, so that the result depends on the input alone. The first
whose result fits is taken; where none does, the last one, which is as small as it gets, and which a
second compaction therefore cannot make smaller.
"""

from dataclasses import replace
from itertools import dropwhile, takewhile

from context_compaction.context import CompactionContext, EditedMessages, EffortLevel
from context_compaction.layers.base import Layer, LayerContext
from context_compaction.layers.cut_point import (
    FILLED_TURN_SHARE,
    TURN_BOUNDARY_SHARE,
    CutPoint,
    cut_all,
    cut_keeping,
    find_cut,
)
from context_compaction.layers.offload_media import offload_media
from context_compaction.messages.pins import restore_pinned
from context_compaction.policies import Policy
from context_compaction.settings import Settings

# Of the target, for results that the model has asked for and not read, where not all can stay.
_UNREAD_SHARE = 0.35
# A request that cannot stay in full may take this part of the target.
_REQUEST_FRACTION = 0.4
# What gives way where a target is small, in this order. Of the target so much is kept free for what
# the user laid down earlier, as far as it needs that; so much may the newest request take, all
# that it needs with 0; so much of their own share the newest results, which are not read yet.
_SMALL_SHARES = (
    (1 / 3, 0.0, 1 / 2),
    (1 / 3, _REQUEST_FRACTION, 1 / 2),
    (1 / 3, 0.3, 1 / 4),
    (0.0, 0.0, 1 / 2),
    (0.0, _REQUEST_FRACTION, 1 / 2),
)


def unread_tokens_of(context: CompactionContext) -> int:
    """Tokens of the newest results together that stay where the list must get smaller.

    A paper's preview is the paper's, and one that the caller names is the caller's.
    """
    return int(context.share_tokens * _UNREAD_SHARE) if scales(context, "preview_chars") else 0


def scales(context: CompactionContext, *names: str) -> bool:
    """Whether the settings `names` give way to the budget: no policy or caller fixes them."""
    named = set(names) & set(context.request.settings)
    return context.settings.scale_to_budget and not named


def first_level(settings: Settings) -> EffortLevel:
    """The level that a policy applies by itself, before any harder one."""
    return EffortLevel(
        settings, settings.keep_recent_fraction, clears_all=settings.clear_every_turn
    )


def auto_levels(context: CompactionContext) -> tuple[EffortLevel, ...]:
    """The levels where clearing was not enough, with one that folds a finished answer away."""
    first, tight, *harder = _escalation(context)
    return (first, tight, *_folding(context, tight), *harder)


def full_levels(context: CompactionContext) -> tuple[EffortLevel, ...]:
    """For a requested summary: all but the newest run is replaced, however much would fit."""
    first, tight, *harder = _escalation(context)
    return (newest_run_only(first), *_folding(context, tight), *harder[1:])


def reactive_levels(context: CompactionContext) -> tuple[EffortLevel, ...]:
    """The levels after a refusal: the policy's own for it, then all but the gentlest."""
    gentle, *harder = _escalation(context)
    if not context.settings.reactive_keep_messages:
        return tuple(harder)
    return (replace(gentle, keep_messages=context.settings.reactive_keep_messages), *harder)


def newest_run_only(level: EffortLevel) -> EffortLevel:
    """`level` with a cut that keeps the last run alone."""
    settings = replace(level.settings, keep_recent_turns=0)
    return replace(level, settings=settings, keep_fraction=0.0)


def _folding(context: CompactionContext, level: EffortLevel) -> tuple[EffortLevel, ...]:
    """`level` with a finished answer folded away too, where the list ends with one.

    A long answer in full would leave no room for anything else in a small target.
    """
    ends_finished = context.messages and context.messages[-1].role == "assistant"
    if not ends_finished or context.request.target_tokens is None:
        return ()
    return (replace(level, keep_fraction=0.0, may_keep_nothing=True),)


def _escalation(context: CompactionContext) -> tuple[EffortLevel, ...]:
    """The levels at which history is replaced, from gentle to hard.

    The harder ones have less for the newest results, before the request and what binds have to be
    cut; only the last lets them go.
    """
    settings, limit_tokens = context.settings, context.share_tokens
    unread_tokens = unread_tokens_of(context)
    tight = replace(
        settings,
        keep_recent_results=1,
        keep_recent_turns=0,
        min_result_tokens=min(settings.min_result_tokens, max(50, limit_tokens // 100)),
        persist_result_tokens=min(settings.persist_result_tokens, max(100, limit_tokens // 4)),
        preview_chars=min(settings.preview_chars, max(200, limit_tokens // 4)),
    )
    tighter = replace(
        tight,
        summary_fraction=min(settings.summary_fraction, 0.125),
        restore_files=0,
    )
    last = replace(
        tighter,
        keep_recent_results=0,
        min_result_tokens=0,
        persist_result_tokens=max(50, limit_tokens // 10),
        preview_chars=200,
        clip_argument_chars=100,
        summary_fraction=0.0,
        automatic_pin_tokens=0,
    )
    hardest = EffortLevel(
        last,
        0.0,
        may_keep_nothing=True,
        needs_minimum=False,
        clears_all=True,
        request_fraction=_REQUEST_FRACTION,
        unread_tokens=unread_tokens // 2,
        keeps_rules=False,
    )
    return (
        replace(first_level(settings), unread_tokens=unread_tokens),
        EffortLevel(
            tight,
            settings.keep_recent_fraction / 2,
            needs_minimum=False,
            unread_tokens=unread_tokens,
        ),
        *(
            EffortLevel(
                tighter,
                0.0,
                needs_minimum=False,
                request_fraction=request,
                words_fraction=words,
                unread_tokens=int(unread_tokens * unread),
            )
            for words, request, unread in _SMALL_SHARES
        ),
        replace(
            hardest,
            settings=replace(last, keep_recent_results=1),
            may_keep_nothing=False,
            keeps_rules=True,
        ),
        hardest,
    )


def summary_reserve_tokens(context: CompactionContext, level: EffortLevel) -> int:
    """Tokens that a cut at this level leaves free for the summary that replaces history."""
    settings = level.settings
    return min(settings.summary_tokens, int(context.share_tokens * settings.summary_fraction))


def clear_regardless(
    edited: EditedMessages, policy: Policy, context: LayerContext
) -> EditedMessages:
    """The first of the layers that replace no history: all before one that weighs the limit."""
    for name, layer in takewhile(lambda of: not of[1].weighs_limit, policy.at_stage("clear")):
        edited = _cleared_by(layer, name, edited, context)
    return edited


def clear(
    begun: EditedMessages, policy: Policy, context: LayerContext, *, clears_all: bool
) -> EditedMessages:
    """The rest of them, in the policy's order; what is pinned stays whole."""
    edited = begun
    context = replace(context, limit_tokens=0) if clears_all else context
    for name, layer in dropwhile(lambda of: not of[1].weighs_limit, policy.at_stage("clear")):
        edited = _cleared_by(layer, name, edited, context)
    offloaded = offload_media(edited.messages, context)
    return edited.then("offload", offloaded, context.count)


def clear_below_trigger(
    edited: EditedMessages, policy: Policy, context: LayerContext
) -> EditedMessages:
    """Those of them that act where nothing has to be made smaller, on what is not cached yet."""
    context = replace(context, newest_only=True)
    for name, layer in policy.at_stage("clear"):
        if layer.acts_below_trigger:
            edited = _cleared_by(layer, name, edited, context)
    return edited


def _cleared_by(
    layer: Layer, name: str, edited: EditedMessages, context: LayerContext
) -> EditedMessages:
    step = layer.apply(edited.messages, context)
    return edited.then(
        name, restore_pinned(edited.messages, step, context.pins.marked), context.count
    )


def cut(
    context: CompactionContext,
    edited: EditedMessages,
    level: EffortLevel,
    *,
    keep_tokens: int | None = None,
) -> CutPoint | None:
    """Where this level cuts; None where there is nothing left to replace.

    `keep_tokens` may stay, instead of the level's own share of the limit.
    """
    settings, rules = level.settings, context.rules
    if level.keep_messages:
        return cut_keeping(edited.messages, rules, keep_messages=level.keep_messages)
    if settings.replace_all:
        return cut_all(edited.messages, rules)
    room_tokens = context.share_tokens - summary_reserve_tokens(context, level)
    is_of_target = settings.keep_recent_of == "target"
    base_tokens = room_tokens if is_of_target else context.limits.window_tokens
    if keep_tokens is None:
        keep_tokens = min(int(base_tokens * level.keep_fraction), room_tokens)
        turn_share = TURN_BOUNDARY_SHARE
    else:
        room_tokens, turn_share = keep_tokens, FILLED_TURN_SHARE
    found = find_cut(
        edited.messages,
        count=context.count,
        rules=rules,
        keep_tokens=keep_tokens,
        keep_turns=settings.keep_recent_turns,
        max_tokens=room_tokens,
        turn_share=turn_share,
        may_keep_nothing=level.may_keep_nothing,
    )
    if found is None or found.request_at is None or settings.split_turn == "checkpoint":
        return found
    return replace(found, folds_request=True)
