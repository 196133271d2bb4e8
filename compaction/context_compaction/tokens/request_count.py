"""The token count of a whole request, from counts of its messages and the provider's usage report.

If the host passes the usage of an earlier response, the provider has counted everything up to that
response: the system prompt, the tools, and what it adds itself. That figure is used as it is. Only
messages after it, and the effect of edits, are estimated, and only these estimates have a margin.
"""

import math
from dataclasses import dataclass

from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject, Message, Messages, is_object
from context_compaction.tokens.counter import MESSAGE_TOKENS, Estimate, MessageCounter

# A report below this share of the estimate is implausible: no tokenizer differs that much from
# the estimate, but hosts omit cached tokens or pass the usage of another request.
MIN_PLAUSIBLE_SHARE = 0.6
# Decimal places that are kept, because binary fractions are slightly off (110.00000000000001).
_DIGITS = 6

# The fields that each API reports and that add up to the total. The first field identifies the API.
# Anthropic, Bedrock and pi report cached input separately; OpenAI and Gemini include it in the
# input.
_USAGE_FIELDS = (
    # Anthropic Messages and OpenAI Responses.
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"),
    # OpenAI Chat Completions.
    ("prompt_tokens", "completion_tokens"),
    # Gemini, then its Python SDK.
    ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    (
        "prompt_token_count",
        "tool_use_prompt_token_count",
        "candidates_token_count",
        "thoughts_token_count",
    ),
    # Bedrock Converse.
    ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "outputTokens"),
    # pi.
    ("input", "cacheRead", "cacheWrite", "output"),
)
_REMEDY = "Pass the `usage` object of the provider's last response unchanged, or omit it."


@dataclass(frozen=True, slots=True)
class UsageAnchor:
    """The provider's token count of a request and its response.

    Attributes:
        total_tokens: Tokens of everything up to the message at `message_index` inclusive, with the
            system prompt and the tools.
        message_index: Index of the response in the message list, from 0.
    """

    total_tokens: int
    message_index: int


def anchor_from_usage(usage: JsonObject, message_index: int) -> UsageAnchor:
    """Return the anchor that a usage report gives.

    Args:
        usage: The object that the API returned (Anthropic, OpenAI Chat and Responses, Gemini,
            Bedrock Converse, pi), or an object that holds it as "usage" or "usageMetadata".
        message_index: Index of the response that the usage was reported with, from 0.

    Raises:
        SettingsError: The report has an unknown shape or impossible numbers.
    """
    wrapped = (usage.get(name) for name in ("usage", "usageMetadata", "usage_metadata"))
    report = next(filter(is_object, wrapped), usage)
    for names in _USAGE_FIELDS:
        if report.get(names[0]) is not None:
            total_tokens = sum(_reported_tokens(report, name) for name in names)
            if total_tokens == 0:
                raise SettingsError(f"`usage` reports a request of 0 tokens. {_REMEDY}")
            return UsageAnchor(total_tokens, message_index)
    known = ", ".join(names[0] for names in _USAGE_FIELDS)
    raise SettingsError(f"`usage` has none of the fields {known}. {_REMEDY}")


def _reported_tokens(report: JsonObject, name: str) -> int:
    value: object = report.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SettingsError(f"`usage.{name}` is {value!r}, not a number of tokens. {_REMEDY}")
    return value


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Counts the requests that one call can end with. Get one from `request_count`.

    Attributes:
        count: Counter of the messages.
        overhead_tokens: Tokens of the request besides the messages.
        anchor_tokens: The provider's count; 0 without a report.
        anchored_tokens: Our count of the messages that the provider counted.
        scale: The provider's count of those messages divided by our count, at most 1. If the
            provider counted more than we did, the difference is overhead.
        anchored_messages: Object IDs of the messages that the provider counted.
        anchored_blocks: Object IDs of the blocks of those messages.
        warnings: Warning about a usage report that is too low to be true and is not used.
    """

    count: MessageCounter
    overhead_tokens: int
    anchor_tokens: int = 0
    anchored_tokens: int = 0
    scale: float = 1.0
    anchored_messages: frozenset[int] = frozenset()
    anchored_blocks: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()

    @property
    def overhead_upper(self) -> int:
        """Upper estimate of the overhead. The provider's own count needs no margin."""
        return math.ceil(self.overhead_tokens * (1 if self.anchor_tokens else self.count.margin))

    def estimate(self, messages: Messages) -> Estimate:
        """Return the estimate of a request with `messages`."""
        method = self.count.method
        if not self.anchor_tokens:
            tokens = self.count.messages(messages) + self.overhead_tokens
            upper = math.ceil(round(tokens * self.count.margin, _DIGITS))
            return Estimate(tokens, upper, method)
        remaining, added = self._remaining_and_added(messages)
        removed = self.scale * (self.anchored_tokens - remaining)
        tokens = math.ceil(self.anchor_tokens - removed + added)
        upper = math.ceil(round(self._upper(remaining, added), _DIGITS))
        return Estimate(tokens, max(tokens, upper), f"usage+{method}")

    def message_limit(self, max_tokens: int) -> int:
        """Return how much messages of the caller's list may count in a request of `max_tokens`."""
        margin, scale = self.count.margin, self.scale
        if not self.anchor_tokens:
            return math.floor(round(max_tokens / margin, _DIGITS)) - self.overhead_tokens
        by_remaining = (max_tokens - self.overhead_tokens) / (scale * margin)
        by_removed = self.anchored_tokens - (self.anchor_tokens - max_tokens) * margin / scale
        return math.floor(max(by_remaining, by_removed))

    def room(self, messages: Messages, max_tokens: int) -> int:
        """Return how many tokens, by the counter, can be added to `messages`.

        The upper estimate of the request then is at most `max_tokens`. A negative result is
        the number of tokens to remove.
        """
        margin = self.count.margin
        if not self.anchor_tokens:
            tokens = self.count.messages(messages) + self.overhead_tokens
            return math.floor(round(max_tokens / margin, _DIGITS)) - tokens
        free = max_tokens - self._upper(*self._remaining_and_added(messages))
        return math.floor(round(free / margin, _DIGITS))

    def _upper(self, remaining: int, added: int) -> float:
        """Return the lower of two upper bounds, plus the added tokens with their margin.

        The first bound assumes that the remaining messages count more than estimated. The second
        assumes that the removed messages count less; if nothing was removed, it is the
        provider's count.
        """
        margin, removed = self.count.margin, self.anchored_tokens - remaining
        by_remaining = self.overhead_tokens + self.scale * remaining * margin
        by_removed = self.anchor_tokens - self.scale * removed / margin
        return min(by_remaining, by_removed) + added * margin

    def _remaining_and_added(self, messages: Messages) -> tuple[int, int]:
        """Return our count of the messages that the provider counted, and of all other content."""
        total = self.count.messages(messages)
        added = sum(map(self._added_tokens, messages))
        return total - added, added

    def _added_tokens(self, message: Message) -> int:
        if id(message) in self.anchored_messages:
            return 0
        if message.index is None:
            return self.count.message(message)
        new = [block for block in message.blocks if id(block) not in self.anchored_blocks]
        is_new_message = len(new) == len(message.blocks)
        return sum(map(self.count.block, new)) + (MESSAGE_TOKENS if is_new_message else 0)


def request_count(
    messages: Messages, count: MessageCounter, *, overhead_tokens: int, anchor: UsageAnchor | None
) -> RequestCount:
    """Return the count of the requests that `messages` can become.

    Args:
        messages: The caller's message list.
        count: The counter.
        overhead_tokens: Our count of the system prompt and the tools.
        anchor: The provider's count of the list up to one of its messages.
    """
    if anchor is None:
        return RequestCount(count, overhead_tokens)
    anchored = messages[: anchor.message_index + 1]
    anchored_tokens = count.messages(anchored)
    expected_tokens = anchored_tokens + overhead_tokens
    if anchor.total_tokens < MIN_PLAUSIBLE_SHARE * expected_tokens:
        warning = (
            f"`usage` reports {anchor.total_tokens:,} tokens, but the list has about "
            f"{expected_tokens:,}. The report was not used. Pass the complete usage object of the "
            "request, including the tokens that were read from and written to the cache."
        )
        return RequestCount(count, overhead_tokens, warnings=(warning,))
    # If the provider counted less than we did, it did so for the overhead as well.
    scale = min(1.0, anchor.total_tokens / expected_tokens)
    if scale == 1.0:
        overhead_tokens = max(0, anchor.total_tokens - anchored_tokens)
    else:
        overhead_tokens = math.ceil(overhead_tokens * scale)
    return RequestCount(
        count,
        overhead_tokens,
        anchor.total_tokens,
        anchored_tokens,
        scale,
        frozenset(map(id, anchored)),
        frozenset(id(block) for message in anchored for block in message.blocks),
    )
