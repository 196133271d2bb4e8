"""From counts of messages to the tokens of a whole request, by the provider's own count if known.

Where the host passes the usage of an earlier answer, the provider has counted all up to it: system
prompt, tools, and what it adds itself. That figure is used as it is. Only what follows it, what an
edit adds and what it removes is estimated, and only that has a margin.
"""

import math
from dataclasses import dataclass

from context_compaction.messages.model import Message, Messages
from context_compaction.tokens.counter import MESSAGE_TOKENS, Estimate, MessageCounter
from context_compaction.tokens.usage import UsageAnchor

# A report of less than this share of our estimate is no count of the list. Hosts leave out cached
# tokens, or pass the usage of another request; no tokenizer differs from the estimate so much.
LEAST_PLAUSIBLE_SHARE = 0.6
# Binary fractions are a little off: 110.00000000000001 tokens are 110.
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Counts the requests that one call may end with.

    Attributes:
        count: Counts messages.
        overhead_tokens: Tokens of the request beside the messages.
        anchor_tokens: The provider's count, 0 without a report.
        anchored_tokens: Our count of the messages that are in it.
        scale: The provider's tokens per token of ours there, where it counted fewer than we did;
            else 1, and the excess of its count is overhead.
        doubted_tokens: The provider's count where it is too low to be one of this list ...
        expected_tokens: ... and ours of the same messages. It is not used then.
        messages: The ids of those messages ...
        blocks: ... and of their blocks.
    """

    count: MessageCounter
    overhead_tokens: int
    anchor_tokens: int = 0
    anchored_tokens: int = 0
    scale: float = 1.0
    doubted_tokens: int = 0
    expected_tokens: int = 0
    messages: frozenset[int] = frozenset()
    blocks: frozenset[int] = frozenset()

    @property
    def overhead_upper(self) -> int:
        """The upper estimate of the overhead; what the provider counted needs no margin."""
        return math.ceil(self.overhead_tokens * (1 if self.anchor_tokens else self.count.margin))

    def estimate(self, messages: Messages) -> Estimate:
        """The tokens of the request that `messages` make."""
        method = self.count.method
        if not self.anchor_tokens:
            tokens = self.count.messages(messages) + self.overhead_tokens
            return Estimate(tokens, math.ceil(tokens * self.count.margin), method)
        kept, added = self._parts(messages)
        left = self.scale * (self.anchored_tokens - kept)
        tokens = math.ceil(self.anchor_tokens - left + added)
        upper = math.ceil(round(self._upper(kept, added), _DIGITS))
        return Estimate(tokens, max(tokens, upper), f"usage+{method}")

    def limit(self, most_tokens: int) -> int:
        """The most that messages of the earlier list may count, for `most_tokens` in all."""
        margin, scale = self.count.margin, self.scale
        if not self.anchor_tokens:
            return math.floor(most_tokens / margin) - self.overhead_tokens
        by_kept = (most_tokens - self.overhead_tokens) / (scale * margin)
        by_left = self.anchored_tokens - (self.anchor_tokens - most_tokens) * margin / scale
        return math.floor(max(by_kept, by_left))

    def room(self, messages: Messages, most_tokens: int) -> int:
        """How much may be added to `messages`, by the counter, for `most_tokens` at the highest.

        Below 0 it is how much must be removed.
        """
        margin = self.count.margin
        if not self.anchor_tokens:
            tokens = self.count.messages(messages) + self.overhead_tokens
            return math.floor(most_tokens / margin) - tokens
        free = most_tokens - self._upper(*self._parts(messages))
        return math.floor(round(free / margin, _DIGITS))

    def _upper(self, kept: int, added: int) -> float:
        """The lower of two bounds: what stays may count more than we think, or what left less.

        With nothing taken out, that is what the provider counted and the margin of what was added.
        """
        margin, left = self.count.margin, self.anchored_tokens - kept
        by_kept = self.overhead_tokens + self.scale * kept * margin
        by_left = self.anchor_tokens - self.scale * left / margin
        return min(by_kept, by_left) + added * margin

    def _parts(self, messages: Messages) -> tuple[int, int]:
        """Our counts of what the provider has counted of `messages`, and of the rest."""
        total = self.count.messages(messages)
        added = sum(self._added(message) for message in messages)
        return total - added, added

    def _added(self, message: Message) -> int:
        if id(message) in self.messages:
            return 0
        if message.index is None:
            return self.count.message(message)
        new = [block for block in message.blocks if id(block) not in self.blocks]
        is_whole = len(new) == len(message.blocks)
        return sum(map(self.count.block, new)) + (MESSAGE_TOKENS if is_whole else 0)


def request_count(
    messages: Messages, count: MessageCounter, *, overhead_tokens: int, anchor: UsageAnchor | None
) -> RequestCount:
    """The count of the requests that `messages` can become.

    Args:
        messages: The list as it came in.
        count: The counter.
        overhead_tokens: Our count of the system prompt and the tools.
        anchor: The provider's count of the list up to a message of it.
    """
    if anchor is None:
        return RequestCount(count, overhead_tokens)
    counted = messages[: anchor.message_index + 1]
    ours = count.messages(counted)
    expected_tokens = ours + overhead_tokens
    if anchor.total_tokens < LEAST_PLAUSIBLE_SHARE * expected_tokens:
        doubted = anchor.total_tokens
        return RequestCount(
            count, overhead_tokens, doubted_tokens=doubted, expected_tokens=expected_tokens
        )
    # A provider that counted less than we did counts a part of each: of the overhead too.
    scale = min(1.0, anchor.total_tokens / expected_tokens)
    return RequestCount(
        count,
        max(0, anchor.total_tokens - ours) if scale == 1.0 else math.ceil(overhead_tokens * scale),
        anchor.total_tokens,
        ours,
        scale,
        messages=frozenset(map(id, counted)),
        blocks=frozenset(id(block) for message in counted for block in message.blocks),
    )
