"""One call, read and checked: its messages, made valid, and what they are to come to. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from context_compaction import formats
from context_compaction.budget import TokenBudget, check_goal, token_budget_of
from context_compaction.context import CompactionContext, Places, span_of
from context_compaction.errors import SettingsError
from context_compaction.layers.repair import label_misplaced_system, open_with_user, repair
from context_compaction.layers.snip import snip_chosen
from context_compaction.layers.strip_thinking import strip_void_thinking
from context_compaction.messages.attribution import NOTHING, Ours, attributed
from context_compaction.messages.cache_control import keep_cache_markers
from context_compaction.messages.edits import Step
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.messages.pins import Pins
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.policies import Policy, policy_named
from context_compaction.request import CompactRequest
from context_compaction.settings import Settings, override
from context_compaction.summarizers.instructions.collect_pins import gather_pins
from context_compaction.tokens.counter import MessageCounter, counter_for


@dataclass(frozen=True, slots=True)
class PreparedInput:
    """One call after everything that cannot fail later has been checked."""

    parsed: Messages
    format: str
    repaired: Step
    policy: Policy
    settings: Settings
    count: MessageCounter
    goal: TokenBudget


def parse_payload(payload: Sequence[JsonObject], request: CompactRequest) -> tuple[Messages, str]:
    """The messages of `payload` and their format, after all that can be refused was looked at.

    Raises:
        InvalidMessageError: A message is malformed.
        UnknownFormatError: The format cannot be found.
        SettingsError: An option is out of range.
    """
    settings = override(policy_named(request.policy).settings, request.settings)
    format_name = request.format or (formats.detect(payload) if payload else "anthropic")
    parsed = formats.parse(payload, format=format_name)
    check_goal(request, settings, parsed, counter_for(request.model, estimator=settings.estimator))
    for at in request.snip_messages:
        if not 0 <= at < len(parsed):
            raise SettingsError(
                f"snip_messages names message {at}, but the list has {len(parsed)}, counted "
                "from 0. Give places in this very list."
            )
    return parsed, format_name


def prepare(
    parsed: Messages, format_name: str, request: CompactRequest, ours: Ours = NOTHING
) -> PreparedInput:
    """The call that `request` makes for messages that were read, in which `ours` is from us."""
    policy = policy_named(request.policy)
    settings = override(policy.settings, request.settings)
    parsed = attributed(parsed, ours)
    count = counter_for(request.model, estimator=settings.estimator).for_one_call()
    goal = token_budget_of(request, settings, parsed, count)
    replaces = request.mode in ("micro", "full", "reactive") or request.apply is not None
    rules = formats.FORMATS[format_name].rules
    repaired = _repaired(parsed, rules, count, settings, unique_ids=goal.is_over or replaces)
    scaled = settings.scaled(goal.target_tokens, goal.trigger_tokens)
    return PreparedInput(parsed, format_name, repaired, policy, scaled, count, goal)


def context_of(
    call: PreparedInput,
    request: CompactRequest,
    session_id: str,
    seqs: tuple[int, ...],
    heads: tuple[str, ...],
    places: Places | None = None,
) -> CompactionContext:
    """What the layers need to know of `call`, whose messages are archived as `seqs` and `heads`."""
    return CompactionContext(
        call.repaired.messages,
        session_id,
        seqs,
        heads,
        call.policy,
        call.settings,
        call.goal.limits,
        call.count,
        call.goal.request_count,
        formats.FORMATS[call.format].rules,
        _pins_of(call, request, session_id, seqs),
        request.instructions,
        places,
    )


def without_snipped(
    call: PreparedInput, context: CompactionContext, request: CompactRequest
) -> tuple[PreparedInput, CompactionContext]:
    """Both without the messages that `request` names, and over the trigger only if still above."""
    if not request.snip_messages or request.mode == "record":
        return call, context
    step = snip_chosen(
        context.messages,
        request.snip_messages,
        count=context.count,
        rules=context.rules,
        span_of=partial(span_of, context),
        pinned={*context.pins.marked, *(pin.index for pin in context.pins.candidates)},
    )
    if step.messages is context.messages:
        return call, context
    edits = (*call.repaired.edits, *step.edits)
    messages = step.messages
    # What stood beside the gap must be legal where it stands now.
    if context.rules.system_follows_user:
        labelled = label_misplaced_system(messages)
        edits, messages = (*edits, *labelled.edits), labelled.messages
    if context.rules.first_role_user:
        opened = open_with_user(messages)
        edits, messages = (*edits, *opened.edits), opened.messages
    if context.rules.thinking_is_bound:
        rule = context.settings.thinking
        stripped = strip_void_thinking(call.parsed, messages, count=context.count, rule=rule)
        edits, messages = (*edits, *stripped.edits), stripped.messages
    messages = keep_cache_markers(call.parsed, messages)
    is_over = (
        call.goal.request_count.estimate(messages).upper > call.goal.trigger_tokens
        or context.count.request_bytes(messages) > context.limits.bytes
    )
    goal = replace(call.goal, is_over=is_over)
    call = replace(call, repaired=Step(messages, edits), goal=goal)
    return call, replace(context, messages=messages)


def _pins_of(
    call: PreparedInput, request: CompactRequest, session_id: str, seqs: tuple[int, ...]
) -> Pins:
    # A message that is left out must not take a rule of the user with it either.
    acts = call.goal.is_over or request.mode in ("full", "reactive") or request.snip_messages
    return gather_pins(
        request,
        call.parsed,
        session_id=session_id,
        seqs=seqs,
        count=call.count,
        finds_rules=bool(acts) and call.settings.automatic_pin_tokens > 0,
    )


def _repaired(
    parsed: Messages,
    rules: ProviderRules,
    count: MessageCounter,
    settings: Settings,
    *,
    unique_ids: bool,
) -> Step:
    """The valid list; a repair makes bound thinking void just as any other edit does."""
    repaired = repair(parsed, rules, unique_ids=unique_ids)
    if not rules.thinking_is_bound or repaired.messages is parsed:
        return repaired
    stripped = strip_void_thinking(parsed, repaired.messages, count=count, rule=settings.thinking)
    return Step(stripped.messages, (*repaired.edits, *stripped.edits))
