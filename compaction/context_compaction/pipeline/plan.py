"""What each mode does: which layers run, how hard, and whether history may be replaced. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from context_compaction.budget import TokenBudget
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    layer_context_of,
)
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import CutPoint
from context_compaction.layers.persist import fresh_result_tokens
from context_compaction.layers.restore_files import RecentFile, not_shown, recent_files
from context_compaction.messages.pins import restore_pinned
from context_compaction.pipeline.assemble import (
    finish,
    fits,
    rules_tokens,
    with_cut,
    without_summary,
)
from context_compaction.pipeline.effort import (
    clear,
    clear_below_trigger,
    cut,
    escalation,
    first_level,
    reactive_escalation,
    summary_reserve_tokens,
)
from context_compaction.pipeline.shorten_request import shorten_request
from context_compaction.request import CompactRequest

# What the model has just asked for stays while two more of its size would find place below the
# trigger: by then it has been seen. In an empty window of 200K that is 57K, a little above the 40K
# from which the papers demote, and in smaller or fuller ones as much less.
_FRESH_SHARE = 1 / 3


def make_plan(
    task: CompactionContext, goal: TokenBudget, request: CompactRequest, skipped_rungs: int = 0
) -> Plan:
    """What the mode asks for, everything decided but the words.

    Args:
        task: The call.
        goal: Its figures.
        request: What is wished.
        skipped_rungs: After a refusal: so many of the gentlest rungs have been tried in vain.
    """
    is_idle = request.idle_seconds > task.settings.idle_clear_seconds
    # After a pause the prompt cache is cold, and after a refusal it is of no use.
    needs_minimum = not is_idle and request.mode != "reactive"
    fresh_tokens = 0 if request.mode == "reactive" else _fresh_tokens(task, goal, request)
    gentle = replace(
        first_level(task.settings), needs_minimum=needs_minimum, fresh_tokens=fresh_tokens
    )
    harder = escalation(task.settings, task.limits.tokens)
    keeps = bool(task.settings.reactive_keep_messages)
    may_replace = task.policy.replaces_history
    match request.mode:
        case "record":
            return Plan(EditedMessages(task.messages), gentle)
        case "micro":
            wants_all = request.target_tokens is None
            return plan_by_clearing(
                task, replace(gentle, needs_minimum=False, clears_all=wants_all)
            )
        case "full" if may_replace:
            return plan_that_fits(task, full_levels(task), always_cut=True)
        case "reactive" if may_replace:
            rungs = reactive_escalation(task.settings, task.limits.tokens)
            left = rungs[min(skipped_rungs, len(rungs) - 1) :]
            return plan_that_fits(task, left, always_cut=keeps and not skipped_rungs)
        case _ if not goal.is_over and request.mode in ("auto", "plan"):
            return _below_trigger(task, gentle, is_idle=is_idle)
        case _ if not may_replace:
            return plan_by_clearing(task, gentle)
        case _:
            cleared = plan_by_clearing(task, gentle)
            if _is_enough(task, cleared):
                return cleared
            collapsed = _collapsed(task, cleared)
            if collapsed.draft is not cleared.draft and _is_enough(task, collapsed):
                return collapsed
            return plan_that_fits(task, harder, cleared=cleared)


def _fresh_tokens(task: CompactionContext, goal: TokenBudget, request: CompactRequest) -> int:
    """What the newest results may count before the model has seen them.

    A paper's limit is the paper's, and one that the caller names is the caller's.
    """
    named = {"persist_result_tokens", "persist_newest_chars"} & set(request.settings)
    if named or not task.settings.scale_to_budget:
        return 0
    left_tokens = (goal.trigger_tokens - goal.before.upper) / task.count.margin
    room_tokens = fresh_result_tokens(task.messages, task.count) + left_tokens
    return max(0, int(room_tokens * _FRESH_SHARE))


def _is_enough(task: CompactionContext, shape: Plan) -> bool:
    """Whether `shape` fits with no words at all."""
    return fits(task, without_summary(task, shape))


def _collapsed(task: CompactionContext, cleared: Plan) -> Plan:
    """`cleared` with finished sub-tasks collapsed where that suffices."""
    context, draft = layer_context_of(task, cleared.rung), cleared.draft
    for name, layer in task.policy.at_stage("fold"):
        draft = draft.then(name, layer.apply(draft.messages, context), task.count)
    return cleared if draft is cleared.draft else Plan(draft, cleared.rung)


def _below_trigger(task: CompactionContext, rung: EffortLevel, *, is_idle: bool) -> Plan:
    """Only what is not cached yet may be edited; or, after a long pause, anything old."""
    if rung.settings.clear_every_turn or is_idle:
        return plan_by_clearing(task, replace(rung, clears_all=True))
    draft = clear_below_trigger(
        EditedMessages(task.messages), task.policy, layer_context_of(task, rung)
    )
    return Plan(draft, rung)


# What stays in full is chosen up to this part of the limit: a list at its very target would be
# above it with the next message.
_FILLED_SHARE = 0.9


_EARLIER_CUTS = 12


_MORE_CLEARINGS = 2


def plan_by_clearing(task: CompactionContext, rung: EffortLevel) -> Plan:
    """The list after the clearing layers alone."""
    draft = _cleared(task, rung, task.limits.tokens)
    for _ in range(_MORE_CLEARINGS if task.request_count.anchor_tokens else 0):
        # Beside a provider's count a placeholder weighs more than the text that went for it.
        missing_tokens = -task.room_tokens(draft.messages)
        if missing_tokens <= 0 or rung.clears_all:
            break
        more_tokens = math.ceil(missing_tokens * task.count.margin**2 / task.request_count.scale)
        draft = _cleared(task, rung, task.count.messages(draft.messages) - more_tokens)
    if rung.request_fraction:
        most_tokens = int(task.limits.tokens * rung.request_fraction)
        step = shorten_request(draft.messages, count=task.count, max_tokens=most_tokens)
        step = restore_pinned(draft.messages, step, task.pins.marked)
        draft = draft.then("request", step, task.count)
    return Plan(draft, rung)


def _cleared(task: CompactionContext, rung: EffortLevel, limit_tokens: int) -> EditedMessages:
    context = replace(layer_context_of(task, rung), limit_tokens=limit_tokens)
    return clear(EditedMessages(task.messages), task.policy, context, limit_bytes=task.limits.bytes)


def plan_that_fits(
    task: CompactionContext,
    rungs: Sequence[EffortLevel],
    *,
    always_cut: bool = False,
    cleared: Plan | None = None,
) -> Plan:
    """The first rung that fits, counting every text that is still to be written at its largest.

    Where none fits it is the last one. `cleared` is what clearing gave before at one of `rungs`.
    """
    shape = Plan(EditedMessages(task.messages), rungs[-1])
    for rung in rungs:
        shape = cleared if cleared and cleared.rung == rung else plan_by_clearing(task, rung)
        if fits(task, shape.draft.messages) and not always_cut:
            return shape
        where = cut(shape.draft, rung, count=task.count, rules=task.rules, limits=task.limits)
        if where is None:
            if fits(task, shape.draft.messages):
                return shape
            continue
        # Rules that are pinned unasked are words about history too, and take the words' room.
        pinned_tokens = rules_tokens(task, shape, where)
        reserved = max(0, summary_reserve_tokens(rung, task.limits.tokens) - pinned_tokens)
        shape = with_cut(task, shape, where, reserved)
        bare = without_summary(task, shape)
        if fits(task, bare, spare_tokens=reserved):
            # What the cut leaves free is the words' too, up to their bound.
            free_tokens = task.room_tokens(bare)
            words_tokens = min(max(0, rung.settings.summary_tokens - pinned_tokens), free_tokens)
            shape = with_cut(task, shape, where, words_tokens)
            files = _files_to_restore(task)
            return _less_cleared(task, shape, files)
    return shape


def filled(
    task: CompactionContext, shape: Plan, files_at: Callable[[Plan], Sequence[FileText]]
) -> Plan:
    """`shape` with as much of what is recent as its target allows, where the caller named that.

    A policy's own target is met with room to spare, since more will come. `files_at` are the files
    that a shape puts back.
    """
    settings = shape.rung.settings
    keeps_recent = settings.keep_recent_of == "target" and not settings.replace_all
    if not task.limits.is_named or shape.cut is None or not keeps_recent:
        return shape
    longest = _with_longest_tail(task, shape, shape.cut, files_at)
    return _with_least_cleared(task, longest, files_at)


def _with_longest_tail(
    task: CompactionContext,
    shape: Plan,
    where: CutPoint,
    files_at: Callable[[Plan], Sequence[FileText]],
) -> Plan:
    """`shape` cut as early as it fits; `where` is its cut."""
    step_tokens = _room_beside(task, shape, files_at)
    for _ in range(_EARLIER_CUTS):
        kept_tokens = sum(map(task.count.message, shape.draft.messages[where.first_kept :]))
        earlier = cut(
            shape.draft,
            shape.rung,
            count=task.count,
            rules=task.rules,
            limits=task.limits,
            keep_tokens=kept_tokens + step_tokens,
        )
        if step_tokens <= 0 or earlier is None or earlier.first_kept >= where.first_kept:
            break
        longer = with_cut(task, shape, earlier, shape.summary_tokens + shape.checkpoint_tokens)
        # Words come to a part of what they replace: the less is replaced, the less they need.
        room_tokens = _room_beside(task, longer, files_at)
        if room_tokens < 0:
            step_tokens //= 2
        else:
            shape, where, step_tokens = longer, earlier, room_tokens
    return shape


def _with_least_cleared(
    task: CompactionContext, shape: Plan, files_at: Callable[[Plan], Sequence[FileText]]
) -> Plan:
    """`shape` with as much less cleared of what stays as there is room for."""
    more_tokens = _room_beside(task, shape, files_at)
    while more_tokens > task.limits.tokens * (1 - _FILLED_SHARE):
        fuller = _less_cleared_by(task, shape, more_tokens)
        if fuller is not None and _room_beside(task, fuller, files_at) >= 0:
            return fuller
        more_tokens //= 2
    return shape


def _room_beside(
    task: CompactionContext, shape: Plan, files_at: Callable[[Plan], Sequence[FileText]]
) -> int:
    """What is left beside the words at their largest and the files that `shape` puts back."""
    done = finish(task, shape, summary="", checkpoint="", files=files_at(shape))
    return task.room_tokens(done.messages) - shape.summary_tokens - shape.checkpoint_tokens


def _less_cleared(task: CompactionContext, shape: Plan, files: Sequence[RecentFile]) -> Plan:
    """`shape` with as much less cleared of what stays as there is room for.

    Clearing was not enough, so all that may be cleared is; then the cut took so much history away
    that the newest of it has room after all.
    """
    bare = without_summary(task, shape)
    filled_tokens = int(task.limits.tokens * _FILLED_SHARE)
    room_tokens = filled_tokens - task.count.messages(bare) - _spare_tokens(task, shape, files)
    fuller = _less_cleared_by(task, shape, room_tokens) if room_tokens > 0 else None
    if fuller is None:
        return shape
    bare = without_summary(task, fuller)
    return fuller if fits(task, bare, spare_tokens=_spare_tokens(task, fuller, files)) else shape


def _less_cleared_by(task: CompactionContext, shape: Plan, more_tokens: int) -> Plan | None:
    """`shape` with so much less cleared; None where its rung clears all that may be."""
    if shape.cut is None or shape.rung.clears_all:
        return None
    # Oldest first: what is cut off is cleared before anything that stays is.
    grown_tokens = task.count.messages(shape.draft.messages) + more_tokens
    grown = replace(task, limits=replace(task.limits, tokens=grown_tokens))
    fuller = plan_by_clearing(grown, replace(shape.rung, needs_minimum=False))
    return with_cut(task, fuller, shape.cut, shape.summary_tokens + shape.checkpoint_tokens)


def _files_to_restore(task: CompactionContext) -> list[RecentFile]:
    """Files that may be put back after some cut."""
    if not task.policy.restores_files:
        return []
    return recent_files(task.messages, task.settings.tool_kinds, task.settings.restore_kinds)


def _spare_tokens(task: CompactionContext, shape: Plan, files: Sequence[RecentFile]) -> int:
    """What is still to come at most: the words, and those of `files` that are put back."""
    words_tokens = shape.summary_tokens + shape.checkpoint_tokens
    if shape.cut is None:
        return words_tokens
    settings = shape.rung.settings
    most = settings.restore_file_tokens
    sizes = (
        most if file.seen_text is None else min(most, task.count.text(file.seen_text))
        for file in not_shown(files, shape.cut.first_kept)[: settings.restore_files]
    )
    return words_tokens + min(sum(sizes), settings.restore_total_tokens)


def full_levels(task: CompactionContext) -> tuple[EffortLevel, ...]:
    """For a summary that was asked for: all but the newest run goes, however much would fit."""
    first, *harder = escalation(task.settings, task.limits.tokens)
    return (EffortLevel(replace(first.settings, keep_recent_turns=0), 0.0), *harder[2:])
