"""How a target that the caller named is filled: newest results, tail, files, words. Pure.

`plan` decides what fits; here what is still free goes first to what the model has not read, then to
a longer tail with less of it cleared, then to files, and last to words.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from context_compaction.context import CompactionContext, Plan, fills_target
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import CutPoint, request_of
from context_compaction.layers.persist import persist_result, words_asked
from context_compaction.layers.replace_blocks import Place, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Message, ToolResult
from context_compaction.messages.tool_pairs import index_calls, safe_cuts
from context_compaction.messages.tool_results import newest_results
from context_compaction.pipeline.assemble import assemble
from context_compaction.pipeline.effort import cut
from context_compaction.pipeline.plan import (
    cut_at,
    headroom_tokens,
    is_unread_cut,
    less_cleared_by,
    plan_by_clearing,
    with_room,
)
from context_compaction.session.earlier_calls import EarlierCalls, files_for

_EARLIER_CUTS = 12
# One file may have this part of the room that is left for files.
_LARGEST_PART = 3
_MORE_UNREAD = 4
_MORE_UNREAD_SHARES = (0.8, 0.65, 0.5)
_LEAST_GAIN_TOKENS = 16
# In less an extract of a result says too little to be worth its marker.
_LEAST_EXTRACT_TOKENS = 200
# What these layers took away says something, where there is room.
_PUT_BACK = {"microcompact", "persist", "fill"}
# Words count a little more inside their message than by themselves.
_FRAME_TOKENS = 32
# Beside a model's prose so much of it may be words, prose and extracts together.
_PROSE_WORDS_SHARE = 0.55
# ... and of the rest this part at least should be messages in full.
_LEAST_WHOLE_SHARE = 1 / 3


def filled(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` with as much of what is recent as its target allows, where the caller named that.

    What the model has not read is filled before what it has, which has what is left: a result of
    much that is said again comes to less than its room. A policy's own target is met with room to
    spare, since more will follow.
    """
    if not context.limits.is_named:
        return plan
    if is_unread_cut(context, plan):
        plan = _with_more_unread(context, plan)
    if plan.cut is None:
        return with_results_back(context, plan, earlier_calls)
    settings = plan.level.settings
    keeps_recent = settings.keep_recent_of == "target" and not settings.replace_all
    return with_longer_tail(context, plan, earlier_calls) if keeps_recent else plan


def beside_prose(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` for a text that a model writes: shorter words, and after them the newest in full.

    Where the caller named the target. Prose says in half of it what extracts need all of it for,
    and what it is not to tell again has to be known before it is written.
    """
    if plan.cut is None or not fills_with_tail(context) or is_unread_cut(context, plan):
        return plan
    words_tokens = int(context.share_tokens * _PROSE_WORDS_SHARE)
    shorter = with_room(context, plan, min(plan.text_tokens, words_tokens))
    whole = with_whole_tail(context, shorter, earlier_calls)
    # Where the message before the tail is too large for it, prose may tell more.
    return with_more_words(context, whole, earlier_calls)


def fills_with_tail(context: CompactionContext) -> bool:
    """Whether what prose leaves of a target goes to the newest messages.

    Not where all of them fit: a summary was asked for, and there would be nothing to tell.
    """
    return fills_target(context) and context.budget.is_over


def with_longer_tail(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` with as little cleared of what stays as there is room for, then as early a cut.

    What the newest work came to is worth more than the names of older calls; the log tells those.
    """
    if plan.cut is None:
        return plan
    fullest = _with_least_cleared(context, plan, earlier_calls)
    longest = _with_longest_tail(context, fullest, earlier_calls)
    return _with_extract_before(context, longest, earlier_calls)


def with_whole_tail(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` cut where as much stays as has room with nothing of it cleared.

    What stands there as a name alone, prose does not tell either.
    """
    if plan.cut is None:
        return plan
    messages, count = plan.edited.messages, context.count
    left_tokens = count.total(messages[plan.cut.first_kept :])
    left_tokens += max(0, _room_beside(context, plan, earlier_calls) - _tokens_left_free(context))
    least_tokens = left_tokens * _LEAST_WHOLE_SHARE
    whole_tokens = keep_tokens = cleared_tokens = 0
    for at, message in reversed(list(enumerate(messages))):
        edited_tokens = tokens = count.message(message)
        if message.index is not None:
            tokens = count.message(context.parsed[message.index])
        if tokens <= left_tokens:
            whole_tokens += tokens
        elif whole_tokens < least_tokens and edited_tokens <= left_tokens:
            tokens = edited_tokens  # one that is too large does not end the tail at once
        else:
            # The request of the turn that is cut there stays beside it.
            if plan.cut.request_at is not None and at > plan.cut.request_at:
                keep_tokens += count.message(request_of(messages, plan.cut.request_at))
            break
        left_tokens -= tokens
        keep_tokens += edited_tokens
        cleared_tokens += tokens - edited_tokens
    where = cut(context, plan.edited, plan.level, keep_tokens=keep_tokens) or plan.cut
    moved = with_room(context, cut_at(context, plan, where), plan.text_tokens)
    fuller = less_cleared_by(context, moved, cleared_tokens) if cleared_tokens > 0 else None
    if fuller is None or _room_beside(context, fuller, earlier_calls) < 0:
        return _with_least_cleared(context, moved, earlier_calls)
    return fuller


def with_more_files(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` with more and larger files put back, where a target that the caller named has room.

    Files are filled last, after messages.
    """
    level = plan.level
    if plan.cut is None or not fills_target(context) or not level.settings.restore_files:
        return plan
    if not earlier_calls.recent or not has_slack(context, plan, earlier_calls):
        return plan
    room_tokens = context.room_tokens(plan.bare) - plan.text_tokens - headroom_tokens(context)
    settings = replace(
        level.settings,
        restore_files=max(level.settings.restore_files, len(earlier_calls.recent)),
        restore_file_tokens=max(level.settings.restore_file_tokens, room_tokens // _LARGEST_PART),
        restore_total_tokens=max(level.settings.restore_total_tokens, room_tokens),
    )
    return replace(plan, level=replace(level, settings=settings))


def with_more_words(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` with longer texts, where a target that the caller named has room beside its files."""
    if plan.cut is None or not fills_target(context):
        return plan
    # A file for which the texts leave no room comes back as an outline, and leaves some itself.
    upper_tokens = math.ceil(plan.text_tokens * context.count.margin)
    left_tokens = context.limits.target_tokens - upper_tokens
    beside = replace(context, limits=replace(context.limits, target_tokens=left_tokens))
    done = assemble(beside, plan, files=_files_of(earlier_calls, plan)).messages
    more_tokens = beside.room_tokens(done) - headroom_tokens(context)
    return with_room(context, plan, plan.text_tokens + max(0, more_tokens))


def with_results_back(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` with what was cleared of what stays put back, newest first, where there is room.

    Of what is too large an extract; what a later read replaces stays cleared.
    """
    if not fills_target(context) or plan.level.clears_all:
        return plan
    left_tokens = _room_beside(context, plan, earlier_calls) - _tokens_left_free(context)
    if left_tokens < _LEAST_EXTRACT_TOKENS:
        return plan
    whole = {message.index: message for message in context.messages}
    layers: dict[int | None, set[str]] = {}
    for edit in plan.edited.edits:
        layers.setdefault(edit.index, set()).add(edit.layer)
    # What the model has not seen has had its room.
    unread = {context.messages[at].index for at in newest_results(context.messages)}
    put_back = {index for index, by in layers.items() if index in whole and by <= _PUT_BACK}
    fuller, kept_from = plan, plan.cut.first_kept if plan.cut else 0
    for at in range(len(plan.edited.messages) - 1, kept_from - 1, -1):
        message = plan.edited.messages[at]
        if message.index not in put_back - unread:
            continue
        original = whole[message.index]
        more_tokens = context.count.message(original) - context.count.message(message)
        back = _put_back(context, fuller, at, original)
        if more_tokens <= left_tokens:
            fuller, left_tokens = back, left_tokens - more_tokens
        elif extracted := _with_extract_at(context, back, at, left_tokens - more_tokens):
            fuller = extracted
            more_tokens = context.count.message(extracted.edited.messages[at])
            left_tokens -= more_tokens - context.count.message(message)
    if fuller is plan:
        return plan
    if fuller.cut is not None:
        fuller = with_room(context, cut_at(context, fuller, fuller.cut), plan.text_tokens)
    return fuller if _room_beside(context, fuller, earlier_calls) >= 0 else plan


def _put_back(context: CompactionContext, plan: Plan, at: int, original: Message) -> Plan:
    """`plan` with the message at `at` as it was."""
    messages = plan.edited.messages
    step = Step((*messages[:at], original, *messages[at + 1 :]))
    edited = plan.edited.then("fill", step, context.count)
    edits = tuple(edit for edit in edited.edits if edit.index != original.index)
    return replace(plan, edited=replace(edited, edits=edits))


def _with_extract_at(
    context: CompactionContext, plan: Plan, at: int, more_tokens: int
) -> Plan | None:
    """`plan` with an extract of the largest result at `at`, which may count so much more.

    None where that would be too short to say anything.
    """
    count, blocks = context.count, plan.edited.messages[at].blocks
    sizes = [
        (count.block(block), number)
        for number, block in enumerate(blocks)
        if isinstance(block, ToolResult)
    ]
    size_tokens, number = max(sizes, default=(0, 0))
    return _extracted(context, plan, Place(at, number), size_tokens + more_tokens)


def _extracted(context: CompactionContext, plan: Plan, place: Place, tokens: int) -> Plan | None:
    """`plan` with an extract of at most `tokens` for the result at `place`; None if too short."""
    messages, count = plan.edited.messages, context.count
    result = messages[place.message].blocks[place.block]
    if tokens < _LEAST_EXTRACT_TOKENS or not isinstance(result, ToolResult):
        return None
    name, preview_chars = index_calls(messages).name_of(result), plan.level.settings.preview_chars
    marked = persist_result(result, name, count, preview_chars, tokens, words_asked(messages))
    if marked is None:
        return None
    step = replace_blocks(messages, {place: marked}, count, layer="persist")
    return replace(plan, edited=plan.edited.then("persist", step, count))


def has_slack(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> bool:
    """Whether more than a twentieth of the target is unused."""
    return _room_beside(context, plan, earlier_calls) > headroom_tokens(context)


def _with_more_unread(context: CompactionContext, plan: Plan) -> Plan:
    """`plan` with as much of the newest results as there is room for; files follow them."""
    for share in _MORE_UNREAD_SHARES if plan.cut is None else ():
        # Older results are cleared for it.
        level = replace(plan.level, unread_tokens=int(context.share_tokens * share))
        fuller = plan_by_clearing(context, level)
        if _room_beside(context, fuller) >= 0:
            plan = fuller
            break
    step_tokens = _room_beside(context, plan) - _FRAME_TOKENS
    for _ in range(_MORE_UNREAD):
        if step_tokens < _LEAST_GAIN_TOKENS or not is_unread_cut(context, plan):
            break
        level = replace(plan.level, unread_tokens=plan.level.unread_tokens + step_tokens)
        fuller = plan_by_clearing(context, level)
        if plan.cut is not None:
            fuller = with_room(context, cut_at(context, fuller, plan.cut), plan.text_tokens)
        room_tokens = _room_beside(context, fuller) - _FRAME_TOKENS
        if room_tokens < 0:
            step_tokens += room_tokens - _LEAST_GAIN_TOKENS
        else:
            plan, step_tokens = fuller, room_tokens
    return plan


def _with_longest_tail(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` cut as early as it fits."""
    free_tokens = _tokens_left_free(context)
    step_tokens = _room_beside(context, plan, earlier_calls) - free_tokens
    for _ in range(_EARLIER_CUTS):
        if plan.cut is None or step_tokens <= 0:
            break
        keep_tokens = _kept_tokens(context, plan, plan.cut) + step_tokens
        earlier = cut(context, plan.edited, plan.level, keep_tokens=keep_tokens)
        if earlier is None or earlier.first_kept >= plan.cut.first_kept:
            break
        longer = with_room(context, cut_at(context, plan, earlier), plan.text_tokens)
        # Words come to a part of what they replace: the less is replaced, the less they need.
        room_tokens = _room_beside(context, longer, earlier_calls) - free_tokens
        if room_tokens < 0:
            step_tokens //= 2
        else:
            plan, step_tokens = longer, room_tokens
    return plan


def _kept_tokens(context: CompactionContext, plan: Plan, where: CutPoint) -> int:
    """What stays at a cut at `where`: the tail, and the request of a turn that it splits."""
    kept = list(plan.edited.messages[where.first_kept :])
    if where.request_at is not None and not where.folds_request:
        kept.append(request_of(plan.edited.messages, where.request_at))
    return context.count.total(kept)


def _with_extract_before(
    context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls
) -> Plan:
    """`plan` cut one result earlier, where an extract of that makes it fit."""
    if plan.cut is None:
        return plan
    messages, count, free_tokens = plan.edited.messages, context.count, _tokens_left_free(context)
    start, place = _result_before(context, plan, plan.cut)
    result = messages[place.message].blocks[place.block] if place else None
    if place is None or not isinstance(result, ToolResult):
        return plan
    others_tokens = count.total(messages[start : plan.cut.first_kept])
    room_tokens = _room_beside(context, plan, earlier_calls) - free_tokens
    left_tokens = room_tokens - (others_tokens - count.block(result))
    marked_plan = _extracted(context, plan, place, left_tokens)
    if marked_plan is None:
        return plan
    earlier = replace(plan.cut, first_kept=start)
    longer = with_room(context, cut_at(context, marked_plan, earlier), plan.text_tokens)
    return longer if _room_beside(context, longer, earlier_calls) >= free_tokens else plan


def _result_before(
    context: CompactionContext, plan: Plan, where: CutPoint
) -> tuple[int, Place | None]:
    """The last safe cut before `where` that keeps a result more, and the largest such result."""
    messages = plan.edited.messages
    safe = safe_cuts(messages, context.rules)
    first = 0 if where.request_at is None else where.request_at
    sizes: list[tuple[int, Place]] = []
    for at in range(where.first_kept - 1, first, -1):
        is_pinned = messages[at].index in context.pins.marked
        sizes += [
            (context.count.block(block), Place(at, number))
            for number, block in enumerate(() if is_pinned else messages[at].blocks)
            if isinstance(block, ToolResult) and not placeholders.is_placeholder(block)
        ]
        if safe[at] and sizes:
            return at, max(sizes)[1]
    return 0, None


def _with_least_cleared(
    context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls
) -> Plan:
    """`plan` with as much less cleared of what stays as there is room for.

    What a result says precedes what files have more than they need.
    """
    free_tokens = _tokens_left_free(context)
    more_tokens = _room_beside(context, plan, earlier_calls, fills=False) - free_tokens
    while more_tokens > free_tokens:
        fuller = less_cleared_by(context, plan, more_tokens)
        if fuller and _room_beside(context, fuller, earlier_calls, fills=False) >= free_tokens:
            return fuller
        more_tokens //= 2
    return plan


def _tokens_left_free(context: CompactionContext) -> int:
    """What stays free, so that a small message still finds place behind the list."""
    return headroom_tokens(context) // 2


def _room_beside(
    context: CompactionContext,
    plan: Plan,
    earlier_calls: EarlierCalls | None = None,
    *,
    fills: bool = True,
) -> int:
    """Tokens left beside the summary at its largest and the files that `plan` must put back."""
    files = _files_of(earlier_calls, plan) if earlier_calls else ()
    is_bare = not files and plan.cut is not None
    done = plan.bare if is_bare else assemble(context, plan, files=files, fills=fills).messages
    return context.room_tokens(done) - plan.text_tokens


def _files_of(earlier_calls: EarlierCalls, plan: Plan) -> Sequence[FileText]:
    """The files that `plan` must put back; of others the name."""
    return [
        replace(file, text=None) if file.use in ("named", "earlier") else file
        for file in files_for(earlier_calls, plan)
    ]
