"""One call, read and checked: its messages, made valid, and their budget."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive import Archive
from context_compaction.budget import TokenBudget, check_budget, token_budget_of
from context_compaction.context import CompactionContext, ReceivedInput, layer_context_of
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.formats.detection import format_of_tools
from context_compaction.formats.list_cache import LIST_CACHE
from context_compaction.layers.drop_messages import snip_chosen
from context_compaction.layers.repair import repair, repairs_after_removal
from context_compaction.layers.strip_thinking import strip_invalid_thinking
from context_compaction.messages.cache_control import cache_markers, keep_cache_markers
from context_compaction.messages.edits import Step
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.messages.pins import Pins
from context_compaction.messages.speakers import claims_in, with_authors
from context_compaction.messages.tool_pairs import ProviderRules
from context_compaction.pipeline.clear import first_level
from context_compaction.pipeline.collect_pins import check_pins, gather_pins
from context_compaction.pipeline.project_rules import fixed_tokens_of
from context_compaction.policies import policy_named
from context_compaction.redaction import RedactionMode, gates_of
from context_compaction.request import CompactRequest
from context_compaction.session.resume import Session, check_prepared
from context_compaction.settings import Settings, override
from context_compaction.tokens.counter import MessageCounter, counter_for


async def read(
    payload: Sequence[JsonObject], request: CompactRequest, archive: Archive
) -> ReceivedInput:
    """The messages of `payload`, in the format of its session if several fit.

    What a compaction leaves may be plain strings, which tell no format: read in another one, the
    list would be repaired by rules of a provider that it is not for. The session is that which the
    caller names, or a summary in the list. Raises what `read_input` raises.
    """
    given = await to_thread.run_sync(read_input, payload, request)
    session_id = next(filter(None, (request.session_id, *given.claims.session_ids)), None)
    if len(given.fitting) < 2 or session_id is None:
        return given
    try:
        known, _ = await archive.context(session_id, limit=0)  # its format alone
    except (NotFoundError, SettingsError):  # anybody may write a summary
        return given
    if known == given.format or known not in given.fitting:
        return given
    return await to_thread.run_sync(read_input, payload, replace(request, format=known))


def read_input(payload: Sequence[JsonObject], request: CompactRequest) -> ReceivedInput:
    """The messages of `payload`, after every check that can refuse the call.

    Raises:
        InvalidMessageError: A message is malformed.
        UnknownFormatError: The format cannot be found.
        SettingsError: An option is out of range, or contradicts another.
    """
    if request.prepare or request.apply is not None:
        check_prepared(request)
    payload = list(payload)  # the caller may change its own during the call
    settings = override(policy_named(request.policy).settings, request.settings)
    count = counter_for(request.model, estimator=settings.estimator)
    fitting = _fitting(payload, request)
    format_name = fitting[0]
    known = LIST_CACHE.read(payload, format_name)
    parsed = known.messages
    check_budget(request, settings, parsed, count)
    for at in request.snip_messages:
        if not 0 <= at < len(parsed):
            raise SettingsError(
                f"snip_messages names message {at}, but the list has {len(parsed)}, counted "
                "from 0. Give places in this very list."
            )
    check_pins(request, parsed)
    return ReceivedInput(
        payload,
        request,
        known,
        format_name,
        known.once("claims", None, lambda: claims_in(parsed)),
        fitting,
    )


def _fitting(payload: Sequence[JsonObject], request: CompactRequest) -> tuple[str, ...]:
    """The formats that `payload` may be in, first the one that the request's tools are given in."""
    if request.format:
        return (request.format,)
    told = format_of_tools(request.tools)
    fitting = formats.fitting_formats(payload) if payload else ("anthropic",)
    return tuple(sorted(fitting, key=lambda name: name != told))


def context_of(
    given: ReceivedInput, session: Session, redaction: RedactionMode
) -> CompactionContext:
    """The context of the call, its list made valid and counted."""
    request = session.request
    policy, rules = policy_named(request.policy), formats.FORMATS[given.format].rules
    settings = override(policy.settings, request.settings)
    messages, ours = session.messages, session.ours
    parsed = session.known.once("attributed", ours, lambda: with_authors(messages, ours))
    count = _counter(session, settings, parsed)
    budget = token_budget_of(session.rejections.harder(request), settings, parsed, count)
    replaces = request.mode in ("micro", "full", "reactive") or request.apply is not None
    repaired = _repaired(session, parsed, rules, count, settings, budget.is_over or replaces)
    if repaired.messages is not parsed and not budget.is_over:
        # What stands in for missing results counts too.
        budget = _measured(budget, repaired.messages, count)
        if budget.is_over and not replaces:
            repaired = _repaired(session, parsed, rules, count, settings, unique_ids=True)
    fixed_tokens = session.known.once(
        "fixed_tokens",
        (ours, repaired.edits, budget.limits.tokens, count.method),
        lambda: fixed_tokens_of(repaired.messages, budget.limits.tokens, count),
    )
    open_tokens = budget.target_tokens - int(fixed_tokens * count.margin)
    settings = settings.scaled(open_tokens, budget.trigger_tokens)
    # A message that is left out must not take a rule of the user with it either.
    may_replace = budget.is_over or request.mode in ("full", "reactive") or request.snip_messages
    context = CompactionContext(
        messages=repaired.messages,
        parsed=parsed,
        repairs=repaired.edits,
        format=given.format,
        rules=rules,
        request=request,
        session_id=session.session_id,
        seqs=session.seqs,
        heads=session.heads,
        policy=policy,
        settings=settings,
        count=count,
        budget=budget,
        limits=budget.limits,
        pins=_pins(session, parsed, count, bool(may_replace) and settings.automatic_pin_tokens > 0),
        gates=gates_of(redaction, parsed),
        places=session.places,
        fixed_tokens=fixed_tokens,
    )
    context = _without_snipped(context)
    markers = cache(partial(cache_markers, context.messages))
    return replace(context, markers=markers)


def _without_snipped(context: CompactionContext) -> CompactionContext:
    """Without the messages that the request names, and over the trigger only if still above."""
    request = context.request
    if not request.snip_messages or request.mode == "record":
        return context
    layer_context = layer_context_of(context, first_level(context.settings))
    step = snip_chosen(context.messages, layer_context, request.snip_messages)
    if step.messages is context.messages:
        return context
    edits = (*context.repairs, *step.edits)
    messages = step.messages
    # What stood beside the gap must be legal where it stands now.
    for mend in repairs_after_removal(context.rules):
        mended = mend(messages)
        edits, messages = (*edits, *mended.edits), mended.messages
    if context.rules.thinking_is_bound:
        stripped = strip_invalid_thinking(
            context.parsed,
            messages,
            count=context.count,
            rule=context.settings.thinking,
            model=request.model,
        )
        edits, messages = (*edits, *stripped.edits), stripped.messages
    messages = keep_cache_markers(cache_markers(context.parsed), messages)
    budget = _measured(context.budget, messages, context.count)
    return replace(context, messages=messages, repairs=edits, budget=budget)


def _measured(budget: TokenBudget, messages: Messages, count: MessageCounter) -> TokenBudget:
    """`budget` over its trigger only where `messages`, in the place of those handed in, are."""
    is_over = (
        budget.request_count.estimate(messages).upper > budget.trigger_tokens
        or count.request_bytes(messages) > budget.limits.bytes
    )
    return replace(budget, is_over=is_over)


def _pins(session: Session, parsed: Messages, count: MessageCounter, finds_rules: bool) -> Pins:
    """The pins of the call; without rules of the user, those of the last call with this list."""
    request, known = session.request, session.known
    gather = partial(
        gather_pins,
        request,
        parsed,
        session_id=session.session_id,
        seqs=session.seqs,
        count=count,
        finds_rules=finds_rules,
    )
    if finds_rules:
        return gather()
    asked = request.pinned, request.pinned_messages, request.unpin
    given = asked, session.session_id, session.seqs, session.ours, count.method
    return known.once("pins", given, gather)


def _counter(session: Session, settings: Settings, parsed: Messages) -> MessageCounter:
    """A counter that has counted `parsed`, in this call or in an earlier call with this list."""
    model, estimator = session.request.model, settings.estimator

    def counted() -> MessageCounter:
        count = counter_for(model, estimator=estimator).for_one_call()
        count.messages(parsed)
        count.request_bytes(parsed)
        return count

    given = model, estimator, session.ours
    return session.known.once("counter", given, counted).for_one_call()


def _repaired(
    session: Session,
    parsed: Messages,
    rules: ProviderRules,
    count: MessageCounter,
    settings: Settings,
    unique_ids: bool,
) -> Step:
    """The valid list; a repair makes bound thinking void just as any other edit does."""
    given = session.ours, unique_ids
    repaired = session.known.once(
        "repaired", given, lambda: repair(parsed, rules, unique_ids=unique_ids)
    )
    if not rules.thinking_is_bound or repaired.messages is parsed:
        return repaired
    stripped = strip_invalid_thinking(
        parsed,
        repaired.messages,
        count=count,
        rule=settings.thinking,
        model=session.request.model,
    )
    return Step(stripped.messages, (*repaired.edits, *stripped.edits))
