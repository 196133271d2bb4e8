"""Token limits of a conversation and of the result of one call.

The trigger is the context window minus the reserve for the response (at most 20,000 tokens) and a
buffer of 13,000 tokens. The target is a fraction of the trigger, so that many turns pass before the
next compaction and the prompt cache lasts. `Budget` is what a window leaves; `TokenBudget` has the
figures of one call.
"""

import math
from dataclasses import dataclass, replace

from context_compaction.errors import SettingsError
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, text_of
from context_compaction.request import CompactRequest, Mode, Settings
from context_compaction.result import TokenReport
from context_compaction.tokens.counter import (
    Estimate,
    MessageCounter,
    RequestCount,
    UsageAnchor,
    anchor_from_usage,
    request_count,
)
from context_compaction.tokens.models import profile_for

# In a smaller window, reserve and buffer get at most the share that they have of this one (30 % and
# 20 %), so that about half of the window is left for the conversation.
SMALL_WINDOW_TOKENS = 65_536
_DEFAULTS = Settings()

# A summary, the newest results and a file need this much in a small window, too, so a small
# target fraction does not go below it. At most 0.3 of the conversation, so that trigger and target
# stay apart.
_MIN_TARGET_TOKENS = 8_000

# Reserve and buffer leave the conversation at least this share of the window beside the system
# prompt, the tools and the system messages.
_MIN_CONVERSATION_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens that a window leaves for the conversation.

    Attributes:
        context_window: Token limit of a request, input and output together.
        output_reserve_tokens: Tokens reserved for the response.
        trigger_tokens: Token count above which a compaction starts.
    """

    context_window: int
    output_reserve_tokens: int
    trigger_tokens: int


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """The limits of one call, in tokens of the whole request unless stated otherwise.

    Attributes:
        before: Estimate of the caller's list.
        trigger_tokens: Token count above which "auto" compacts.
        target_tokens: Limit for the upper estimate of the result.
        message_tokens: The target for the messages alone, as the counter counts them.
        window_message_tokens: The window for the messages alone, as the counter counts them.
        max_bytes: Limit for the bytes of the messages.
        request_count: Counts requests from their messages.
        is_over: Whether the caller's list exceeds the trigger or `max_bytes`.
        fills_target: Whether the caller named the target, so the result fills it.
    """

    before: Estimate
    trigger_tokens: int
    target_tokens: int
    message_tokens: int
    window_message_tokens: int
    max_bytes: int
    request_count: RequestCount
    is_over: bool
    fills_target: bool

    def limit_tokens(self, mode: Mode) -> int:
        """Return the limit of the result: the target if the list must shrink, else the trigger."""
        must_shrink = mode == "reactive" or (self.is_over and mode not in ("record", "undo"))
        return self.target_tokens if must_shrink else self.trigger_tokens

    def report(self, after: Estimate, mode: Mode) -> TokenReport:
        """Return the figures of the call with the estimate of its result."""
        before = self.before
        return TokenReport(
            before.tokens,
            before.upper,
            after.tokens,
            after.upper,
            self.trigger_tokens,
            self.target_tokens,
            self.limit_tokens(mode),
            before.method,
        )


def window_budget(request: CompactRequest, settings: Settings = _DEFAULTS) -> Budget:
    """Return what the window of `request` leaves; a small window reduces reserve and buffer.

    It reduces none that the caller names in the request's settings. See
    `FixedSettings.small_window` for the rule.

    Raises:
        SettingsError: A figure is out of range, or nothing is left for the conversation.
    """
    profile, cap_tokens = profile_for(request.model), settings.output_reserve_cap_tokens
    window, output = request.context_window, request.max_output_tokens
    window = profile.context_window if window is None else window
    output = profile.max_output_tokens if output is None else output
    for name, value in (("context_window", window), ("max_output_tokens", output)):
        if value < 1:
            raise SettingsError(f"`{name}` is {value}. Pass a whole number of at least 1.")
    reserve, buffer = min(output, cap_tokens), settings.buffer_tokens
    leaves_quarter = window - reserve - buffer >= window / 4
    follows_formula = settings.small_window == "formula" and leaves_quarter
    if window < SMALL_WINDOW_TOKENS and not follows_formula:
        if "output_reserve_cap_tokens" not in request.settings:
            cap_tokens = _DEFAULTS.output_reserve_cap_tokens
            reserve = min(reserve, window * cap_tokens // SMALL_WINDOW_TOKENS)
        if "buffer_tokens" not in request.settings:
            buffer = min(buffer, window * _DEFAULTS.buffer_tokens // SMALL_WINDOW_TOKENS)
    trigger = window - reserve - buffer
    if trigger < 1:
        raise SettingsError(
            f"A window of {window} tokens minus {reserve} for the response and {buffer} of "
            "buffer leaves nothing for the conversation. Lower them, or pass the model's true "
            "`context_window`."
        )
    return Budget(window, reserve, trigger)


def token_budget_of(
    request: CompactRequest,
    settings: Settings,
    messages: Messages,
    count: MessageCounter,
    *,
    fills_window: bool = False,
) -> TokenBudget:
    """Return the budget of `request` for `messages`.

    With `fills_window` the trigger is the window without the reserve for the response.

    Raises:
        SettingsError: A figure is out of range, or the usage belongs to no message of the list.
    """
    requests = request_count(
        messages,
        count,
        overhead_tokens=_overhead_tokens(request, count),
        anchor=_anchor(request, len(messages)),
    )
    before = requests.estimate(messages)
    settings = _without_policy_trigger(request, settings)
    overhead_tokens = requests.overhead_upper
    fixed_tokens = overhead_tokens + _system_tokens(messages, count)
    window, trigger, target = _window_trigger_target(
        request, settings, overhead_tokens=overhead_tokens, fixed_tokens=fixed_tokens
    )
    if fills_window:
        trigger = window - window_budget(request, settings).output_reserve_tokens
    max_bytes = settings.max_request_bytes
    is_over = before.upper > trigger or count.request_bytes(messages) > max_bytes
    if request.mode == "reactive" or (is_over and request.target_tokens is None):
        if request.mode == "reactive":
            target = _target_after_rejection(target, before, fixed_tokens)
        elif target <= fixed_tokens < trigger:
            # Otherwise only system messages would be left.
            target = fixed_tokens + _target_part(trigger - fixed_tokens, request, settings)
    return TokenBudget(
        before,
        trigger,
        target,
        requests.message_limit(target),
        requests.message_limit(window),
        max_bytes,
        requests,
        is_over,
        request.target_tokens is not None and request.mode in ("auto", "plan"),
    )


def check_budget(
    request: CompactRequest, settings: Settings, messages: Messages, count: MessageCounter
) -> None:
    """Check that the figures of `request` are possible, and that its usage fits `messages`.

    Raises:
        SettingsError: See `token_budget_of`. Also raised if the system prompt, the tools and the
            system messages alone exceed the target, because removing the whole conversation would
            not help.
    """
    _anchor(request, len(messages))
    without_usage = replace(request, usage=None, usage_message_index=None)
    system = tuple(filter(placeholders.is_system, messages))
    budget = token_budget_of(without_usage, settings, system, count)
    if request.mode in ("record", "reactive", "undo"):
        return
    overhead_tokens = budget.request_count.overhead_upper
    system_tokens = _system_tokens(system, count)
    fixed_tokens = overhead_tokens + system_tokens
    if request.target_tokens is None:
        limit_tokens = budget.trigger_tokens
        problem = f"In this window a compaction starts at {limit_tokens} tokens"
        remedy = "Pass the model's true `context_window`, fewer tools, or shorter system messages."
    else:
        limit_tokens = budget.target_tokens
        problem = f"`target_tokens` is {request.target_tokens}"
        remedy = f"Pass more than {fixed_tokens}, plus what you want to keep of the conversation."
    if fixed_tokens < limit_tokens:
        return
    kinds = {"system prompt and tools": overhead_tokens, "system messages": system_tokens}
    fixed = " and ".join(kind for kind, tokens in kinds.items() if tokens)
    raise SettingsError(
        f"{problem}, but {fixed}, which stay, take up to {fixed_tokens}. Nothing "
        f"would be left of the conversation. {remedy}"
    )


def window_of(request: CompactRequest) -> int | None:
    """Return the window that `request` or its model names; None if neither does."""
    if request.context_window is not None or request.model is None:
        return request.context_window
    return None if request.target_tokens is not None else profile_for(request.model).context_window


def reserve_warnings(
    request: CompactRequest, settings: Settings, trigger_tokens: int
) -> tuple[str, ...]:
    """Return a warning if a small window reserves less for the response than the caller named."""
    named = request.max_output_tokens
    if named is None or (request.target_tokens is not None and request.context_window is None):
        return ()
    budget = window_budget(request, settings)
    reserve = min(budget.output_reserve_tokens, budget.context_window - trigger_tokens)
    if reserve >= min(named, settings.output_reserve_cap_tokens):
        return ()
    beside = "" if reserve == budget.output_reserve_tokens else " beside system prompt and tools"
    return (
        f"Only {reserve} of {named} tokens are reserved for the response, because the window has "
        f"only {budget.context_window}{beside}. Ask the model for at most {reserve} tokens, or set "
        f"output_reserve_cap_tokens to {named}.",
    )


def margin_warnings(request: CompactRequest, method: str) -> tuple[str, ...]:
    """Return the warning that a target was filled by cautious counts, because no model is named."""
    if request.target_tokens is None or request.model is not None or "/unknown" not in method:
        return ()
    return (
        f"No model is named, so tokens were counted with a cautious margin ({method}). A part of "
        f"the target of {request.target_tokens:,} tokens can stay unused. Name the "
        "conversation's model to fill it.",
    )


def _system_tokens(messages: Messages, count: MessageCounter) -> int:
    """Return the upper estimate of the system messages, which survive every cut.

    Of a repeated system message only the last copy stays, so it counts once.
    """
    system = {text_of(m.blocks): m for m in messages if placeholders.is_system(m)}
    return math.ceil(sum(map(count.message, system.values())) * count.margin)


def _target_after_rejection(target_tokens: int, before: Estimate, fixed_tokens: int) -> int:
    """Return the target for a list that the provider rejected as too long.

    The estimate was too low, so the target is half of it. If many tools are fixed, the target
    leaves a quarter of the conversation instead, because removing all of it would not help.
    """
    movable_tokens = max(0, before.upper - fixed_tokens)
    least_tokens = fixed_tokens + movable_tokens // 4
    target_tokens = min(target_tokens, max(before.tokens // 2, least_tokens))
    if target_tokens > fixed_tokens:
        return target_tokens
    return fixed_tokens + max(1, min(target_tokens, movable_tokens) // 4)


def _anchor(request: CompactRequest, message_count: int) -> UsageAnchor | None:
    if request.usage is None:
        return None
    if request.usage_message_index is None:
        raise SettingsError(
            "`usage` needs `usage_message_index`. Pass the index, from 0, of the response that "
            "the provider reported the usage for."
        )
    if not 0 <= request.usage_message_index < message_count:
        raise SettingsError(
            f"`usage_message_index` is {request.usage_message_index}, but the list has "
            f"{message_count} messages. Pass the index of the response that the usage belongs to."
        )
    return anchor_from_usage(request.usage, request.usage_message_index)


def _overhead_tokens(request: CompactRequest, count: MessageCounter) -> int:
    if request.overhead_tokens < 0:
        raise SettingsError(
            f"`overhead_tokens` is {request.overhead_tokens}. Pass 0 or a positive number."
        )
    return count.overhead(system=request.system, tools=request.tools) or request.overhead_tokens


def _window_trigger_target(
    request: CompactRequest, settings: Settings, *, overhead_tokens: int, fixed_tokens: int
) -> tuple[int, int, int]:
    """Return window, trigger and target. A target without a window is all three.

    A model's window counts only without a target: a caller that names a model and a target wants
    the target now.
    """
    target = request.target_tokens
    if target is not None and target < 1:
        raise SettingsError(f"`target_tokens` is {target}. Pass a number of at least 1.")
    if target is not None and request.context_window is None:
        return target, target, target
    budget = window_budget(request, settings)
    window, trigger = budget.context_window, budget.trigger_tokens
    if not {"output_reserve_cap_tokens", "buffer_tokens"} & set(request.settings):
        least = fixed_tokens + int((window - fixed_tokens) * _MIN_CONVERSATION_SHARE)
        trigger = max(trigger, least)
    trigger = min(
        trigger,
        int(window * settings.trigger_fraction),
        int(window * settings.conversation_fraction) + overhead_tokens,
    )
    trigger = max(1, min(trigger, settings.trigger_tokens or trigger))
    # System prompt and tools stay, so only the rest of the trigger can be reduced.
    movable = max(0, trigger - overhead_tokens)
    lower = trigger - movable + _target_part(movable, request, settings)
    return window, trigger, min(target or max(1, lower), trigger)


def _target_part(movable_tokens: int, request: CompactRequest, settings: Settings) -> int:
    """Return how many of `movable_tokens` a compaction leaves.

    A fraction that the caller names is used as it is.
    """
    part_tokens = int(movable_tokens * settings.target_fraction)
    if "target_fraction" in request.settings:
        return part_tokens
    return max(part_tokens, min(_MIN_TARGET_TOKENS, int(movable_tokens * 0.3)))


def _without_policy_trigger(request: CompactRequest, settings: Settings) -> Settings:
    """Return `settings` without the policy's `conversation_fraction` if the caller chose a trigger.

    A caller that names a trigger or a target has decided when to compact.
    """
    named = set(request.settings)
    has_trigger = {"trigger_tokens", "trigger_fraction"} & named or request.target_tokens
    if has_trigger and "conversation_fraction" not in named:
        return replace(settings, conversation_fraction=1.0)
    return settings
