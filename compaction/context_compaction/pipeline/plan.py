"""The plan of a call: what its mode does, which effort level fits, where history is cut.

First what each mode does: which layers run, how hard, and whether history may be replaced. Then
from a valid list to the `Plan` that fits: which level, which cut, what is pinned beside the
summary, how long that may be. Pure. Everything is decided here and in `fill_target` but the
summary's text, so that a slow summarizer is asked once at most; `assemble` puts the text in.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    fills_target,
    layer_context_of,
)
from context_compaction.layers.cut_point import CutPoint, history_of, turn_prefix_of
from context_compaction.layers.persist import fresh_result_tokens
from context_compaction.layers.recent_files import RecentFile, not_shown, with_text
from context_compaction.layers.restore_files import largest_tokens
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Text, make_message, tool_calls
from context_compaction.messages.pins import Pin, fit_to_budget, restore_pinned
from context_compaction.messages.speakers import passages, user_text
from context_compaction.messages.tool_results import newest_results
from context_compaction.pipeline.assemble import assemble, fits
from context_compaction.pipeline.effort import (
    auto_levels,
    clear,
    clear_below_trigger,
    clear_regardless,
    cut,
    first_level,
    full_levels,
    newest_run_only,
    reactive_levels,
    scales,
    summary_reserve_tokens,
    unread_tokens_of,
)
from context_compaction.pipeline.long_request import REQUEST_LAYER, is_of_request, shorten_request
from context_compaction.pipeline.project_rules import RULES_LAYER, shorten_rules
from context_compaction.session.prepared import applied_plan
from context_compaction.session.resume import Session
from context_compaction.summarizers.extractive.fit import SMALL_TOKENS
from context_compaction.summarizers.extractive.user_words import binding_tokens

# What the model has just asked for stays while two more of its size would find place below the
# trigger: by then it has been seen. In an empty window of 200K that is 57K, a little above the 40K
# from which the papers demote, and in smaller or fuller ones as much less.
_FRESH_SHARE = 1 / 3
_MORE_CLEARINGS = 2
_FRAME_TOKENS = 32
# Summary and checkpoint share their tokens by what they stand for; each gets this part at least.
_LEAST_SHARE = 0.25
# Of a target that the caller names so much may be words.
_WORDS_SHARE = 0.65
# So much of it may be texts that steer the work, where that is enough for one.
_STEERING_SHARE = 0.3
_LEAST_STEERING_TOKENS = 1_000
_SMALL_FILE_CHARS = 800
# So much of a target may a request be that no user typed, once the agent acts on it; readers' own
# contexts were alike from a sixteenth to a quarter.
_NOTICE_SHARE = 1 / 8
# Lines of the host's before the running request stay up to this part: a summary of them would be
# an empty frame, which counts half as much in the sessions of Claude Code that begin with "/clear".
_HOST_LINES_SHARE = 1 / 50
# Words may come to this part of what they stand for: a list that was to be made smaller must come
# out smaller, however short it was; more where the caller says what it is to come to.
_SUMMARY_SHARE = 0.2
_NAMED_SUMMARY_SHARE = 0.5
# What stays in full is chosen up to this part of the limit: a list at its very target would be
# above it with the next message. At .9 one message of a fifth of a target left a quarter empty.
_FILLED_SHARE = 0.95


def make_plan(context: CompactionContext, session: Session) -> Plan:
    """The plan of the call, everything decided but the text."""
    if session.applied is not None:
        return applied_plan(context, *session.applied)
    if session.rejections.is_spent or session.is_answered:
        return Plan(EditedMessages(context.messages), EffortLevel(context.settings, 0.0))
    return plan_of_mode(context, session.rejections.harder_levels)


def plan_of_mode(context: CompactionContext, skipped_levels: int = 0) -> Plan:
    """The plan of the mode; after a refusal without the levels that were tried in vain."""
    request, is_over = context.request, context.budget.is_over
    is_idle = request.idle_seconds > context.settings.idle_clear_seconds
    is_refused = request.mode == "reactive"
    gentle = replace(
        first_level(context.settings),
        # After a pause the prompt cache is cold, and after a refusal it is of no use.
        needs_minimum=not is_idle and not is_refused,
        fresh_tokens=0 if is_refused else _fresh_tokens(context),
        unread_tokens=unread_tokens_of(context) if is_over else 0,
    )
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
            return _plan_that_fits(context, full_levels(context), always_cut=True)
        case "reactive" if may_replace:
            levels = reactive_levels(context)
            left = levels[min(skipped_levels, len(levels) - 1) :]
            return _plan_that_fits(context, left, always_cut=bool(left[0].keep_messages))
        case _ if not is_over and request.mode in ("auto", "plan"):
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
            return _plan_that_fits(context, auto_levels(context), cleared=cleared)


def _fresh_tokens(context: CompactionContext) -> int:
    """The most that the newest results may count before the model has seen them.

    A paper's limit is the paper's, and one that the caller names is the caller's.
    """
    if not scales(context, "persist_result_tokens", "persist_newest_chars"):
        return 0
    budget = context.budget
    left_tokens = (budget.trigger_tokens - budget.before.upper) / context.count.margin
    room_tokens = fresh_result_tokens(context.messages, context.count) + left_tokens
    return max(0, int(room_tokens * _FRESH_SHARE))


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


def plan_by_clearing(
    context: CompactionContext, level: EffortLevel, begun: EditedMessages | None = None
) -> Plan:
    """The list after the clearing layers alone; `begun` by a plan of another limit."""
    layer_context = layer_context_of(context, level)
    if begun is None:
        start = EditedMessages(context.messages)
        begun = clear_regardless(start, context.policy, layer_context)
    cleared = partial(clear, begun, context.policy, clears_all=level.clears_all)
    edited = cleared(layer_context)
    for _ in range(_MORE_CLEARINGS if context.request_count.anchor_tokens else 0):
        # Beside a provider's count a placeholder weighs more than the text that went for it.
        missing_tokens = -context.room_tokens(edited.messages)
        if missing_tokens <= 0 or level.clears_all:
            break
        more_tokens = math.ceil(
            missing_tokens * context.count.margin**2 / context.request_count.scale
        )
        limit_tokens = context.count.messages(edited.messages) - more_tokens
        edited = cleared(replace(layer_context, limit_tokens=limit_tokens))
    if level.request_fraction:
        edited = _with_short_rules(context, edited, level)
        edited = _with_short_request(context, edited, level.request_fraction)
    return Plan(edited, level, begun=begun)


def _plan_that_fits(
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
        kept = newest_run_only(level) if is_unread_cut(context, plan) else level
        where = cut(context, plan.edited, kept)
        if where is None:
            if fits(context, plan.edited.messages):
                return plan
            continue
        plan = cut_at(context, plan, where)
        # Rules that are pinned unasked summarise history too, and take the summary's room.
        pinned_tokens = _rules_tokens(plan)
        reserved = max(0, _reserve_tokens(context, plan) - pinned_tokens)
        plan = with_room(context, plan, reserved)
        if fits(context, plan.bare, spare_tokens=reserved):
            # What the cut leaves free is the summary's too, up to its bound.
            may_restore = context.policy.restores_files and level.settings.restore_files
            files = context.recent() if may_restore else ()
            free_tokens = context.room_tokens(plan.bare) - _first_tokens(context, plan, files)
            words_tokens = min(max(0, _most_words(context, level) - pinned_tokens), free_tokens)
            words_tokens = max(words_tokens, reserved)
            plan = with_room(context, plan, words_tokens)
            return _less_cleared(context, plan, files)
    return plan


def _reserve_tokens(context: CompactionContext, plan: Plan) -> int:
    """What the cut of `plan` must leave free for words: more where the user laid down much."""
    least_tokens = summary_reserve_tokens(context, plan.level)
    most_tokens = int(context.share_tokens * plan.level.words_fraction)
    if most_tokens <= least_tokens:
        return least_tokens
    if any(map(placeholders.is_synthetic, plan.replaced)):
        return most_tokens  # an earlier summary may have had no room for all that binds
    needed_tokens = _FRAME_TOKENS + binding_tokens(plan.replaced, context.count)
    return max(least_tokens, min(needed_tokens, most_tokens))


def _first_tokens(context: CompactionContext, plan: Plan, files: Sequence[RecentFile]) -> int:
    """The room of a named target that texts which steer the work have before all words.

    And small files that are in work: they cost next to nothing, and the next step needs them.
    """
    most_tokens = int(context.share_tokens * _STEERING_SHARE)
    if plan.cut is None or not fills_target(context) or most_tokens < _LEAST_STEERING_TOKENS:
        return 0
    first = [
        placeholders.restored_file(file.path, text)
        for file in not_shown(files, plan.edited.messages, plan.cut.first_kept)
        if file.seen_text and (file.use == "steering" or _is_small(file))
        for text in (file.seen_text, *file.loose)
    ]
    # As the layer counts it, which may have to name others.
    message = make_message("user", placeholders.restored_files(first, [""]))
    return min(most_tokens, context.count.message(message)) if first else 0


def _is_small(file: RecentFile) -> bool:
    is_next = file.use in ("work", "named")
    return is_next and len(file.seen_text or "") <= _SMALL_FILE_CHARS


def _most_words(context: CompactionContext, level: EffortLevel) -> int:
    """The most that summary and checkpoint may count; more where a named target is to be filled."""
    share_tokens = int(context.share_tokens * _WORDS_SHARE) if context.limits.is_named else 0
    return max(level.settings.summary_tokens, share_tokens)


def cut_at(context: CompactionContext, cleared: Plan, where: CutPoint) -> Plan:
    """`cleared` with all that its cut at `where` decides but the length of what is written."""
    edited = _with_short_rules(context, cleared.edited, cleared.level)
    if where.request_at is not None:
        edited = _with_short_notice(context, edited, where.request_at)
    source = edited.messages
    history, prefix = history_of(source, where), turn_prefix_of(source, where)
    most_tokens = int(context.share_tokens * _HOST_LINES_SHARE)
    if prefix and not where.folds_request and not any(map(_may_be_told, history)):
        is_ours = any(map(placeholders.is_synthetic, history))
        history = history if is_ours or context.count.messages(history) > most_tokens else ()
    plan = Plan(edited, cleared.level, where, history, prefix, begun=cleared.begun)
    bound_tokens = _bound_tokens(context, plan)
    plan = replace(plan, bound_tokens=bound_tokens, pins=_pins_of(context, plan, bound_tokens))
    return replace(plan, bare=assemble(context, plan).messages)


def _may_be_told(message: Message) -> bool:
    """Whether a summary has something to tell of a message.

    Not of lines of the host's own, of files that we put back, and of an earlier one that is empty.
    """
    if placeholders.is_synthetic(message):
        return bool((placeholders.body_of(message) or "").strip())
    has_others = any(not isinstance(block, Text) for block in message.blocks)
    return has_others or any(
        author != "host" and text.strip() for author, text in passages(message)
    )


def _with_short_rules(
    context: CompactionContext, edited: EditedMessages, level: EffortLevel
) -> EditedMessages:
    """`edited` with the project's rules within their share, once, before history is cut off."""
    step = shorten_rules(
        edited.messages,
        context.limits.tokens,
        context.count,
        pinned=context.pins.marked,
        lets_go=not level.keeps_rules,
    )
    return edited.then(RULES_LAYER, step, context.count)


def _with_short_notice(
    context: CompactionContext, edited: EditedMessages, request_at: int
) -> EditedMessages:
    """`edited` with a newest request that no user typed within a small share of the limit.

    A sub-agent's report or a host's note is one more result: once the agent acts on it, what it
    does and says tells what came of it.
    """
    request, *since = edited.messages[request_at:]
    is_read = any(map(tool_calls, since)) and not user_text(request).strip()
    if not (is_read and scales(context, "preview_chars")):
        return edited
    return _with_short_request(context, edited, _NOTICE_SHARE)


def _with_short_request(
    context: CompactionContext, edited: EditedMessages, share: float
) -> EditedMessages:
    """`edited` with a newest request of more than `share` of the limit as an extract."""
    most_tokens = int(context.share_tokens * share)
    step = shorten_request(edited.messages, count=context.count, max_tokens=most_tokens)
    step = restore_pinned(edited.messages, step, context.pins.marked)
    return edited.then(REQUEST_LAYER, step, context.count)


def with_room(context: CompactionContext, plan: Plan, tokens: int) -> Plan:
    """`plan` with `tokens` shared between the summary of history and the checkpoint."""
    told = plan.history if any(map(_may_be_told, plan.history)) else ()
    history_size, prefix_size = map(context.count.total, (told, plan.prefix))
    tokens = min(tokens, max(0, plan.bound_tokens - _rules_tokens(plan)))
    of_prefix = prefix_size / max(1, history_size + prefix_size)
    if told and plan.prefix:
        of_prefix = min(max(of_prefix, _LEAST_SHARE), 1 - _LEAST_SHARE)
    checkpoint_tokens = int(tokens * of_prefix)
    if plan.history and plan.prefix:
        # Neither has more to tell than what it replaces.
        checkpoint_tokens = min(max(checkpoint_tokens, tokens - history_size), prefix_size)
    summary_tokens = tokens - checkpoint_tokens if plan.history else 0
    return replace(plan, summary_tokens=summary_tokens, checkpoint_tokens=checkpoint_tokens)


def _rules_tokens(plan: Plan) -> int:
    """Tokens of the rules that are pinned unasked."""
    return sum(pin.tokens for pin in plan.pins if pin.is_automatic)


def _bound_tokens(context: CompactionContext, plan: Plan) -> int:
    """The most that the summary of all that is replaced may count."""
    count, gone = context.count, plan.replaced
    kept_tokens = count.messages(plan.edited.messages) - count.total(gone)
    replaced_tokens = max(0, count.messages(context.messages) - kept_tokens)
    # Earlier summaries stand for far more than they count: what they said may be said again.
    made_tokens = sum(count.message(m) for m in gone if placeholders.is_synthetic(m))
    share = _NAMED_SUMMARY_SHARE if context.limits.is_named else _SUMMARY_SHARE
    return made_tokens + int(max(0, replaced_tokens - made_tokens) * share)


def _pins_of(context: CompactionContext, plan: Plan, bound_tokens: int) -> tuple[Pin, ...]:
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
        automatic_tokens=min(settings.automatic_pin_tokens, bound_tokens) if is_titled else 0,
    )


def is_unread_cut(context: CompactionContext, plan: Plan) -> bool:
    """Whether an extract in `plan` replaces one of the newest results, to be filled first."""
    newest = {context.messages[at].index for at in newest_results(context.messages)}
    edits = plan.edited.edits if context.limits.is_named and plan.level.unread_tokens else ()
    return any(edit.action == "persisted" and edit.index in newest for edit in edits)


def _less_cleared(context: CompactionContext, plan: Plan, files: Sequence[RecentFile]) -> Plan:
    """`plan` with as much less cleared of what stays as there is room for.

    Clearing was not enough, so all that may be cleared is; then the cut took so much history away
    that the newest of it has room after all.
    """
    bare_tokens = context.count.messages(plan.bare) + headroom_tokens(context)
    room_tokens = context.limits.tokens - bare_tokens - _spare_tokens(context, plan, files)
    fuller = less_cleared_by(context, plan, room_tokens) if room_tokens > 0 else None
    if fuller is None:
        return plan
    spare_tokens = _spare_tokens(context, fuller, files)
    return fuller if fits(context, fuller.bare, spare_tokens=spare_tokens) else plan


def headroom_tokens(context: CompactionContext) -> int:
    """The tokens that stay free where the rest of a target is filled."""
    return int(context.share_tokens * (1 - _FILLED_SHARE))


def less_cleared_by(context: CompactionContext, plan: Plan, more_tokens: int) -> Plan | None:
    """`plan` with so much less cleared; None where its level clears all that may be."""
    if plan.cut is None or plan.level.clears_all:
        return None
    # Oldest first: what is cut off is cleared before anything that stays is.
    grown_tokens = context.count.messages(plan.edited.messages) + more_tokens
    grown = replace(context, limits=replace(context.limits, tokens=grown_tokens))
    fuller = plan_by_clearing(grown, replace(plan.level, needs_minimum=False), plan.begun)
    return with_room(context, cut_at(context, fuller, plan.cut), plan.text_tokens)


def _spare_tokens(context: CompactionContext, plan: Plan, files: Sequence[RecentFile]) -> int:
    """The most tokens still to be added: the text, and those of `files` that are put back."""
    if plan.cut is None:
        return plan.text_tokens
    settings = plan.level.settings
    wanted = with_text(not_shown(files, plan.edited.messages, plan.cut.first_kept))
    sizes = (
        settings.restore_file_tokens
        if file.seen_text is None
        else min(largest_tokens(file, settings), context.count.text(file.seen_text))
        for file in wanted[: settings.restore_files]
    )
    return plan.text_tokens + min(sum(sizes), settings.restore_total_tokens)
