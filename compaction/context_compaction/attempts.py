"""From a valid list to the shape that fits: which rung, which cut, how much a writer may write.

Pure but for the count. The pipeline asks for a `Shape` (everything decided but the words), lets a
writer write, and has `finish` put the words in. So a slow writer is called once at most.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from context_compaction.cut_point import CutPoint
from context_compaction.draft import Draft
from context_compaction.finishing import finish, fits, without_words
from context_compaction.layer_context import FileText
from context_compaction.long_request import shorten_request
from context_compaction.pins import keep_marked
from context_compaction.restore import RecentFile, not_shown, recent_files
from context_compaction.rungs import Rung, clear, cut, ladder, words_reserve
from context_compaction.task import Shape, Task, layer_context
from context_compaction.words_room import rules_tokens, with_cut

# What stays in full is chosen up to this part of the limit: a list at its very target would be
# above it with the next message.
_FILLED_SHARE = 0.9
_EARLIER_CUTS = 12
_MORE_CLEARINGS = 2


def shape_by_clearing(task: Task, rung: Rung) -> Shape:
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
        step = keep_marked(draft.messages, step, task.pins.marked)
        draft = draft.then("request", step, task.count)
    return Shape(draft, rung)


def _cleared(task: Task, rung: Rung, limit_tokens: int) -> Draft:
    context = replace(layer_context(task, rung), limit_tokens=limit_tokens)
    return clear(Draft(task.messages), task.policy, context, limit_bytes=task.limits.bytes)


def shape_that_fits(
    task: Task, rungs: Sequence[Rung], *, always_cut: bool = False, cleared: Shape | None = None
) -> Shape:
    """The first rung that fits, counting every text that is still to be written at its largest.

    Where none fits it is the last one. `cleared` is what clearing gave before at one of `rungs`.
    """
    shape = Shape(Draft(task.messages), rungs[-1])
    for rung in rungs:
        shape = cleared if cleared and cleared.rung == rung else shape_by_clearing(task, rung)
        if fits(task, shape.draft.messages) and not always_cut:
            return shape
        where = cut(shape.draft, rung, count=task.count, rules=task.rules, limits=task.limits)
        if where is None:
            if fits(task, shape.draft.messages):
                return shape
            continue
        # Rules that are pinned unasked are words about history too, and take the words' room.
        pinned_tokens = rules_tokens(task, shape, where)
        reserved = max(0, words_reserve(rung, task.limits.tokens) - pinned_tokens)
        shape = with_cut(task, shape, where, reserved)
        bare = without_words(task, shape)
        if fits(task, bare, spare_tokens=reserved):
            # What the cut leaves free is the words' too, up to their bound.
            free_tokens = task.room_tokens(bare)
            words_tokens = min(max(0, rung.settings.summary_tokens - pinned_tokens), free_tokens)
            shape = with_cut(task, shape, where, words_tokens)
            files = _files_to_restore(task)
            return _less_cleared(task, shape, files)
    return shape


def filled(task: Task, shape: Shape, files_at: Callable[[Shape], Sequence[FileText]]) -> Shape:
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
    task: Task, shape: Shape, where: CutPoint, files_at: Callable[[Shape], Sequence[FileText]]
) -> Shape:
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
    task: Task, shape: Shape, files_at: Callable[[Shape], Sequence[FileText]]
) -> Shape:
    """`shape` with as much less cleared of what stays as there is room for."""
    more_tokens = _room_beside(task, shape, files_at)
    while more_tokens > task.limits.tokens * (1 - _FILLED_SHARE):
        fuller = _less_cleared_by(task, shape, more_tokens)
        if fuller is not None and _room_beside(task, fuller, files_at) >= 0:
            return fuller
        more_tokens //= 2
    return shape


def _room_beside(task: Task, shape: Shape, files_at: Callable[[Shape], Sequence[FileText]]) -> int:
    """What is left beside the words at their largest and the files that `shape` puts back."""
    done = finish(task, shape, summary="", checkpoint="", files=files_at(shape))
    return task.room_tokens(done.messages) - shape.summary_tokens - shape.checkpoint_tokens


def _less_cleared(task: Task, shape: Shape, files: Sequence[RecentFile]) -> Shape:
    """`shape` with as much less cleared of what stays as there is room for.

    Clearing was not enough, so all that may be cleared is; then the cut took so much history away
    that the newest of it has room after all.
    """
    bare = without_words(task, shape)
    filled_tokens = int(task.limits.tokens * _FILLED_SHARE)
    room_tokens = filled_tokens - task.count.messages(bare) - _spare_tokens(task, shape, files)
    fuller = _less_cleared_by(task, shape, room_tokens) if room_tokens > 0 else None
    if fuller is None:
        return shape
    bare = without_words(task, fuller)
    return fuller if fits(task, bare, spare_tokens=_spare_tokens(task, fuller, files)) else shape


def _less_cleared_by(task: Task, shape: Shape, more_tokens: int) -> Shape | None:
    """`shape` with so much less cleared; None where its rung clears all that may be."""
    if shape.cut is None or shape.rung.clears_all:
        return None
    # Oldest first: what is cut off is cleared before anything that stays is.
    grown_tokens = task.count.messages(shape.draft.messages) + more_tokens
    grown = replace(task, limits=replace(task.limits, tokens=grown_tokens))
    fuller = shape_by_clearing(grown, replace(shape.rung, needs_minimum=False))
    return with_cut(task, fuller, shape.cut, shape.summary_tokens + shape.checkpoint_tokens)


def _files_to_restore(task: Task) -> list[RecentFile]:
    """Files that may be put back after some cut."""
    if not task.policy.restores_files:
        return []
    return recent_files(task.messages, task.settings.tool_kinds, task.settings.restore_kinds)


def _spare_tokens(task: Task, shape: Shape, files: Sequence[RecentFile]) -> int:
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


def full_rungs(task: Task) -> tuple[Rung, ...]:
    """For a summary that was asked for: all but the newest run goes, however much would fit."""
    first, *harder = ladder(task.settings, task.limits.tokens)
    return (Rung(replace(first.settings, keep_recent_turns=0), 0.0), *harder[2:])
