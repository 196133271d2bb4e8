"""How many tokens a conversation may take: the waterfall from the window to trigger and target.

window - min(max_output, 20 000) - 13 000 = trigger, and 0.6 of it is the target. Trigger and target
lie apart, so that a compaction is followed by many turns without one and the prompt cache lives.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from context_compaction.errors import SettingsError

# Below this window, reserve and buffer may take at most the share that they have of it here (30 %
# and 20 %), so that about half of the window is left for the conversation, however small it is.
SMALL_WINDOW = 65_536
OUTPUT_RESERVE_CAP_TOKENS = 20_000
BUFFER_TOKENS = 13_000

# What a small window does to reserve and buffer: they have at most their shares of it; or they are
# what the formula says, as long as that leaves a quarter of the window.
SmallWindowRule: TypeAlias = Literal["shares", "formula"]
FORMULA_LEAST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one conversation, in tokens, and the byte limit of a request beside them.

    Attributes:
        context_window: Most tokens that a request may hold, input and output.
        output_reserve_tokens: Kept free for the answer.
        buffer_tokens: Kept free for what nobody can foresee.
        overhead_tokens: Kept free for the system prompt and the tools. 0 where the counts that are
            compared with this budget hold them already, as `MessageCounter.estimate` does.
        trigger_tokens: Above this a compaction starts.
        target_tokens: To this it brings the context down.
        max_request_bytes: The provider's limit on the JSON of a request.
    """

    context_window: int
    output_reserve_tokens: int
    buffer_tokens: int
    overhead_tokens: int
    trigger_tokens: int
    target_tokens: int
    max_request_bytes: int

    def waterfall(self) -> tuple[tuple[str, int], ...]:
        """The steps from the window to the target, for people: label and tokens, minus if taken."""
        return (
            ("context window", self.context_window),
            ("output reserve", -self.output_reserve_tokens),
            ("safety buffer", -self.buffer_tokens),
            ("system prompt and tools", -self.overhead_tokens),
            ("trigger", self.trigger_tokens),
            ("target", self.target_tokens),
        )


def make_budget(
    *,
    context_window: int,
    max_output_tokens: int,
    overhead_tokens: int = 0,
    output_reserve_cap_tokens: int = OUTPUT_RESERVE_CAP_TOKENS,
    buffer_tokens: int = BUFFER_TOKENS,
    small_window: SmallWindowRule = "shares",
    uncut: Collection[str] = (),
    target_fraction: float = 0.6,
    target_tokens: int | None = None,
    max_request_bytes: int = 32_000_000,
) -> Budget:
    """The budget of a conversation.

    Args:
        context_window: Most tokens that a request may hold.
        max_output_tokens: Most tokens of an answer.
        overhead_tokens: Tokens beside the messages, if the counts that will be compared with the
            budget leave them out. Give them here or to `MessageCounter.estimate`, not to both.
        output_reserve_cap_tokens: No more than this is reserved for the answer.
        buffer_tokens: Safety margin.
        small_window: In a window below 65 536 tokens, reserve and buffer are at most 30 % and 20 %
            of it; with "formula" only where they would leave less than a quarter of it.
        uncut: Names of the two arguments above that a caller gave: those stay what they are.
        target_fraction: The target as a part of the trigger.
        target_tokens: The target itself; wins over the fraction.
        max_request_bytes: 32 MB is Anthropic's limit.

    Raises:
        SettingsError: A value is out of range, nothing is left for the conversation, or the target
            is not below the trigger.
    """
    _require_positive("context_window", context_window)
    _require_positive("max_output_tokens", max_output_tokens)
    _require_positive("max_request_bytes", max_request_bytes)
    _require_not_negative("overhead_tokens", overhead_tokens)
    _require_not_negative("output_reserve_cap_tokens", output_reserve_cap_tokens)
    _require_not_negative("buffer_tokens", buffer_tokens)
    reserve, buffer = min(max_output_tokens, output_reserve_cap_tokens), buffer_tokens
    left = context_window - reserve - buffer
    holds = small_window == "formula" and left >= context_window * FORMULA_LEAST_SHARE
    if context_window < SMALL_WINDOW and not holds:
        if "output_reserve_cap_tokens" not in uncut:
            reserve = min(reserve, _share(context_window, OUTPUT_RESERVE_CAP_TOKENS))
        if "buffer_tokens" not in uncut:
            buffer = min(buffer, _share(context_window, BUFFER_TOKENS))
    trigger = context_window - reserve - buffer - overhead_tokens
    if trigger < 1:
        raise SettingsError(
            f"A window of {context_window} tokens less {reserve} for the answer, {buffer} of "
            f"buffer and {overhead_tokens} of overhead leaves nothing for the conversation. "
            "Lower them, or pass the model's true `context_window`."
        )
    return Budget(
        context_window=context_window,
        output_reserve_tokens=reserve,
        buffer_tokens=buffer,
        overhead_tokens=overhead_tokens,
        trigger_tokens=trigger,
        target_tokens=_target(trigger, target_fraction, target_tokens),
        max_request_bytes=max_request_bytes,
    )


def _share(context_window: int, tokens_at_small_window: int) -> int:
    """The most that may be taken from a window below `SMALL_WINDOW`."""
    return context_window * tokens_at_small_window // SMALL_WINDOW


def _target(trigger: int, fraction: float, tokens: int | None) -> int:
    if tokens is not None:
        if not 0 < tokens < trigger:
            raise SettingsError(
                f"`target_tokens` is {tokens}, but the trigger is at {trigger}. Pass a number "
                "above 0 and below the trigger, or leave it out."
            )
        return tokens
    if not 0 < fraction < 1:
        raise SettingsError(
            f"`target_fraction` is {fraction}. Pass a number between 0 and 1, such as 0.6."
        )
    return max(1, int(trigger * fraction))


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise SettingsError(f"`{name}` is {value}. Pass a whole number above 0.")


def _require_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise SettingsError(f"`{name}` is {value}. Pass 0 or a whole number above it.")
