"""What each mode does: which layers run, how hard, and whether history may be replaced. Pure."""

from dataclasses import replace

from context_compaction.attempts import full_rungs, shape_by_clearing, shape_that_fits
from context_compaction.compaction import CompactRequest
from context_compaction.draft import Draft
from context_compaction.finishing import fits, without_words
from context_compaction.goal import Goal
from context_compaction.persist import fresh_result_tokens
from context_compaction.rungs import Rung, clear_below_trigger, first_rung, ladder, reactive_ladder
from context_compaction.task import Shape, Task, layer_context

# What the model has just asked for stays while two more of its size would find place below the
# trigger: by then it has been seen. In an empty window of 200K that is 57K, a little above the 40K
# from which the papers demote, and in smaller or fuller ones as much less.
_FRESH_SHARE = 1 / 3


def shape_for(task: Task, goal: Goal, request: CompactRequest, skipped_rungs: int = 0) -> Shape:
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
        first_rung(task.settings), needs_minimum=needs_minimum, fresh_tokens=fresh_tokens
    )
    harder = ladder(task.settings, task.limits.tokens)
    keeps = bool(task.settings.reactive_keep_messages)
    may_replace = task.policy.replaces_history
    match request.mode:
        case "record":
            return Shape(Draft(task.messages), gentle)
        case "micro":
            wants_all = request.target_tokens is None
            return shape_by_clearing(
                task, replace(gentle, needs_minimum=False, clears_all=wants_all)
            )
        case "full" if may_replace:
            return shape_that_fits(task, full_rungs(task), always_cut=True)
        case "reactive" if may_replace:
            rungs = reactive_ladder(task.settings, task.limits.tokens)
            left = rungs[min(skipped_rungs, len(rungs) - 1) :]
            return shape_that_fits(task, left, always_cut=keeps and not skipped_rungs)
        case _ if not goal.is_over and request.mode in ("auto", "plan"):
            return _below_trigger(task, gentle, is_idle=is_idle)
        case _ if not may_replace:
            return shape_by_clearing(task, gentle)
        case _:
            cleared = shape_by_clearing(task, gentle)
            if _is_enough(task, cleared):
                return cleared
            collapsed = _collapsed(task, cleared)
            if collapsed.draft is not cleared.draft and _is_enough(task, collapsed):
                return collapsed
            return shape_that_fits(task, harder, cleared=cleared)


def _fresh_tokens(task: Task, goal: Goal, request: CompactRequest) -> int:
    """What the newest results may count before the model has seen them.

    A paper's limit is the paper's, and one that the caller names is the caller's.
    """
    named = {"persist_result_tokens", "persist_newest_chars"} & set(request.settings)
    if named or not task.settings.scale_to_budget:
        return 0
    left_tokens = (goal.trigger_tokens - goal.before.upper) / task.count.margin
    room_tokens = fresh_result_tokens(task.messages, task.count) + left_tokens
    return max(0, int(room_tokens * _FRESH_SHARE))


def _is_enough(task: Task, shape: Shape) -> bool:
    """Whether `shape` fits with no words at all."""
    return fits(task, without_words(task, shape))


def _collapsed(task: Task, cleared: Shape) -> Shape:
    """`cleared` with finished sub-tasks collapsed where that suffices."""
    context, draft = layer_context(task, cleared.rung), cleared.draft
    for name, layer in task.policy.at_stage("fold"):
        draft = draft.then(name, layer.apply(draft.messages, context), task.count)
    return cleared if draft is cleared.draft else Shape(draft, cleared.rung)


def _below_trigger(task: Task, rung: Rung, *, is_idle: bool) -> Shape:
    """Only what is not cached yet may be edited; or, after a long pause, anything old."""
    if rung.settings.clear_every_turn or is_idle:
        return shape_by_clearing(task, replace(rung, clears_all=True))
    draft = clear_below_trigger(Draft(task.messages), task.policy, layer_context(task, rung))
    return Shape(draft, rung)
