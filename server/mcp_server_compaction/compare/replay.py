"""Replays a conversation call by call through a policy, as its host would have sent it.

The bill is that of a provider's prompt cache: what begins like the request before is read from the
cache, the rest is written to it. Recall asks at each answer of the model which of the names in it
(paths, identifiers, numbers) had stood in the conversation before, and how many of those were still
in the request that it would have answered, bare or with their context (recall_metric.py).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    JsonObject,
    MessageCounter,
    compact,
    counter_for,
    formats,
    make_budget,
    profile_for,
)

from mcp_server_compaction.compare.recall_metric import Names

Report: TypeAlias = Callable[[float], Awaitable[None]]

# Anthropic's prices relative to plain input, and the shortest prefix that it caches.
READ_PRICE = 0.1
WRITE_PRICE = 1.25
MIN_CACHED_TOKENS = 1_024


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One request of the replay.

    Attributes:
        read_tokens: Read from the cache.
        written_tokens: Not in the cache before.
        changed: Whether the policy changed the list.
        breaks_prefix: Whether it does not begin with the whole request before.
        repeated_edits: Edits of messages that the policy itself had put there.
        is_over: Whether the request does not fit the window beside the answer.
        needed: Names in the answer that had stood in the conversation before ...
        found: ... how many of them stand in this request ...
        found_in_context: ... and how many beside words that stood near them before.
    """

    read_tokens: int
    written_tokens: int
    changed: bool
    breaks_prefix: bool
    repeated_edits: int
    is_over: bool
    needed: int
    found: int
    found_in_context: int


@dataclass(frozen=True, slots=True)
class Replay:
    """All requests of one conversation under one policy."""

    policy: str
    calls: tuple[ReplayedCall, ...]

    @property
    def billed_tokens(self) -> float:
        """What all input costs, in tokens at the plain price."""
        read = sum(call.read_tokens for call in self.calls)
        written = sum(call.written_tokens for call in self.calls)
        return read * READ_PRICE + written * WRITE_PRICE

    @property
    def rebilled_tokens(self) -> int:
        """Tokens written to the cache by requests that broke the prefix."""
        return sum(call.written_tokens for call in self.calls if call.breaks_prefix)

    @property
    def hit_share(self) -> float:
        """Part of all input that was read from the cache."""
        read = sum(call.read_tokens for call in self.calls)
        total = read + sum(call.written_tokens for call in self.calls)
        return read / total if total else 0.0

    @property
    def compactions(self) -> int:
        """How often the policy changed the list."""
        return sum(call.changed for call in self.calls)

    @property
    def calls_over(self) -> int:
        """Requests that the provider would have refused for their length."""
        return sum(call.is_over for call in self.calls)

    @property
    def recall(self) -> float:
        """Part of the names needed again that stood in the request; 1 where none was needed."""
        return self._part_of_needed([call.found for call in self.calls])

    @property
    def recall_with_context(self) -> float:
        """The same of names that stood there beside words that stood near them before."""
        return self._part_of_needed([call.found_in_context for call in self.calls])

    def _part_of_needed(self, found: Sequence[int]) -> float:
        needed = sum(call.needed for call in self.calls)
        return sum(found) / needed if needed else 1.0


async def replay(
    payload: Sequence[JsonObject],
    request: CompactRequest,
    archive: Archive,
    report: Report | None = None,
) -> Replay:
    """Send `payload` call by call, compacting before each call.

    Args:
        payload: The whole conversation.
        request: The policy, the window and all else. In the mode "record" nothing is compacted;
            any other means "auto".
        archive: One of its own: the session's name is that of the policy.
        report: Told which part of the calls is done.

    Raises:
        CompactionError: As `compact` does.
    """
    format_name = request.format or formats.detect(payload)
    request = replace(
        request,
        mode="record" if request.mode == "record" else "auto",
        format=format_name,
        session_id=f"replay-{request.policy}",
    )
    book = _Book(format_name, counter_for(request.model), _room_tokens(request))
    calls: list[ReplayedCall] = []
    context: list[JsonObject] = []
    sent: list[JsonObject] = []
    names = Names()
    at = 0
    positions = call_positions(payload, format_name)
    for done, stop in enumerate(positions):
        if report is not None:
            await report(done / len(positions))
        new = list(payload[at:stop])
        result = await compact([*context, *new], request, archive=archive)
        names.learn(new)
        needed = names.needed(payload[stop])
        found = names.found(needed, result.messages)
        calls.append(book.call([*context, *new], sent, result, (len(needed), *found)))
        context = sent = result.messages
        at = stop
        book.own(result, payload)
    return Replay(request.policy, tuple(calls))


def call_positions(payload: Sequence[JsonObject], format_name: str) -> list[int]:
    """Where the assistant begins to speak: before each of them a request was sent."""
    roles = ["user"] * len(payload)
    for message in formats.parse(payload, format=format_name):
        if message.index is not None:
            roles[message.index] = message.role
    return [
        at
        for at, role in enumerate(roles)
        if role == "assistant" and at and roles[at - 1] != "assistant"
    ]


def _room_tokens(request: CompactRequest) -> int:
    """What a request may have beside the answer."""
    profile = profile_for(request.model)
    budget = make_budget(
        context_window=request.context_window or profile.context_window,
        max_output_tokens=request.max_output_tokens or profile.max_output_tokens,
        buffer_tokens=0,
    )
    return budget.trigger_tokens


@dataclass(slots=True)
class _Book:
    """Figures of messages, by object: the same ones come back call after call."""

    format: str
    count: MessageCounter
    room_tokens: int
    _tokens: dict[int, tuple[JsonObject, int]] = field(
        default_factory=dict[int, tuple[JsonObject, int]]
    )
    _ours: dict[int, JsonObject] = field(default_factory=dict[int, JsonObject])

    def own(self, result: CompactResult, payload: Sequence[JsonObject]) -> None:
        """Remember which messages of `result` are not the host's own."""
        given = {id(message) for message in payload}
        self._ours |= {id(m): m for m in result.messages if id(m) not in given}

    def call(
        self,
        offered: Sequence[JsonObject],
        before: Sequence[JsonObject],
        result: CompactResult,
        known: tuple[int, int, int],
    ) -> ReplayedCall:
        """The figures of one request; `before` is the request that was sent last.

        `known` says how many names were needed, found, and found with their context.
        """
        sizes = self._sizes(result.messages)
        same = _same_prefix(before, result.messages)
        read = sum(sizes[:same])
        read = read if read >= MIN_CACHED_TOKENS else 0
        return ReplayedCall(
            read,
            sum(sizes) - read,
            result.changed,
            same < len(before),
            sum(
                1
                for edit in result.edits
                if edit.index is not None and id(offered[edit.index]) in self._ours
                if edit.action not in ("summarized", "dropped")
            ),
            result.tokens.upper > self.room_tokens,
            *known,
        )

    def _sizes(self, messages: Sequence[JsonObject]) -> list[int]:
        if any(id(message) not in self._tokens for message in messages):
            for parsed in formats.parse(messages, format=self.format):
                if parsed.index is not None and id(messages[parsed.index]) not in self._tokens:
                    raw = messages[parsed.index]
                    self._tokens[id(raw)] = (raw, self.count.message(parsed))
        return [self._tokens.get(id(message), (message, 0))[1] for message in messages]


def _same_prefix(one: Sequence[JsonObject], other: Sequence[JsonObject]) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs and mine != theirs:
            break
        length += 1
    return length
