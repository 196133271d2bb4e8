"""How many tokens a conversation may take, and how many the result of one call may.

window - min(max_output, 20 000) - 13 000 = trigger, and 0.6 of it is the target. Trigger and target
lie apart, so that a compaction is followed by many turns without one and the prompt cache lives.
`Budget` holds what a window leaves, `TokenBudget` the figures of one call (estimate, trigger,
target), and `TokenLimits` the part of them that is left for the messages alone.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from context_compaction.errors import SettingsError
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, text_of
from context_compaction.request import CompactRequest, Mode
from context_compaction.settings import Settings, SmallWindowRule
from context_compaction.tokens.counter import Estimate, MessageCounter
from context_compaction.tokens.models import profile_for
from context_compaction.tokens.request_count import RequestCount, request_count
from context_compaction.tokens.usage import UsageAnchor, anchor_from_usage


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The most that the messages alone may count, in tokens and bytes.

    Attributes:
        tokens: The target, by the counter, for messages that stay as they are.
        target_tokens: The target of the whole request, for its upper estimate.
        bytes: The most bytes that the messages may take.
        window_tokens: The whole window, by the counter.
        is_named: Whether the caller named the target, and wants as much kept as it allows.
    """

    tokens: int
    target_tokens: int
    bytes: int
    window_tokens: int
    is_named: bool = False


# Below this window, reserve and buffer may take at most the share that they have of it here (30 %
# and 20 %), so that about half of the window is left for the conversation, however small it is.
SMALL_WINDOW = 65_536
OUTPUT_RESERVE_CAP_TOKENS = 20_000
BUFFER_TOKENS = 13_000
FORMULA_LEAST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Budget:
    """What a window leaves for the conversation, in tokens.

    Attributes:
        context_window: Most tokens that a request may hold, input and output.
        output_reserve_tokens: Kept free for the answer.
        trigger_tokens: The count above which a compaction starts.
    """

    context_window: int
    output_reserve_tokens: int
    trigger_tokens: int


def make_budget(
    *,
    context_window: int,
    max_output_tokens: int,
    output_reserve_cap_tokens: int = OUTPUT_RESERVE_CAP_TOKENS,
    buffer_tokens: int = BUFFER_TOKENS,
    small_window: SmallWindowRule = "shares",
    uncut: Collection[str] = (),
) -> Budget:
    """The budget of a conversation.

    Args:
        context_window: Most tokens that a request may hold.
        max_output_tokens: Most tokens of an answer.
        output_reserve_cap_tokens: No more than this is reserved for the answer.
        buffer_tokens: Safety margin.
        small_window: In a window below 65 536 tokens, reserve and buffer are at most 30 % and 20 %
            of it; with "formula" only if they would leave less than a quarter of it.
        uncut: Names of the two arguments above that a caller gave: those stay as they are.

    Raises:
        SettingsError: A value is out of range, or nothing is left for the conversation.
    """
    positive = {"context_window": context_window, "max_output_tokens": max_output_tokens}
    others = {
        "output_reserve_cap_tokens": output_reserve_cap_tokens,
        "buffer_tokens": buffer_tokens,
    }
    for name, value in (positive | others).items():
        if value < (least := int(name in positive)):
            raise SettingsError(f"`{name}` is {value}. Pass a whole number of at least {least}.")
    reserve, buffer = min(max_output_tokens, output_reserve_cap_tokens), buffer_tokens
    left = context_window - reserve - buffer
    holds = small_window == "formula" and left >= context_window * FORMULA_LEAST_SHARE
    if context_window < SMALL_WINDOW and not holds:
        if "output_reserve_cap_tokens" not in uncut:
            reserve = min(reserve, context_window * OUTPUT_RESERVE_CAP_TOKENS // SMALL_WINDOW)
        if "buffer_tokens" not in uncut:
            buffer = min(buffer, context_window * BUFFER_TOKENS // SMALL_WINDOW)
    trigger = context_window - reserve - buffer
    if trigger < 1:
        raise SettingsError(
            f"A window of {context_window} tokens less {reserve} for the answer and {buffer} of "
            "buffer leaves nothing for the conversation. Lower them, or pass the model's true "
            "`context_window`."
        )
    return Budget(context_window, reserve, trigger)


# A summary, the newest results and a file want as much in a small window as in a large one, so a
# small target fraction leaves this much; but at most the share, so that trigger and target lie
# apart in a small window too.
_FLOOR_TOKENS = 8_000


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """The figures of one call, in tokens of the whole request.

    Attributes:
        before: The estimate of the list that came in.
        trigger_tokens: Above this, "auto" acts.
        target_tokens: What the result's upper estimate must not exceed.
        request_count: Counts what the messages make a request of.
        limits: The same target for the messages alone, in the counter's own figures.
        is_over: Whether the list that came in is above the trigger, in tokens or in bytes.
    """

    before: Estimate
    trigger_tokens: int
    target_tokens: int
    request_count: RequestCount
    limits: TokenLimits
    is_over: bool

    @property
    def overhead_tokens(self) -> int:
        """What the request contains besides the messages."""
        return self.request_count.overhead_tokens


def token_budget_of(
    request: CompactRequest, settings: Settings, messages: Messages, count: MessageCounter
) -> TokenBudget:
    """The budget of `request` for `messages`.

    Raises:
        SettingsError: A figure is out of range, or the usage belongs to no message of the list.
    """
    anchor, overhead_tokens = _anchor(request, len(messages)), _overhead(request, count)
    requests = request_count(messages, count, overhead_tokens=overhead_tokens, anchor=anchor)
    before = requests.estimate(messages)
    decided = _where_undecided(request, settings)
    window, trigger, target = _window_trigger_target(
        request, decided, overhead_tokens=requests.overhead_upper
    )
    max_bytes = settings.max_request_bytes
    is_over = before.upper > trigger or count.request_bytes(messages) > max_bytes
    if request.mode == "reactive" or (is_over and request.target_tokens is None):
        fixed_tokens = requests.overhead_upper + _system_tokens(messages, count)
        if request.mode == "reactive":
            target = _after_refusal(target, before, fixed_tokens)
        elif target <= fixed_tokens < trigger:
            # Below it there would be nothing but system messages.
            target = fixed_tokens + _kept_tokens(trigger - fixed_tokens, request, decided)
    is_named = request.target_tokens is not None and request.mode in ("auto", "plan")
    limits = TokenLimits(
        requests.limit(target), target, max_bytes, requests.limit(window), is_named
    )
    return TokenBudget(before, trigger, target, requests, limits, is_over)


def _system_tokens(messages: Messages, count: MessageCounter) -> int:
    """The upper estimate of the system messages in a list, which stay at any cut.

    Of one that is sent again and again the last stays.
    """
    system = {text_of(one.blocks): one for one in messages if placeholders.is_system(one)}
    return math.ceil(sum(map(count.message, system.values())) * count.margin)


def _after_refusal(target_tokens: int, before: Estimate, fixed_tokens: int) -> int:
    """The target for a list that the provider has refused.

    Our count of it was too low: half of it, or a quarter of what is not fixed where that is more;
    beside many tools all of the conversation would go in vain.
    """
    movable_tokens = max(0, before.upper - fixed_tokens)
    least_tokens = fixed_tokens + movable_tokens // 4
    target_tokens = min(target_tokens, max(before.tokens // 2, least_tokens))
    if target_tokens > fixed_tokens:
        return target_tokens
    return fixed_tokens + max(1, min(target_tokens, movable_tokens) // 4)


def limit_tokens(budget: TokenBudget, mode: Mode) -> int:
    """The most tokens of a result: the target if the list must shrink, else the trigger."""
    brings_down = mode == "reactive" or (budget.is_over and mode != "record")
    return budget.target_tokens if brings_down else budget.trigger_tokens


def check_budget(
    request: CompactRequest, settings: Settings, messages: Messages, count: MessageCounter
) -> None:
    """Refuse figures that no list could be measured by, or that do not belong to `messages`.

    Raises:
        SettingsError: See `token_budget_of`; or what stays whatever is compacted leaves nothing of
            the target, so that the whole conversation would go and the request be too long still.
    """
    _anchor(request, len(messages))
    alone = replace(request, usage=None, usage_message_index=None)
    budget = token_budget_of(alone, settings, (), count)
    if request.mode in ("record", "reactive"):
        return
    overhead_tokens = budget.request_count.overhead_upper
    fixed_tokens = overhead_tokens + (system_tokens := _system_tokens(messages, count))
    if request.target_tokens is None:
        most_tokens = budget.trigger_tokens
        what = f"A compaction begins at {most_tokens} tokens in this window"
        remedy = "Pass the model's true `context_window`, fewer tools, or shorter system messages."
    else:
        most_tokens = budget.target_tokens
        what = f"`target_tokens` is {request.target_tokens}"
        remedy = f"Name more than {fixed_tokens}, by what is to stay of the conversation."
    if fixed_tokens < most_tokens:
        return
    kinds = {"system prompt and tools": overhead_tokens, "system messages": system_tokens}
    told = " and ".join(kind for kind, tokens in kinds.items() if tokens)
    raise SettingsError(
        f"{what}, but {told}, which stay, take up to {fixed_tokens}: nothing "
        f"would be left of the conversation. {remedy}"
    )


def _anchor(request: CompactRequest, message_count: int) -> UsageAnchor | None:
    if request.usage is None:
        return None
    if request.usage_message_index is None:
        raise SettingsError(
            "usage was given without usage_message_index. Say which message of the list, from 0, "
            "is the answer that the provider reported it for."
        )
    if not 0 <= request.usage_message_index < message_count:
        raise SettingsError(
            f"usage_message_index is {request.usage_message_index}, but the list has "
            f"{message_count} messages. Give the position of the answer that the usage belongs to."
        )
    return anchor_from_usage(request.usage, request.usage_message_index)


def _overhead(request: CompactRequest, count: MessageCounter) -> int:
    if request.overhead_tokens < 0:
        raise SettingsError(
            f"overhead_tokens must not be negative, but is {request.overhead_tokens}."
        )
    counted = count.overhead(system=request.system, tools=request.tools)
    return counted or request.overhead_tokens


def _window_trigger_target(
    request: CompactRequest, settings: Settings, *, overhead_tokens: int
) -> tuple[int, int, int]:
    """Window, trigger and target; a target that is named without a window is all three.

    A model's name gives a window only where no target is named: a caller that names both
    wants the target now.
    """
    target = request.target_tokens
    if target is not None and target < 1:
        raise SettingsError(f"target_tokens must be at least 1, but is {target}.")
    if target is not None and request.context_window is None:
        return target, target, target
    budget = _budget(request, settings)
    window = budget.context_window
    trigger = min(
        budget.trigger_tokens,
        int(window * settings.trigger_fraction),
        int(window * settings.conversation_fraction) + overhead_tokens,
    )
    trigger = max(1, min(trigger, settings.trigger_tokens or trigger))
    # System prompt and tools stay: only what lies above them can be brought down.
    movable = max(0, trigger - overhead_tokens)
    lower = trigger - movable + _kept_tokens(movable, request, settings)
    return window, trigger, min(target or max(1, lower), trigger)


def _budget(request: CompactRequest, settings: Settings) -> Budget:
    profile = profile_for(request.model)
    window, answer = request.context_window, request.max_output_tokens
    return make_budget(
        context_window=profile.context_window if window is None else window,
        max_output_tokens=profile.max_output_tokens if answer is None else answer,
        output_reserve_cap_tokens=settings.output_reserve_cap_tokens,
        buffer_tokens=settings.buffer_tokens,
        small_window=settings.small_window,
        uncut=request.settings.keys(),
    )


def window_of(request: CompactRequest) -> int | None:
    """The window that `request` names, or its model has; None if it names neither."""
    if request.context_window is not None or request.model is None:
        return request.context_window
    return None if request.target_tokens is not None else profile_for(request.model).context_window


def reserve_warnings(request: CompactRequest, settings: Settings) -> tuple[str, ...]:
    """The warning where a small window reserves less for the answer than the caller named."""
    named = request.max_output_tokens
    if named is None or (request.target_tokens is not None and request.context_window is None):
        return ()
    budget = _budget(request, settings)
    reserve = budget.output_reserve_tokens
    if reserve >= min(named, settings.output_reserve_cap_tokens):
        return ()
    return (
        f"Of {named} tokens for the answer {reserve} are kept free, since the window has only "
        f"{budget.context_window}: ask the model for at most so many, or set "
        f"output_reserve_cap_tokens to {named}.",
    )


def usage_warnings(requests: RequestCount) -> tuple[str, ...]:
    """The warning where the reported usage cannot be that of the list."""
    if not requests.doubted_tokens:
        return ()
    return (
        f"`usage` reports {requests.doubted_tokens:,} tokens where the list has about "
        f"{requests.expected_tokens:,}. It was not used. Pass the whole usage object of the "
        "request, with the tokens that were read from and written to the cache.",
    )


def margin_warnings(request: CompactRequest, method: str) -> tuple[str, ...]:
    """Return the warning that a target was filled by cautious counts, because no model is named."""
    if request.target_tokens is None or request.model is not None or "/unknown" not in method:
        return ()
    return (
        f"No model is named, so tokens were counted with a cautious margin ({method}). A part of "
        f"the target of {request.target_tokens:,} tokens can stay unused. Name the model in "
        "`model` to fill it.",
    )


def _kept_tokens(movable_tokens: int, request: CompactRequest, settings: Settings) -> int:
    """Tokens of the movable part that a compaction leaves.

    A fraction that the caller names is used as it is.
    """
    kept_tokens = int(movable_tokens * settings.target_fraction)
    if "target_fraction" in request.settings:
        return kept_tokens
    return max(kept_tokens, min(_FLOOR_TOKENS, int(movable_tokens * 0.3)))


def _where_undecided(request: CompactRequest, settings: Settings) -> Settings:
    """`settings` without what a policy decides only where the caller has not.

    A caller that names a trigger or a target has decided when to act: at that count, or when the
    window is full.
    """
    named = set(request.settings)
    acts_when = {"trigger_tokens", "trigger_fraction"} & named or request.target_tokens is not None
    if acts_when and "conversation_fraction" not in named:
        settings = replace(settings, conversation_fraction=1.0)
    return settings
