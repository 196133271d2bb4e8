"""What a call asks for, in numbers: how much there is, when to act, and what it must come to."""

from dataclasses import dataclass, replace

from context_compaction.budget import Budget, make_budget
from context_compaction.compaction import CompactRequest, Mode
from context_compaction.errors import SettingsError
from context_compaction.messages import Messages
from context_compaction.profiles import profile_for
from context_compaction.request_count import RequestCount, request_count
from context_compaction.rungs import Limits
from context_compaction.settings import Settings
from context_compaction.tokens import (
    Estimate,
    MessageCounter,
    UsageAnchor,
    anchor_from_usage,
)

# The floor of a target is at most this part of what is movable, so that trigger and target lie
# apart in a small window too.
_FLOOR_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Goal:
    """The figures of one call, in tokens of the whole request.

    Attributes:
        before: The estimate of what came in.
        trigger_tokens: Above this, "auto" acts.
        target_tokens: What the result's upper estimate must not exceed.
        request_count: Counts what the messages make a request of.
        limits: The same target for the messages alone, in the counter's own figures.
        is_over: Whether what came in is above the trigger, in tokens or in bytes.
    """

    before: Estimate
    trigger_tokens: int
    target_tokens: int
    request_count: RequestCount
    limits: Limits
    is_over: bool

    @property
    def overhead_tokens(self) -> int:
        """What stands in the request besides the messages."""
        return self.request_count.overhead_tokens


def goal_of(
    request: CompactRequest, settings: Settings, messages: Messages, count: MessageCounter
) -> Goal:
    """The goal of `request` for `messages`.

    Raises:
        SettingsError: A figure is out of range, or the usage belongs to no message of the list.
    """
    anchor, overhead_tokens = _anchor(request, messages), _overhead(request, count)
    requests = request_count(messages, count, overhead_tokens=overhead_tokens, anchor=anchor)
    before = requests.estimate(messages)
    window, trigger, target = _window_trigger_target(
        request,
        _where_undecided(request, settings),
        overhead_tokens=requests.overhead_upper,
    )
    if request.mode == "reactive":
        # The provider has refused this list, so our count of it was too low: aim well below it.
        target = min(target, before.tokens // 2)
    total_bytes = count.request_bytes(messages)
    return Goal(
        before,
        trigger,
        target,
        requests,
        Limits(
            requests.limit(target),
            target,
            settings.max_request_bytes,
            requests.limit(window),
            is_named=request.target_tokens is not None and request.mode in ("auto", "plan"),
        ),
        before.upper > trigger or total_bytes > settings.max_request_bytes,
    )


def limit_tokens(goal: Goal, mode: Mode) -> int:
    """What a result must not exceed: the target where something is to be brought down.

    "record" brings nothing down, and what is below the trigger need not be.
    """
    brings_down = mode == "reactive" or (goal.is_over and mode != "record")
    return goal.target_tokens if brings_down else goal.trigger_tokens


def check_goal(
    request: CompactRequest, settings: Settings, messages: Messages, count: MessageCounter
) -> None:
    """Refuse figures that no list could be measured by, or that do not belong to `messages`.

    Raises:
        SettingsError: See `goal_of`.
    """
    _anchor(request, messages)
    goal_of(replace(request, usage=None, usage_message_index=None), settings, (), count)


def _anchor(request: CompactRequest, messages: Messages) -> UsageAnchor | None:
    if request.usage is None:
        return None
    if request.usage_message_index is None:
        raise SettingsError(
            "usage was given without usage_message_index. Say which message of the list, from 0, "
            "is the answer that the provider reported it for."
        )
    if not 0 <= request.usage_message_index < len(messages):
        raise SettingsError(
            f"usage_message_index is {request.usage_message_index}, but the list has "
            f"{len(messages)} messages. Give the position of the answer that the usage belongs to."
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

    A model's name gives a window only where no target is named: who names both wants the
    target now.
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
    lower = trigger - movable + _kept_tokens(movable, settings)
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
        max_request_bytes=settings.max_request_bytes,
    )


def reserve_warnings(request: CompactRequest, settings: Settings) -> tuple[str, ...]:
    """What to say where a small window reserves less for the answer than the caller named."""
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


def _kept_tokens(movable_tokens: int, settings: Settings) -> int:
    """What of the movable part a compaction leaves."""
    floor_tokens = min(settings.target_floor_tokens, int(movable_tokens * _FLOOR_SHARE))
    return max(int(movable_tokens * settings.target_fraction), floor_tokens)


def _where_undecided(request: CompactRequest, settings: Settings) -> Settings:
    """`settings` without what a policy decides only where the caller has not.

    Who names a trigger or a target has decided when to act: at what was named, or when the window
    is full. Who names a part for the target means that part.
    """
    named = set(request.settings)
    acts_when = {"trigger_tokens", "trigger_fraction"} & named or request.target_tokens is not None
    if acts_when and "conversation_fraction" not in named:
        settings = replace(settings, conversation_fraction=1.0)
    if "target_fraction" in named and "target_floor_tokens" not in named:
        settings = replace(settings, target_floor_tokens=0)
    return settings
