"""Plans of a cut, and plans without a fill: by clearing, the policy's cut or the caller's range."""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import dropwhile, takewhile

from context_compaction import formats
from context_compaction.compaction_state import PreparedList
from context_compaction.context import CompactionContext, EditedMessages, Plan
from context_compaction.layers import cut_point
from context_compaction.layers.base import Layer, LayerContext
from context_compaction.layers.persist import fresh_result_tokens, offload_media
from context_compaction.messages import placeholders
from context_compaction.messages.model import Edit, Message, Text
from context_compaction.messages.pins import Pin, fit_to_budget, restore_pinned
from context_compaction.messages.speakers import ProvenTexts, passages, with_authors
from context_compaction.messages.tool_pairs import safe_cuts
from context_compaction.pipeline.assemble import assemble
from context_compaction.pipeline.shorten import fit_project_rules, is_of_request
from context_compaction.request import DETAIL_SHARES, Settings
from context_compaction.result import LayerReport

# Host text before the running request stays up to this share of the limit.
_HOST_TEXT_SHARE = 1 / 50
# Lines about running work get at most this share of the limit, which is four jobs at 1,000 tokens.
_RUNNING_SHARE = 0.2
# Share of the target for tool results that the model has not read yet, if not all can stay.
_UNREAD_SHARE = 0.35
_MORE_CLEARINGS = 2
# After a cut by the policy's rule, a summary has at most this share of the replaced tokens.
_SUMMARY_SHARE = 0.2
# A caller's own text may be long, but must be shorter than the messages.
_CALLER_SHARE = 0.9


def clearing_context(context: CompactionContext, *, is_idle: bool = False) -> LayerContext:
    """Return the inputs of the layers that clear a list before any history is replaced."""
    settings, clears = context.settings, context.layer_context
    is_rejected = context.request.mode == "reactive"
    if is_idle or is_rejected:
        # After a pause the prompt cache is cold, and after a rejection it is useless.
        clears = without_minimum(clears)
    if context.budget.is_over and _scales(context, "preview_chars"):
        clears = replace(clears, unread_tokens=int(context.share_tokens * _UNREAD_SHARE))
    return replace(
        clears,
        limit_tokens=0 if settings.clear_every_turn else clears.limit_tokens,
        fresh_tokens=0 if is_rejected else _fresh_tokens(context),
    )


def without_minimum(clears: LayerContext) -> LayerContext:
    """Return `clears` with which a layer acts however little it saves."""
    return replace(clears, settings=replace(clears.settings, min_savings_tokens=0))


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


def plan_by_clearing(context: CompactionContext, clears: LayerContext) -> Plan:
    """Return the plan of the clearing layers alone. A limit of 0 clears everything possible."""
    layers = context.policy.at_stage("clear")
    # Layers whose result does not depend on the limit run once.
    unlimited = takewhile(lambda item: not item[1].uses_limit, layers)
    started = _cleared_by(unlimited, EditedMessages(context.messages), context, clears)

    def cleared(limit_tokens: int) -> EditedMessages:
        limited = dropwhile(lambda item: not item[1].uses_limit, layers)
        edited = _cleared_by(limited, started, context, replace(clears, limit_tokens=limit_tokens))
        offloaded = offload_media(edited.messages, clears)
        return edited.then("offload", offloaded, context.count)

    edited = cleared(clears.limit_tokens)
    for _ in range(_MORE_CLEARINGS if context.request_count.anchor_tokens else 0):
        # Relative to a provider's count, a placeholder weighs more than the text it replaces.
        missing_tokens = -context.room_tokens(edited.messages)
        if missing_tokens <= 0 or not clears.limit_tokens:
            break
        scale = context.count.margin**2 / context.request_count.scale
        edited = cleared(
            context.count.messages(edited.messages) - math.ceil(missing_tokens * scale)
        )
    return Plan(edited)


def below_trigger(context: CompactionContext, clears: LayerContext, *, is_idle: bool) -> Plan:
    """Return a plan that edits only uncached messages; after a long pause, all old ones."""
    if context.settings.clear_every_turn or is_idle:
        return plan_by_clearing(context, replace(clears, limit_tokens=0))
    layers = (item for item in context.policy.at_stage("clear") if item[1].acts_below_trigger)
    edited, newest_only = EditedMessages(context.messages), replace(clears, newest_only=True)
    return Plan(_cleared_by(layers, edited, context, newest_only))


def collapsed(context: CompactionContext, clears: LayerContext, cleared: Plan) -> Plan:
    """Return `cleared` with finished sub-tasks collapsed; the same plan without any."""
    folds = replace(clears, limit_tokens=context.budget.message_tokens)
    edited = _cleared_by(context.policy.at_stage("fold"), cleared.edited, context, folds)
    return cleared if edited is cleared.edited else Plan(edited)


def _cleared_by(
    layers: Iterable[tuple[str, Layer]],
    edited: EditedMessages,
    context: CompactionContext,
    clears: LayerContext,
) -> EditedMessages:
    """Return `edited` after `layers`, without their edits of messages pinned as a whole."""
    for name, layer in layers:
        step = layer.apply(edited.messages, clears)
        if context.pins.marked:
            step = restore_pinned(edited.messages, step, context.pins.marked)
        edited = edited.then(name, step, context.count)
    return edited


def cut_at(
    context: CompactionContext,
    edited: EditedMessages,
    cut: cut_point.CutPoint,
    *,
    removes_rules: bool = False,
) -> Plan:
    """Return the plan that cuts `edited` at `cut`; its texts are written later.

    With `removes_rules` even project rules and the user's automatic pins are replaced.
    """
    edited = fit_project_rules(context, edited, removes_all=removes_rules)
    return plan_of_cut(context, edited, cut, removes_rules=removes_rules)


def plan_of_cut(
    context: CompactionContext,
    edited: EditedMessages,
    cut: cut_point.CutPoint,
    *,
    removes_rules: bool = False,
) -> Plan:
    """Return the plan that replaces the messages before `cut`, with the pins of these messages."""
    source = edited.messages
    history, prefix = cut_point.history_of(source, cut), cut_point.turn_prefix_of(source, cut)
    if prefix and not cut.folds_request and not any(map(_is_summarizable, history)):
        most_tokens = int(context.share_tokens * _HOST_TEXT_SHARE)
        has_own = any(map(placeholders.is_synthetic, history))
        history = history if has_own or context.count.messages(history) > most_tokens else ()
    plan = Plan(edited, cut, history, prefix)
    return replace(plan, pins=_pins_of(context, plan, removes_rules=removes_rules))


def _is_summarizable(message: Message) -> bool:
    """Whether the message has content for a summary.

    False for text inserted by the host, for restored files and for an empty earlier summary.
    """
    if placeholders.is_synthetic(message):
        return bool((placeholders.body_of(message) or "").strip())
    has_other_blocks = any(not isinstance(block, Text) for block in message.blocks)
    return has_other_blocks or any(
        author != "host" and text.strip() for author, text in passages(message)
    )


def _pins_of(context: CompactionContext, plan: Plan, *, removes_rules: bool) -> tuple[Pin, ...]:
    """Return the pins that the summary carries: all except those of messages that stay in full."""
    removed = {message.index for message in plan.replaced}
    removed |= {edit.index for edit in plan.edited.edits if is_of_request(edit)}
    leaving = [pin for pin in context.pins.candidates if pin.index is None or pin.index in removed]
    settings = context.settings
    return fit_to_budget(
        leaving,
        limit_tokens=settings.pinned_tokens,
        automatic_tokens=0 if removes_rules else settings.automatic_pin_tokens,
        running_tokens=int(context.share_tokens * _RUNNING_SHARE),
    )


def plan_by_policy(
    context: CompactionContext, *, always_cut: bool, keep_messages: int = 0
) -> Plan | None:
    """Return the plan by the policy's own rule for the cut point; None if it does not fit.

    With `always_cut` a list that fits is cut as well. `keep_messages` overrides the policy's rule.
    """
    cleared = plan_by_clearing(context, clearing_context(context))
    if context.fits(cleared.edited.messages) and not always_cut:
        return cleared
    settings = context.settings
    if always_cut:
        # The caller asks for a summary, so only the newest run stays, however much would fit.
        settings = replace(settings, keep_recent_turns=0, keep_recent_fraction=0.0)
    reserved_tokens = min(settings.summary_tokens, context.share_tokens // 2)
    cut = _policy_cut(context, cleared.edited, settings, reserved_tokens, keep_messages)
    if cut is None:
        return cleared if context.fits(cleared.edited.messages) else None
    plan = cut_at(context, cleared.edited, cut)
    pinned_tokens = sum(pin.tokens for pin in plan.pins if pin.is_automatic)
    reserved_tokens = max(0, reserved_tokens - pinned_tokens)
    plan = _with_text_limit(context, plan, reserved_tokens)
    without_summary = assemble(context, plan).messages
    if not context.fits(without_summary, spare_tokens=plan.text_tokens):
        return None
    free_tokens = context.room_tokens(without_summary)
    desired_tokens = min(settings.summary_tokens - pinned_tokens, free_tokens)
    return _with_text_limit(context, plan, max(reserved_tokens, desired_tokens))


def _policy_cut(
    context: CompactionContext,
    edited: EditedMessages,
    settings: Settings,
    reserved_tokens: int,
    keep_messages: int,
) -> cut_point.CutPoint | None:
    rules = context.rules
    if keep_messages:
        return cut_point.cut_keeping(edited.messages, rules, keep_messages=keep_messages)
    if settings.replace_all:
        return cut_point.cut_all(edited.messages, rules)
    room_tokens = context.share_tokens - reserved_tokens
    is_of_target = settings.keep_recent_of == "target"
    base_tokens = room_tokens if is_of_target else context.budget.window_message_tokens
    cut = cut_point.find_cut(
        edited.messages,
        count=context.count,
        rules=rules,
        keep_tokens=min(int(base_tokens * settings.keep_recent_fraction), room_tokens),
        keep_turns=settings.keep_recent_turns,
        max_tokens=room_tokens,
    )
    if cut is None or cut.request_at is None or settings.split_turn == "checkpoint":
        return cut
    return replace(cut, folds_request=True)


def _with_text_limit(context: CompactionContext, plan: Plan, tokens: int) -> Plan:
    """Return `plan` with at most `tokens` for its text, and at most a share of what it replaces."""
    replaced_tokens = context.count.total(plan.replaced)
    # An earlier summary may be repeated in full, because it replaces far more than it counts.
    earlier_tokens = context.count.total([*filter(placeholders.is_synthetic, plan.replaced)])
    most_tokens = earlier_tokens + int((replaced_tokens - earlier_tokens) * _SUMMARY_SHARE)
    return replace(plan, text_tokens=min(tokens, max(0, most_tokens)))


def plan_of_range(context: CompactionContext) -> Plan:
    """Return the plan that replaces the messages in the caller's range by a summary.

    The range grows to the results of its calls. It shrinks if the list has no such result yet.
    """
    request, messages = context.request, context.messages
    unchanged = Plan(EditedMessages(messages))
    first, last = request.range or (0, -1)
    inside = [
        at for at, m in enumerate(messages) if m.index is not None and first <= m.index <= last
    ]
    if not inside:
        return unchanged
    safe = [at for at, is_safe in enumerate(safe_cuts(messages, context.rules)) if is_safe]
    start = max(at for at in safe if at <= inside[0])
    stop = next((at for at in safe if at > inside[-1]), safe[-1])
    requests = [at for at in range(start, stop) if placeholders.is_request(messages[at])]
    is_newest = not any(map(placeholders.is_request, messages[stop:]))
    cut = cut_point.CutPoint(
        stop, requests[-1] if requests and is_newest else None, history_start=start
    )
    plan = plan_of_cut(context, unchanged.edited, cut)
    tokens = context.count.total(plan.replaced)
    if not tokens:
        return unchanged
    share = DETAIL_SHARES[request.detail or "normal"]
    if request.summary is not None and request.detail is None:
        share = _CALLER_SHARE
    return replace(plan, text_tokens=request.target_tokens or int(tokens * share))


def applied_plan(context: CompactionContext, prepared: PreparedList, proven: ProvenTexts) -> Plan:
    """Return the plan that replaces the first messages of `context` by `prepared`."""
    present = {m.index: m for m in context.messages if m.index is not None}
    raws = [entry["raw"] for entry in prepared.messages if not isinstance(entry, int)]
    written = iter(with_authors(formats.parse(raws, format=context.format), proven))
    first: list[Message] = []
    for entry in prepared.messages:
        if isinstance(entry, int):
            first += [present[entry]] if entry in present else []
        else:
            index = entry["index"]
            first.append(replace(next(written), index=index, edited=index is not None))
    count, messages = prepared.message_count, context.messages
    later = (at for at, message in enumerate(messages) if (message.index or 0) >= count)
    report = prepared.report
    edited = EditedMessages(
        (*first, *messages[next(later, len(messages)) :]),
        tuple(replace(Edit(**edit), pointers=tuple(edit["pointers"])) for edit in report["edits"]),
        layers=tuple(LayerReport(**layer) for layer in report["layers"]),
    )
    return Plan(edited)
