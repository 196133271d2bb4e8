"""Replay a conversation under a policy, request by request, and measure its cost and recall.

The cost is that of a provider's prompt cache: the part of a request that equals the start of the
previous request is read from the cache, and the rest is written to it. Recall asks for every answer
of the model which of its names (paths, identifiers, numbers) occurred in the conversation before,
and how many of these names the request contains.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from context_compaction import (
    Archive,
    CompactRequest,
    JsonObject,
    MessageCounter,
    compact,
    counter_for,
    formats,
    make_budget,
    profile_for,
)

from mcp_server_compaction.compare.names import MessageNames
from mcp_server_compaction.reading.plain_text import shared_count

Report: TypeAlias = Callable[[float], Awaitable[None]]

# Anthropic's prices relative to uncached input, and the shortest prefix that it caches.
READ_PRICE = 0.1
WRITE_PRICE = 1.25
MIN_CACHED_TOKENS = 1_024


@dataclass(slots=True)
class Replay:
    """The figures of all requests of one conversation under one policy.

    Attributes:
        calls: Number of requests.
        compactions: Number of requests in which the policy changed the message list.
        calls_over: Number of requests that are too long for the window with their answer.
        read_tokens: Input tokens read from the cache.
        written_tokens: Input tokens written to the cache.
        rebilled_tokens: Input tokens written because an earlier message changed.
        needed: Number of names in the answers that occurred in the conversation before.
        found: Number of these names that the requests contain.
    """

    calls: int = 0
    compactions: int = 0
    calls_over: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    rebilled_tokens: int = 0
    needed: int = 0
    found: int = 0

    @property
    def billed_tokens(self) -> float:
        """Cost of all input, converted to tokens at the price of uncached input."""
        return self.read_tokens * READ_PRICE + self.written_tokens * WRITE_PRICE

    @property
    def hit_share(self) -> float:
        """Share of all input tokens that was read from the cache."""
        return self.read_tokens / max(1, self.read_tokens + self.written_tokens)

    @property
    def recall(self) -> float:
        """Share of the needed names that the requests contain; 1 if no name was needed."""
        return self.found / self.needed if self.needed else 1.0


async def replay(
    payload: Sequence[JsonObject],
    request: CompactRequest,
    archive: Archive,
    report: Report | None = None,
) -> Replay:
    """Compact the conversation before each of its requests to the model, as its host would.

    Args:
        payload: The whole conversation.
        request: Policy, window and other settings. Mode "record" compacts nothing; every other
            mode is treated as "auto".
        archive: An archive without a session of this policy, because the session is named after it.
        report: Receives the share of requests that were replayed.

    Raises:
        CompactionError: A compaction fails.
    """
    format_name = request.format or formats.detect(payload)
    request = replace(
        request,
        mode="record" if request.mode == "record" else "auto",
        format=format_name,
        session_id=f"replay-{request.policy}",
    )
    count_tokens = _TokenCounts(format_name, counter_for(request.model))
    input_limit_tokens = _input_limit_tokens(request)
    names_in, earlier_names = MessageNames(), set[str]()
    session = Replay()
    previous: Sequence[JsonObject] = []
    positions = call_positions(payload, format_name)
    for start, position in pairwise([0, *positions]):
        if report is not None:
            await report(session.calls / len(positions))
        result = await compact([*previous, *payload[start:position]], request, archive=archive)
        earlier_names |= names_in(payload[start:position])
        needed = names_in([payload[position]]) & earlier_names
        sizes = count_tokens(result.messages)
        shared = shared_count(previous, result.messages)
        read_tokens = sum(sizes[:shared])
        if read_tokens < MIN_CACHED_TOKENS:
            read_tokens = 0
        session.calls += 1
        session.compactions += result.changed
        session.calls_over += result.tokens.upper > input_limit_tokens
        session.read_tokens += read_tokens
        session.written_tokens += sum(sizes) - read_tokens
        if shared < len(previous):
            session.rebilled_tokens += sum(sizes) - read_tokens
        session.needed += len(needed)
        session.found += len(needed & names_in(result.messages))
        previous = result.messages
    return session


def call_positions(payload: Sequence[JsonObject], format_name: str) -> list[int]:
    """Return the index of the first message of each answer of the assistant.

    The host sent a request before each of these messages.
    """
    roles = ["user"] * len(payload)
    for message in formats.parse(payload, format=format_name):
        if message.index is not None:
            roles[message.index] = message.role
    return [
        index
        for index in range(1, len(roles))
        if roles[index] == "assistant" and roles[index - 1] != "assistant"
    ]


def _input_limit_tokens(request: CompactRequest) -> int:
    """Return the number of tokens that the window leaves for input."""
    profile = profile_for(request.model)
    budget = make_budget(
        context_window=request.context_window or profile.context_window,
        max_output_tokens=request.max_output_tokens or profile.max_output_tokens,
        buffer_tokens=0,
    )
    return budget.trigger_tokens


class _TokenCounts:
    """Token counts of messages, cached by object because every request repeats most messages."""

    def __init__(self, format_name: str, counter: MessageCounter) -> None:
        self._format = format_name
        self._counter = counter
        # The cache keeps the message, so that no other object can get its id.
        self._tokens: dict[int, tuple[JsonObject, int]] = {}

    def __call__(self, messages: Sequence[JsonObject]) -> list[int]:
        """Return the token count of each message."""
        if any(id(message) not in self._tokens for message in messages):
            for parsed in formats.parse(messages, format=self._format):
                if parsed.index is not None and id(messages[parsed.index]) not in self._tokens:
                    raw = messages[parsed.index]
                    self._tokens[id(raw)] = (raw, self._counter.message(parsed))
        return [self._tokens.get(id(message), (message, 0))[1] for message in messages]
