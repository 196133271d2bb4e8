"""Read one call: parse and check its list; make the loaded list valid and find its budget."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from anyio import to_thread

from context_compaction import errors, formats
from context_compaction.archive.archive import Archive
from context_compaction.budget import TokenBudget, check_budget, token_budget_of
from context_compaction.context import CompactionContext, EditedMessages, ReceivedInput, Session
from context_compaction.formats import LIST_CACHE, CachedList, format_of_tools
from context_compaction.layers.drop_messages import snip_chosen
from context_compaction.layers.repair import repair, repair_after_removal
from context_compaction.layers.strip_thinking import strip_invalid_thinking
from context_compaction.messages.cache import MAX_MESSAGES, RecentCache
from context_compaction.messages.model import JsonObject, Message, Messages, Step
from context_compaction.messages.pins import Pins
from context_compaction.messages.raw import cache_markers, keep_cache_markers
from context_compaction.messages.speakers import claims_in, with_authors
from context_compaction.pipeline.collect_pins import check_indices, check_pins, gather_pins
from context_compaction.pipeline.shorten import preserved_tokens
from context_compaction.policies import policy_named
from context_compaction.redaction import Gates, RedactionMode
from context_compaction.request import DETAIL_SHARES, CompactRequest, Settings, override
from context_compaction.tokens.counter import MessageCounter, counter_for, message_bytes

NOT_COMPACTED = "The list was archived, but not compacted, because no format fits it. {}"
# Tokens and bytes of messages that this process has counted.
_COUNTS: RecentCache[tuple[int, int]] = RecentCache(MAX_MESSAGES)


async def read(
    payload: Sequence[JsonObject], request: CompactRequest, archive: Archive
) -> ReceivedInput:
    """Return the parsed list, in the format of its session if several formats fit.

    A compacted list may consist of plain strings, which several formats allow. The wrong format
    would repair it by the rules of another provider. The session is the one that the caller or a
    summary in the list names.

    Raises:
        InvalidMessageError: A message is malformed in the format that the caller names.
        UnknownFormatError: No format fits, and the list cannot be archived as text either.
        SettingsError: An option is out of range, or contradicts another.
    """
    given = await to_thread.run_sync(_read_input, payload, request)
    session_id = next(filter(None, (request.session_id, *given.claims.session_ids)), None)
    if len(given.possible_formats) < 2 or session_id is None:
        return given
    try:
        format_name, _ = await archive.context(session_id, limit=0)
    except (errors.NotFoundError, errors.SettingsError):  # a summary may name any session
        return given
    if format_name == given.format or format_name not in given.possible_formats:
        return given
    return await to_thread.run_sync(_read_input, payload, replace(request, format=format_name))


def _read_input(payload: Sequence[JsonObject], request: CompactRequest) -> ReceivedInput:
    """Return the parsed list after every check that can refuse the call."""
    if request.prepare or request.apply is not None:
        _check_prepared(request)
    if request.detail is not None and request.range is None:
        fraction = {"target_fraction": DETAIL_SHARES[request.detail]}
        request = replace(request, settings=fraction | {**request.settings})
    payload = list(payload)  # the caller may change its own list during the call
    settings = override(policy_named(request.policy).settings, request.settings)
    count = counter_for(request.model, estimator=settings.estimator)
    warnings: tuple[str, ...] = ()
    try:
        possible_formats = _possible_formats(payload, request)
        known = LIST_CACHE.read(payload, possible_formats[0])
    except (errors.InvalidMessageError, errors.UnknownFormatError) as error:
        needs_format = request.format is not None or request.mode in ("plan", "reactive")
        damaged = None if needs_format else formats.parse_damaged(payload)
        if damaged is None:
            raise
        possible_formats, known = (damaged[0],), CachedList(damaged[1])
        request, warnings = replace(request, mode="record"), (NOT_COMPACTED.format(error),)
    messages = known.messages
    _check_range(request, messages)
    check_budget(_of_whole_list(request), settings, messages, count)
    check_indices("snip_messages", request.snip_messages, messages)
    check_pins(request, messages)
    claims = known.once("claims", None, lambda: claims_in(messages))
    format_name = possible_formats[0]
    return ReceivedInput(payload, request, known, format_name, claims, possible_formats, warnings)


def _check_range(request: CompactRequest, messages: Messages) -> None:
    """Refuse an impossible `range` or `detail`.

    Raises:
        SettingsError: `range` names no messages of the list, or contradicts another option; or both
            `detail` and a target were given.
    """
    detail, target = request.detail, request.target_tokens
    problem = f"detail is {detail!r} and target_tokens is {target}. Pass one of them."
    _refuse({problem: detail is not None and target is not None})
    if request.range is None:
        return
    first, last = request.range
    policy = policy_named(request.policy)
    _refuse({
        f"range is {first} to {last}, so it contains no message. Pass the first number and then "
        f"the last, for example {last} and {first}.": first > last,
        f"range is {first} to {last}, but the list has {len(messages)} messages, counted from 0. "
        "Pass numbers of messages in this list.": first < 0 or last >= len(messages),
        f"range was given with mode {request.mode!r}, which writes no summary. Use auto, full or "
        "plan.": request.mode not in ("auto", "full", "plan"),
        f"range was given with policy {policy.name!r}, which writes no summary. Use another "
        "policy.": not policy.replaces_history,
    })


def _refuse(problems: Mapping[str, bool]) -> None:
    """Raise `SettingsError` for the first problem that exists."""
    for problem, exists in problems.items():
        if exists:
            raise errors.SettingsError(problem)


def _of_whole_list(request: CompactRequest) -> CompactRequest:
    """Return `request` without a target that only limits the summary of a range."""
    return request if request.range is None else replace(request, target_tokens=None)


def _possible_formats(payload: Sequence[JsonObject], request: CompactRequest) -> tuple[str, ...]:
    """Return the formats that fit `payload`, starting with the format of the request's tools."""
    if request.format:
        return (request.format,)
    format_name = format_of_tools(request.tools)
    fitting = formats.fitting_formats(payload) if payload else ("anthropic",)
    return tuple(sorted(fitting, key=lambda name: name != format_name))


def context_of(session: Session, redaction: RedactionMode) -> CompactionContext:
    """Return the context of the call: the loaded list made valid, counted, with its budget."""
    request, known, proven = session.request, session.known, session.proven
    policy, rules = policy_named(request.policy), formats.FORMATS[session.given.format].rules
    settings = override(policy.settings, request.settings)
    parsed = known.once("authors", proven, lambda: with_authors(session.messages, proven))
    count = _counter(session, settings, parsed)
    limited = session.rejections.limit_target(_of_whole_list(request))
    budget = token_budget_of(limited, settings, parsed, count, fills_window=session.is_undone)
    replaces = request.mode in ("micro", "full", "reactive") or request.apply is not None
    repaired = _repaired(session, parsed, count, settings, unique_ids=budget.is_over or replaces)
    if repaired.messages is not parsed and not budget.is_over:
        # Repairs add text, for example for missing results.
        budget = _measured_again(budget, repaired.messages, count)
        if budget.is_over and not replaces:
            repaired = _repaired(session, parsed, count, settings, unique_ids=True)
    if request.range is not None:
        # The rest of the list stays, so only the trigger limits the result.
        budget = replace(budget, is_over=False)
    limit_tokens = budget.message_tokens
    fixed_tokens = known.once(
        "fixed_tokens",
        (proven, repaired.edits, limit_tokens, count.method),
        lambda: preserved_tokens(repaired.messages, limit_tokens, count),
    )
    open_tokens = budget.target_tokens - int(fixed_tokens * count.margin)
    settings = settings.scaled(open_tokens, budget.trigger_tokens)
    # Snipping a message must not remove a rule of the user, so it needs the rules as well.
    is_asked = request.mode in ("full", "reactive") or request.range is not None
    may_replace = budget.is_over or is_asked or request.snip_messages
    finds_rules = bool(may_replace) and settings.automatic_pin_tokens > 0
    context = CompactionContext(
        session,
        EditedMessages(parsed).then("repair", repaired, count),
        parsed,
        rules,
        policy,
        settings,
        count,
        budget,
        pins=_pins(session, parsed, count, finds_rules=finds_rules),
        gates=Gates(redaction, parsed),
        fixed_tokens=fixed_tokens,
    )
    return _without_snipped(context)


def _without_snipped(context: CompactionContext) -> CompactionContext:
    """Return `context` without the messages that the caller snips."""
    request = context.request
    if not request.snip_messages or request.mode == "record":
        return context
    step = snip_chosen(context.messages, context.layer_context, request.snip_messages)
    if step.messages is context.messages:
        return context
    count = context.count
    snipped = context.start.then("snip", step, count)
    repaired = repair_after_removal(snipped.messages, context.rules)
    snipped = snipped.then("repair", repaired, count)
    stripped = without_invalid_thinking(context, snipped.messages, context.parsed)
    snipped = snipped.then("thinking", stripped, count)
    messages = keep_cache_markers(cache_markers(context.parsed), snipped.messages)
    budget = _measured_again(context.budget, messages, count)
    return replace(context, start=replace(snipped, messages=messages), budget=budget)


def without_invalid_thinking(
    context: CompactionContext, messages: Messages, before: Messages
) -> Step:
    """Return `messages` without thinking that edits since `before` made invalid."""
    if not context.rules.thinking_is_bound:
        return Step(messages)
    settings, model = context.settings, context.request.model
    return strip_invalid_thinking(before, messages, context.count, settings, model)


def _measured_again(budget: TokenBudget, messages: Messages, count: MessageCounter) -> TokenBudget:
    """Return `budget`, over its trigger only if `messages` are."""
    is_over = (
        budget.request_count.estimate(messages).upper > budget.trigger_tokens
        or count.request_bytes(messages) > budget.max_bytes
    )
    return replace(budget, is_over=is_over)


def _pins(session: Session, parsed: Messages, count: MessageCounter, *, finds_rules: bool) -> Pins:
    """Return the pins of the call; those without rules are remembered with the list."""
    request = session.request

    def gather() -> Pins:
        return gather_pins(session, parsed, count, finds_rules=finds_rules)

    if finds_rules:
        return gather()
    options = request.pinned, request.pinned_messages, request.unpin
    given = options, session.session_id, session.seqs, session.proven, count.method
    return session.known.once("pins", given, gather)


def _counter(session: Session, settings: Settings, parsed: Messages) -> MessageCounter:
    """Return a counter that has counted `parsed`, in this call or an earlier one.

    Counts are remembered by list and by message, so a grown list counts only new messages.
    """
    model, estimator = session.request.model, settings.estimator

    def counted() -> MessageCounter:
        counter = counter_for(model, estimator=estimator)
        count = counter.with_own_caches()

        def counts_of(message: Message) -> tuple[int, int]:
            return counter.message(message), message_bytes(message)

        for message in parsed:
            if message.key:
                name = model, estimator, session.given.format, message.key
                counts = _COUNTS.get_or_compute(name, partial(counts_of, message))
                count.learn(message, *counts)
        return count

    given = model, estimator, session.proven
    return session.known.once("counter", given, counted).with_own_caches()


def _repaired(
    session: Session,
    parsed: Messages,
    count: MessageCounter,
    settings: Settings,
    *,
    unique_ids: bool,
) -> Step:
    """Return the valid list; a repair makes bound thinking invalid, as any edit does."""
    rules = formats.FORMATS[session.given.format].rules
    repaired = session.known.once(
        "repaired",
        (session.proven, unique_ids),
        lambda: repair(parsed, rules, unique_ids=unique_ids),
    )
    if not rules.thinking_is_bound or repaired.messages is parsed:
        return repaired
    model = session.request.model
    stripped = strip_invalid_thinking(parsed, repaired.messages, count, settings, model)
    return Step(stripped.messages, (*repaired.edits, *stripped.edits))


def _check_prepared(request: CompactRequest) -> None:
    """Refuse options that contradict `prepare` or `apply`.

    Raises:
        SettingsError: The options contradict each other.
    """
    applies, name = request.apply is not None, "snip_messages" if request.snip_messages else "range"
    _refuse({
        "prepare and apply were given together. Prepare first, and apply in a later "
        "call.": request.prepare and applies,
        f"{name} was given with prepare or apply, which keep the list as it is. Remove {name}, or "
        "snip in a separate call.": bool(request.snip_messages) or request.range is not None,
        f"prepare was given with mode {request.mode!r}, which has no outcome to store. Use one of: "
        "auto, micro, full.": request.prepare and request.mode not in ("auto", "micro", "full"),
        f"apply was given with mode {request.mode!r}. Remove the mode: preparing has decided what "
        "is applied.": applies and request.mode != "auto",
    })
