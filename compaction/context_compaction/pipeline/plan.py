"""The plan of a call: what its mode does, which effort level fits, where history is cut.

First what each mode does: which layers run, how hard, and whether history may be replaced. Then
from a valid list to the `Plan` that fits: which level, which cut, what is pinned beside the
summary, how long that may be. Pure. Everything is decided here but the summary's text, so that a
slow summarizer is asked once at most; `assemble` puts the text in.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    fills_target,
    layer_context_of,
)
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import CutPoint, history_of, turn_prefix_of
from context_compaction.layers.persist import fresh_result_tokens
from context_compaction.layers.recent_files import (
    RecentFile,
    not_shown,
    with_text,
)
from context_compaction.layers.restore_files import largest_tokens
from context_compaction.messages import placeholders
from context_compaction.messages.pins import Pin, fit_to_budget, restore_pinned
from context_compaction.messages.tool_results import newest_results
from context_compaction.pipeline.assemble import assemble, fits
from context_compaction.pipeline.effort import (
    clear,
    clear_below_trigger,
    cut,
    escalation,
    first_level,
    reactive_escalation,
    summary_reserve_tokens,
)
from context_compaction.pipeline.long_request import REQUEST_LAYER, is_of_request, shorten_request
from context_compaction.session.earlier_calls import (
    EarlierCalls,
    files_for,
)
from context_compaction.session.load import Session
from context_compaction.session.prepared import applied_plan
from context_compaction.summarizers.extractive.fit import SMALL_TOKENS
from context_compaction.summarizers.extractive.user_words import binding_tokens

# What the model has just asked for stays while two more of its size would find place below the
# trigger: by then it has been seen. In an empty window of 200K that is 57K, a little above the 40K
# from which the papers demote, and in smaller or fuller ones as much less.
_FRESH_SHARE = 1 / 3
# Of the target, where not all can stay that it has asked for.
_UNREAD_SHARE = 0.35


def make_plan(context: CompactionContext, session: Session) -> Plan:
    """The plan of the call, everything decided but the text."""
    if session.applied is not None:
        return applied_plan(context, *session.applied)
    if session.rejections.is_spent or session.is_answered:
        return Plan(EditedMessages(context.messages), EffortLevel(context.settings, 0.0))
    return plan_of_mode(context, session.rejections.harder_levels)


def plan_of_mode(context: CompactionContext, skipped_levels: int = 0) -> Plan:
    """The plan of the mode; after a refusal without the levels that were tried in vain."""
    budget, request = context.budget, context.request
    is_idle = request.idle_seconds > context.settings.idle_clear_seconds
    # After a pause the prompt cache is cold, and after a refusal it is of no use.
    needs_minimum = not is_idle and request.mode != "reactive"
    fresh_tokens = 0 if request.mode == "reactive" else _fresh_tokens(context)
    gentle = replace(
        first_level(context.settings),
        needs_minimum=needs_minimum,
        fresh_tokens=fresh_tokens,
        unread_tokens=_unread_tokens(context) if budget.is_over else 0,
    )
    keeps = bool(context.settings.reactive_keep_messages)
    may_replace = context.policy.replaces_history
    match request.mode:
        case "record":
            return Plan(EditedMessages(context.messages), gentle)
        case "micro":
            wants_all = request.target_tokens is None
            return plan_by_clearing(
                context, replace(gentle, needs_minimum=False, clears_all=wants_all)
            )
        case "full" if may_replace:
            return plan_that_fits(context, full_levels(context), always_cut=True)
        case "reactive" if may_replace:
            levels = reactive_escalation(
                context.settings, context.limits.tokens, _unread_tokens(context)
            )
            left = levels[min(skipped_levels, len(levels) - 1) :]
            return plan_that_fits(context, left, always_cut=keeps and not skipped_levels)
        case _ if not budget.is_over and request.mode in ("auto", "plan"):
            return _below_trigger(context, gentle, is_idle=is_idle)
        case _ if not may_replace:
            return plan_by_clearing(context, gentle)
        case _:
            cleared = plan_by_clearing(context, gentle)
            if _is_enough(context, cleared):
                return cleared
            collapsed = _collapsed(context, cleared)
            if collapsed.edited is not cleared.edited and _is_enough(context, collapsed):
                return collapsed
            return plan_that_fits(context, _levels(context), cleared=cleared)


def _fresh_tokens(context: CompactionContext) -> int:
    """The most that the newest results may count before the model has seen them.

    A paper's limit is the paper's, and one that the caller names is the caller's.
    """
    named = {"persist_result_tokens", "persist_newest_chars"} & set(context.request.settings)
    if named or not context.settings.scale_to_budget:
        return 0
    budget = context.budget
    left_tokens = (budget.trigger_tokens - budget.before.upper) / context.count.margin
    room_tokens = fresh_result_tokens(context.messages, context.count) + left_tokens
    return max(0, int(room_tokens * _FRESH_SHARE))


def _levels(context: CompactionContext) -> tuple[EffortLevel, ...]:
    first, tight, *harder = escalation(
        context.settings, context.limits.tokens, _unread_tokens(context)
    )
    return (first, tight, *_folding_level(context, tight), *harder)


def _folding_level(context: CompactionContext, level: EffortLevel) -> tuple[EffortLevel, ...]:
    """`level` with a finished answer folded away too, where the list ends with one.

    A long answer in full would leave no room for anything else in a small target.
    """
    ends_finished = context.messages and context.messages[-1].role == "assistant"
    if not ends_finished or context.request.target_tokens is None:
        return ()
    return (replace(level, keep_fraction=0.0, may_keep_nothing=True),)


def _unread_tokens(context: CompactionContext) -> int:
    """Tokens of the newest results together that stay where the list must get smaller.

    A paper's preview is the paper's, and one that the caller names is the caller's.
    """
    named = "preview_chars" in context.request.settings
    if named or not context.settings.scale_to_budget:
        return 0
    return int(context.limits.tokens * _UNREAD_SHARE)


def _is_enough(context: CompactionContext, plan: Plan) -> bool:
    """Whether `plan` fits with no summary at all."""
    return fits(context, assemble(context, plan).messages)


def _collapsed(context: CompactionContext, cleared: Plan) -> Plan:
    """`cleared` with finished sub-tasks collapsed where that suffices."""
    layer_context, edited = layer_context_of(context, cleared.level), cleared.edited
    for name, layer in context.policy.at_stage("fold"):
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return cleared if edited is cleared.edited else Plan(edited, cleared.level)


def _below_trigger(context: CompactionContext, level: EffortLevel, *, is_idle: bool) -> Plan:
    """Only what is not cached yet may be edited; or, after a long pause, anything old."""
    if level.settings.clear_every_turn or is_idle:
        return plan_by_clearing(context, replace(level, clears_all=True))
    edited = clear_below_trigger(
        EditedMessages(context.messages), context.policy, layer_context_of(context, level)
    )
    return Plan(edited, level)


# What stays in full is chosen up to this part of the limit: a list at its very target would be
# above it with the next message.
_FILLED_SHARE = 0.9
_EARLIER_CUTS = 12
# One file may have this part of the room that is left for files in a named target.
_LARGEST_PART = 3
_MORE_CLEARINGS = 2
_MORE_UNREAD = 4
_MORE_UNREAD_SHARES = (0.8, 0.65, 0.5)
_LEAST_GAIN_TOKENS = 16
_FRAME_TOKENS = 32
# Summary and checkpoint share their tokens by what they stand for; each gets this part at least.
_LEAST_SHARE = 0.25
# Of a target that the caller names so much may be words.
_WORDS_SHARE = 0.65
# ... and so much beside a model's prose, prose and extracts together.
_PROSE_WORDS_SHARE = 0.55
# So much of it may be texts that steer the work, where that is enough for one.
_STEERING_SHARE = 0.3
_LEAST_STEERING_TOKENS = 1_000
# Words may come to this part of what they stand for: a list that was to be made smaller must come
# out smaller, however short it was; more where the caller says what it is to come to.
_SUMMARY_SHARE = 0.2
_NAMED_SUMMARY_SHARE = 0.5


def plan_by_clearing(context: CompactionContext, level: EffortLevel) -> Plan:
    """The list after the clearing layers alone."""
    edited = _cleared(context, level, context.limits.tokens)
    for _ in range(_MORE_CLEARINGS if context.request_count.anchor_tokens else 0):
        # Beside a provider's count a placeholder weighs more than the text that went for it.
        missing_tokens = -context.room_tokens(edited.messages)
        if missing_tokens <= 0 or level.clears_all:
            break
        more_tokens = math.ceil(
            missing_tokens * context.count.margin**2 / context.request_count.scale
        )
        edited = _cleared(context, level, context.count.messages(edited.messages) - more_tokens)
    if level.request_fraction:
        most_tokens = int(context.limits.tokens * level.request_fraction)
        step = shorten_request(edited.messages, count=context.count, max_tokens=most_tokens)
        step = restore_pinned(edited.messages, step, context.pins.marked)
        edited = edited.then(REQUEST_LAYER, step, context.count)
    return Plan(edited, level)


def _cleared(context: CompactionContext, level: EffortLevel, limit_tokens: int) -> EditedMessages:
    layer_context = replace(layer_context_of(context, level), limit_tokens=limit_tokens)
    return clear(
        EditedMessages(context.messages),
        context.policy,
        layer_context,
        limit_bytes=context.limits.bytes,
    )


def plan_that_fits(
    context: CompactionContext,
    levels: Sequence[EffortLevel],
    *,
    always_cut: bool = False,
    cleared: Plan | None = None,
) -> Plan:
    """The first level that fits, counting every text that is still to be written at its largest.

    Where none fits it is the last one. `cleared` is what clearing gave before at one of `levels`.
    """
    plan = Plan(EditedMessages(context.messages), levels[-1])
    for level in levels:
        plan = cleared if cleared and cleared.level == level else plan_by_clearing(context, level)
        if fits(context, plan.edited.messages) and not always_cut:
            return plan
        # What has been read gives way to what has not.
        kept = _all_but_newest(level) if _is_unread_cut(context, plan) else level
        where = cut(
            plan.edited, kept, count=context.count, rules=context.rules, limits=context.limits
        )
        if where is None:
            if fits(context, plan.edited.messages):
                return plan
            continue
        plan = _cut_at(context, plan, where)
        # Rules that are pinned unasked summarise history too, and take the summary's room.
        pinned_tokens = _rules_tokens(plan)
        reserved = max(0, _reserve_tokens(context, plan) - pinned_tokens)
        plan = _with_room(context, plan, reserved)
        if fits(context, plan.bare, spare_tokens=reserved):
            # What the cut leaves free is the summary's too, up to its bound.
            files = _files_to_restore(context)
            free_tokens = context.room_tokens(plan.bare) - _steering_tokens(context, files, where)
            words_tokens = min(max(0, _most_words(context, level) - pinned_tokens), free_tokens)
            words_tokens = max(words_tokens, reserved)
            plan = _with_room(context, plan, words_tokens)
            return _less_cleared(context, plan, files)
    return plan


def _reserve_tokens(context: CompactionContext, plan: Plan) -> int:
    """What the cut of `plan` must leave free for words: more where the user laid down much."""
    level, limit_tokens = plan.level, context.limits.tokens
    least_tokens = summary_reserve_tokens(level, limit_tokens)
    most_tokens = int(limit_tokens * level.words_fraction)
    if most_tokens <= least_tokens:
        return least_tokens
    if any(map(placeholders.is_synthetic, plan.replaced)):
        return most_tokens  # an earlier summary may have had no room for all that binds
    needed_tokens = _FRAME_TOKENS + binding_tokens(plan.replaced, context.count)
    return max(least_tokens, min(needed_tokens, most_tokens))


def _steering_tokens(
    context: CompactionContext, files: Sequence[RecentFile], where: CutPoint
) -> int:
    """The room of a named target that texts which steer the work have before all words."""
    most_tokens = int(context.limits.tokens * _STEERING_SHARE)
    if not fills_target(context) or most_tokens < _LEAST_STEERING_TOKENS:
        return 0
    steering = (file for file in files if file.use == "steering")
    texts = (file.seen_text or "" for file in not_shown([*steering], where.first_kept))
    return min(most_tokens, sum(map(context.count.text, texts)))


def _most_words(context: CompactionContext, level: EffortLevel) -> int:
    """The most that summary and checkpoint may count; more where a named target is to be filled."""
    share_tokens = int(context.limits.tokens * _WORDS_SHARE) if context.limits.is_named else 0
    return max(level.settings.summary_tokens, share_tokens)


def _cut_at(context: CompactionContext, cleared: Plan, where: CutPoint) -> Plan:
    """`cleared` with all that its cut at `where` decides but the length of what is written."""
    source = cleared.edited.messages
    history, prefix = history_of(source, where), turn_prefix_of(source, where)
    plan = Plan(cleared.edited, cleared.level, where, history, prefix)
    plan = replace(plan, bound_tokens=_bound_tokens(context, plan))
    plan = replace(plan, pins=_pins_of(context, plan))
    return replace(plan, bare=assemble(context, plan).messages)


def _with_room(context: CompactionContext, plan: Plan, tokens: int) -> Plan:
    """`plan` with `tokens` shared between the summary of history and the checkpoint."""
    history_size = sum(map(context.count.message, plan.history))
    prefix_size = sum(map(context.count.message, plan.prefix))
    tokens = min(tokens, max(0, plan.bound_tokens - _rules_tokens(plan)))
    of_prefix = prefix_size / max(1, history_size + prefix_size)
    if plan.history and plan.prefix:
        of_prefix = min(max(of_prefix, _LEAST_SHARE), 1 - _LEAST_SHARE)
    checkpoint_tokens = int(tokens * of_prefix)
    summary_tokens = tokens - checkpoint_tokens if plan.history else 0
    return replace(plan, summary_tokens=summary_tokens, checkpoint_tokens=checkpoint_tokens)


def _rules_tokens(plan: Plan) -> int:
    """Tokens of the rules that are pinned unasked."""
    return sum(pin.tokens for pin in plan.pins if pin.is_automatic)


def _bound_tokens(context: CompactionContext, plan: Plan) -> int:
    """The most that the summary of all that is replaced may count."""
    count, gone = context.count, plan.replaced
    kept_tokens = count.messages(plan.edited.messages) - sum(map(count.message, gone))
    replaced_tokens = max(0, count.messages(context.messages) - kept_tokens)
    # Earlier summaries stand for far more than they count: what they said may be said again.
    made_tokens = sum(count.message(m) for m in gone if placeholders.is_synthetic(m))
    share = _NAMED_SUMMARY_SHARE if context.limits.is_named else _SUMMARY_SHARE
    return made_tokens + int(max(0, replaced_tokens - made_tokens) * share)


def _pins_of(context: CompactionContext, plan: Plan) -> tuple[Pin, ...]:
    """The pins that the summary carries: all but those of messages that stay in full."""
    gone = {message.index for message in plan.replaced}
    gone |= {edit.index for edit in plan.edited.edits if is_of_request(edit)}
    leaving = [pin for pin in context.pins.candidates if pin.index is None or pin.index in gone]
    settings = plan.level.settings
    # A summary without titles has the rules among the user's words.
    is_titled = context.limits.tokens > SMALL_TOKENS
    return fit_to_budget(
        leaving,
        limit_tokens=settings.pinned_tokens,
        automatic_tokens=min(settings.automatic_pin_tokens, plan.bound_tokens) if is_titled else 0,
    )


def filled(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` with as much of what is recent as its target allows, where the caller named that.

    What the model has not read is filled before what it has. A policy's own target is met with
    room to spare, since more will follow.
    """
    settings = plan.level.settings
    keeps_recent = settings.keep_recent_of == "target" and not settings.replace_all
    if not context.limits.is_named:
        return plan
    if _is_unread_cut(context, plan):
        return _with_more_unread(context, plan)
    if plan.cut is None or not keeps_recent:
        return plan
    return with_longer_tail(context, plan, earlier_calls)


def beside_prose(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` for a text that a model writes: shorter words, and before them a longer tail.

    Where the caller named the target. Prose says in half of it what extracts need all of it for,
    and what it is not to tell again has to be known before it is written.
    """
    if plan.cut is None or not fills_with_tail(context) or _is_unread_cut(context, plan):
        return plan
    words_tokens = int(context.limits.tokens * _PROSE_WORDS_SHARE)
    shorter = _with_room(context, plan, min(plan.text_tokens, words_tokens))
    longer = with_longer_tail(context, shorter, earlier_calls)
    # Where the message before the tail is too large for it, prose may tell more.
    return with_more_words(context, longer, earlier_calls)


def fills_with_tail(context: CompactionContext) -> bool:
    """Whether what prose leaves of a target goes to the newest messages.

    Not where all of them fit: a summary was asked for, and there would be nothing to tell.
    """
    return fills_target(context) and context.budget.is_over


def with_longer_tail(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` cut as early as it fits, with as little cleared of what stays as there is room for."""
    if plan.cut is None:
        return plan
    longest = _with_longest_tail(context, plan, plan.cut, earlier_calls)
    return _with_least_cleared(context, longest, earlier_calls)


def with_more_files(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> Plan:
    """`plan` with more and larger files put back, where a target that the caller named has room.

    Files are filled last, after messages.
    """
    level = plan.level
    if plan.cut is None or not fills_target(context) or not level.settings.restore_files:
        return plan
    if not earlier_calls.recent or not has_slack(context, plan, earlier_calls):
        return plan
    reserve_tokens = int(context.limits.tokens * (1 - _FILLED_SHARE))
    room_tokens = context.room_tokens(plan.bare) - plan.text_tokens - reserve_tokens
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
    more_tokens = beside.room_tokens(done) - int(context.limits.tokens * (1 - _FILLED_SHARE))
    return _with_room(context, plan, plan.text_tokens + max(0, more_tokens))


def has_slack(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> bool:
    """Whether more than a tenth of the target is unused."""
    room_tokens = _room_beside(context, plan, earlier_calls)
    return room_tokens > context.limits.tokens * (1 - _FILLED_SHARE)


def _is_unread_cut(context: CompactionContext, plan: Plan) -> bool:
    """Whether an extract in `plan` replaces one of the newest results, to be filled first."""
    newest = {context.messages[at].index for at in newest_results(context.messages)}
    edits = plan.edited.edits if context.limits.is_named and plan.level.unread_tokens else ()
    return any(edit.action == "persisted" and edit.index in newest for edit in edits)


def _with_more_unread(context: CompactionContext, plan: Plan) -> Plan:
    """`plan` with as much of the newest results as there is room for; files follow them."""
    for share in _MORE_UNREAD_SHARES if plan.cut is None else ():
        # Older results are cleared for it.
        level = replace(plan.level, unread_tokens=int(context.limits.tokens * share))
        fuller = plan_by_clearing(context, level)
        if _room_beside(context, fuller, EarlierCalls()) >= 0:
            plan = fuller
            break
    # Words count a little more inside their message than by themselves.
    step_tokens = _room_beside(context, plan, EarlierCalls()) - _FRAME_TOKENS
    for _ in range(_MORE_UNREAD):
        if step_tokens < _LEAST_GAIN_TOKENS or not _is_unread_cut(context, plan):
            break
        level = replace(plan.level, unread_tokens=plan.level.unread_tokens + step_tokens)
        fuller = plan_by_clearing(context, level)
        if plan.cut is not None:
            fuller = _with_room(context, _cut_at(context, fuller, plan.cut), plan.text_tokens)
        room_tokens = _room_beside(context, fuller, EarlierCalls()) - _FRAME_TOKENS
        if room_tokens < 0:
            step_tokens += room_tokens - _LEAST_GAIN_TOKENS
        else:
            plan, step_tokens = fuller, room_tokens
    return plan


def _with_longest_tail(
    context: CompactionContext,
    plan: Plan,
    where: CutPoint,
    earlier_calls: EarlierCalls,
) -> Plan:
    """`plan` cut as early as it fits; `where` is its cut."""
    step_tokens = _room_beside(context, plan, earlier_calls)
    for _ in range(_EARLIER_CUTS):
        kept_tokens = sum(map(context.count.message, plan.edited.messages[where.first_kept :]))
        earlier = cut(
            plan.edited,
            plan.level,
            count=context.count,
            rules=context.rules,
            limits=context.limits,
            keep_tokens=kept_tokens + step_tokens,
        )
        if step_tokens <= 0 or earlier is None or earlier.first_kept >= where.first_kept:
            break
        longer = _with_room(context, _cut_at(context, plan, earlier), plan.text_tokens)
        # Words come to a part of what they replace: the less is replaced, the less they need.
        room_tokens = _room_beside(context, longer, earlier_calls)
        if room_tokens < 0:
            step_tokens //= 2
        else:
            plan, where, step_tokens = longer, earlier, room_tokens
    return plan


def _with_least_cleared(
    context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls
) -> Plan:
    """`plan` with as much less cleared of what stays as there is room for."""
    more_tokens = _room_beside(context, plan, earlier_calls)
    while more_tokens > context.limits.tokens * (1 - _FILLED_SHARE):
        fuller = _less_cleared_by(context, plan, more_tokens)
        if fuller is not None and _room_beside(context, fuller, earlier_calls) >= 0:
            return fuller
        more_tokens //= 2
    return plan


def _room_beside(context: CompactionContext, plan: Plan, earlier_calls: EarlierCalls) -> int:
    """Tokens left beside the summary at its largest and the files that `plan` must put back."""
    files = _files_of(earlier_calls, plan)
    is_bare = not files and plan.cut is not None
    done = plan.bare if is_bare else assemble(context, plan, files=files).messages
    return context.room_tokens(done) - plan.text_tokens


def _files_of(earlier_calls: EarlierCalls, plan: Plan) -> Sequence[FileText]:
    """The files that `plan` must put back; of others the name."""
    return [
        replace(file, text=None) if file.use in ("named", "earlier") else file
        for file in files_for(earlier_calls, plan)
    ]


def _less_cleared(context: CompactionContext, plan: Plan, files: Sequence[RecentFile]) -> Plan:
    """`plan` with as much less cleared of what stays as there is room for.

    Clearing was not enough, so all that may be cleared is; then the cut took so much history away
    that the newest of it has room after all.
    """
    filled_tokens = int(context.limits.tokens * _FILLED_SHARE)
    bare_tokens = context.count.messages(plan.bare)
    room_tokens = filled_tokens - bare_tokens - _spare_tokens(context, plan, files)
    fuller = _less_cleared_by(context, plan, room_tokens) if room_tokens > 0 else None
    if fuller is None:
        return plan
    spare_tokens = _spare_tokens(context, fuller, files)
    return fuller if fits(context, fuller.bare, spare_tokens=spare_tokens) else plan


def _less_cleared_by(context: CompactionContext, plan: Plan, more_tokens: int) -> Plan | None:
    """`plan` with so much less cleared; None where its level clears all that may be."""
    if plan.cut is None or plan.level.clears_all:
        return None
    # Oldest first: what is cut off is cleared before anything that stays is.
    grown_tokens = context.count.messages(plan.edited.messages) + more_tokens
    grown = replace(context, limits=replace(context.limits, tokens=grown_tokens))
    fuller = plan_by_clearing(grown, replace(plan.level, needs_minimum=False))
    return _with_room(context, _cut_at(context, fuller, plan.cut), plan.text_tokens)


def _files_to_restore(context: CompactionContext) -> Sequence[RecentFile]:
    """Files that may be put back after some cut."""
    return context.recent() if context.policy.restores_files else ()


def _spare_tokens(context: CompactionContext, plan: Plan, files: Sequence[RecentFile]) -> int:
    """The most tokens still to be added: the text, and those of `files` that are put back."""
    if plan.cut is None:
        return plan.text_tokens
    settings = plan.level.settings
    sizes = (
        settings.restore_file_tokens
        if file.seen_text is None
        else min(largest_tokens(file, settings), context.count.text(file.seen_text))
        for file in with_text(not_shown(files, plan.cut.first_kept))[: settings.restore_files]
    )
    return plan.text_tokens + min(sum(sizes), settings.restore_total_tokens)


def full_levels(context: CompactionContext) -> tuple[EffortLevel, ...]:
    """For a requested summary: all but the newest run is replaced, however much would fit."""
    first, tight, *harder = escalation(
        context.settings, context.limits.tokens, _unread_tokens(context)
    )
    return (_all_but_newest(first), *_folding_level(context, tight), *harder[1:])


def _all_but_newest(level: EffortLevel) -> EffortLevel:
    """`level` with a cut that keeps the last run alone."""
    settings = replace(level.settings, keep_recent_turns=0)
    return replace(level, settings=settings, keep_fraction=0.0)
