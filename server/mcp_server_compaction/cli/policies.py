"""The commands `policies` and `compare`: size, speed, recall and cost on one conversation.

Each policy runs twice in a temporary archive: one compaction of the whole conversation, and a
replay of the session request by request.

The cost of the replay is that of a provider's prompt cache: the part of a request that equals the
start of the previous request is read from the cache, and the rest is written to it. Recall asks for
every answer of the model which of its names (paths, identifiers, numbers) occurred in the
conversation before, and how many of these names the request contains.
"""

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeAlias

import anyio
import click
from context_compaction import (
    POLICIES,
    Archive,
    CompactRequest,
    CompactResult,
    JsonObject,
    ReportProgress,
    Settings,
    SettingsError,
    compact,
    counter_for,
    formats,
    kind_of,
    names_in,
    open_archive,
    policy_named,
    window_budget,
)

from mcp_server_compaction.cli.compacting import read_input
from mcp_server_compaction.cli.terminal import (
    answer,
    async_report,
    config_of,
    grouped,
    progress,
    say,
)
from mcp_server_compaction.config import Positive, own_options
from mcp_server_compaction.reading.plain_text import block_text, shared_count

Report: TypeAlias = Callable[[float], Awaitable[None]]

# Name of the first row: the session if every request contained all messages.
NO_COMPACTION = "no compaction"
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


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """The figures of one policy.

    Attributes:
        policy: Name of the policy.
        status: Status of one compaction of the whole conversation.
        fits: Whether the result of this compaction fits the window.
        tokens_before: Tokens of the whole conversation.
        tokens_after: Tokens of the compacted conversation.
        saved_by_layer: Tokens saved by each layer; negative if the layer added text.
        compact_seconds: Wall time of the compaction.
        replay: Counts of the replayed session.
        recall: Share of the names needed by the model's answers that the requests contained.
        cache_hit_share: Share of all input tokens that was read from the prompt cache.
        cost_usd: Cost of all input in US dollars.
    """

    policy: str
    status: str
    fits: bool
    tokens_before: int
    tokens_after: int
    saved_by_layer: dict[str, int]
    compact_seconds: float
    replay: Replay
    recall: float
    cache_hit_share: float
    cost_usd: float


async def compare_policies(
    payload: Sequence[JsonObject],
    request: CompactRequest,
    policies: Sequence[str],
    price_usd: float,
    report: ReportProgress,
) -> list[PolicyRow]:
    """Return a row without compaction, then a row for each policy.

    Args:
        payload: The conversation.
        request: Window, format and model. The policies replace its policy.
        policies: Names of the policies.
        price_usd: Price of one million input tokens, in US dollars.
        report: Receives the share of the work that is done, and the name of the policy.

    Raises:
        SettingsError: A policy does not exist.
    """
    request = replace(request, session_id="whole")
    requests = {NO_COMPACTION: replace(request, mode="record")}
    requests |= {name: replace(request, policy=name) for name in policies}
    rows: list[PolicyRow] = []
    for name, policy_request in requests.items():

        async def report_share(share: float, name: str = name) -> None:
            await report((len(rows) + share) / len(requests), name)

        await report_share(0.0)
        rows.append(await _row(payload, policy_request, name, price_usd, report_share))
    return rows


async def _row(
    payload: Sequence[JsonObject],
    request: CompactRequest,
    name: str,
    price_usd: float,
    report: Report,
) -> PolicyRow:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            start_seconds = time.perf_counter()
            result = await compact(payload, request, archive=archive)
            compact_seconds = time.perf_counter() - start_seconds
            session = await replay(payload, request, archive, report)
    return PolicyRow(
        policy=name,
        status=result.status,
        fits=result.fits,
        tokens_before=result.tokens.before,
        tokens_after=result.tokens.after,
        saved_by_layer=_saved_by_layer(result),
        compact_seconds=compact_seconds,
        replay=session,
        recall=session.recall,
        cache_hit_share=session.hit_share,
        cost_usd=session.billed_tokens * price_usd / 1_000_000,
    )


def _saved_by_layer(result: CompactResult) -> dict[str, int]:
    saved: Counter[str] = Counter()
    for layer in result.layers:
        saved[layer.name] += layer.tokens_before - layer.tokens_after
    return dict(saved)  # because `asdict` would count the items of a Counter


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
    measures, input_limit_tokens = _Measures(request, format_name), _input_limit_tokens(request)
    session, earlier_names = Replay(), set[str]()
    previous: Sequence[JsonObject] = []
    positions = _answers(payload, format_name)
    for start, position in pairwise([0, *positions]):
        if report is not None:
            await report(session.calls / len(positions))
        result = await compact([*previous, *payload[start:position]], request, archive=archive)
        earlier_names |= measures.names(payload[start:position])
        needed = measures.names(payload[position : position + 1]) & earlier_names
        sizes = measures.tokens(result.messages)
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
        session.found += len(needed & measures.names(result.messages))
        previous = result.messages
    return session


def _answers(payload: Sequence[JsonObject], format_name: str) -> list[int]:
    """Return the index of the first message of each answer. The host sent a request before it."""
    roles = ["user"] * len(payload)
    for message in formats.parse(payload, format=format_name):
        if message.index is not None:
            roles[message.index] = message.role
    starts = (pair == ("assistant", "user") for pair in zip(roles[1:], roles, strict=False))
    return [index for index, is_start in enumerate(starts, 1) if is_start]


def _input_limit_tokens(request: CompactRequest) -> int:
    """Return the number of tokens that the window leaves for input."""
    return window_budget(request, Settings(buffer_tokens=0)).trigger_tokens


class _Measures:
    """Tokens and names of messages, cached by object because every request repeats most of them."""

    def __init__(self, request: CompactRequest, format_name: str) -> None:
        self._format = format_name
        self._count = counter_for(request.model).message
        # The cache keeps the message, so that no other object can get its id.
        self._known: dict[int, tuple[JsonObject, int, frozenset[str]]] = {}

    def tokens(self, messages: Sequence[JsonObject]) -> list[int]:
        """Return the token count of each message."""
        return [tokens for _, tokens, _ in self._measured(messages)]

    def names(self, messages: Sequence[JsonObject]) -> frozenset[str]:
        """Return the names (paths, identifiers, numbers) in all messages."""
        return frozenset[str]().union(*(names for _, _, names in self._measured(messages)))

    def _measured(
        self, messages: Sequence[JsonObject]
    ) -> list[tuple[JsonObject, int, frozenset[str]]]:
        new = [raw for raw in messages if id(raw) not in self._known]
        self._known |= {id(raw): (raw, 0, frozenset[str]()) for raw in new}
        for message in formats.parse(new, format=self._format):
            if message.index is not None:
                raw = new[message.index]
                text = "\n".join(map(block_text, message.blocks))
                names = frozenset(filter(kind_of, names_in(text)))
                self._known[id(raw)] = raw, self._count(message), names
        return [self._known[id(raw)] for raw in messages]


@click.command()
@own_options
def policies(*, as_json: bool = False) -> None:
    """List the policies with their layers, constants and sources.

    Options:
        as_json: Print JSON instead of text.
    """
    from mcp_server_compaction.protocol.resource_contents import own_constants, policies_document

    if as_json:
        answer(True, policies_document(), "")
        return
    for policy in POLICIES.values():
        say(f"{policy.name} ({policy.source})")
        say(f"  {policy.description}")
        say(f"  Layers: {' > '.join(policy.layers)}")
        if constants := own_constants(policy):
            say(f"  Constants: {', '.join(f'{k}={v}' for k, v in constants.items())}")
        for difference in policy.differences:
            say(f"  Differs: {difference}")
        say()


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@own_options
@click.pass_context
def compare(
    context: click.Context,
    file: str,
    *,
    policies: str | None = None,
    window: Positive | None = None,
    model: str | None = None,
    price: Annotated[float, click.FloatRange(0)] = 3.0,
    as_json: bool = False,
) -> None:
    """Compare policies on a conversation: size, speed, recall and cost.

    FILE is a session file or a list of messages, or `-` for standard input. The archive does not
    change. Every policy replays the whole conversation, so a long one takes minutes: choose few
    with --policies.

    Options:
        policies (A,B): Compare these policies (default: all).
        window (N): Fit a context window of N tokens (default: half of the conversation).
        model (M): Use the tokenizer of this model (default: the model in the file).
        price (USD): Calculate costs with this price of one million input tokens.
        as_json: Print JSON instead of text.
    """
    config = config_of(context)
    if not math.isfinite(price):
        raise SettingsError(f"Invalid --price {price}. Pass US dollars, for example 3.0.")
    listed = policies or ",".join(POLICIES)
    names = [policy_named(name.strip()).name for name in listed.split(",") if name.strip()]
    given = anyio.run(read_input, file)
    model = model or given.model or config.model
    overhead, tokens = given.count_tokens(model)
    # A small window has only half its tokens for input, and system and tools do not shrink.
    window = window or max(1_000, (tokens + overhead) // 2, 4 * overhead)
    request = given.request(config, model, context_window=window, summarizer="extractive")
    with progress("Comparing") as report:
        rows = anyio.run(
            compare_policies, given.payload, request, names, price, async_report(report)
        )
    if as_json:
        figures = {
            "file": Path(file).name,
            "window": request.context_window,
            "price_usd": price,
            "policies": [asdict(row) for row in rows],
            "notes": list(given.notes),
        }
        answer(True, figures, "")
        return
    for line in grouped(given.notes):
        say(f"Note: {line}")
    say("One compaction of the whole conversation:")
    for row in rows:
        saved = ", ".join(f"{name} {tokens:,}" for name, tokens in row.saved_by_layer.items())
        fits = "" if row.fits else ", too many"
        say(f"  {row.policy}: {row.tokens_after:,} tokens{fits}, {row.compact_seconds:.2f} s")
        say(f"    saved: {saved or 'nothing'}")
    say()
    say("The session, replayed request by request:")
    say(f"  {'policy':<20}compacted too long recall cached    re-billed cost USD")
    for row in rows:
        session = row.replay
        say(
            f"  {row.policy:<20}{session.compactions:>9}{session.calls_over:>9}{row.recall:>7.3f}"
            f"{row.cache_hit_share:>7.1%}{session.rebilled_tokens:>13,}{row.cost_usd:>9.2f}"
        )
    say(
        f"Input: {rows[0].tokens_before:,} tokens, {rows[0].replay.calls} requests, a window of "
        f"{request.context_window:,} tokens."
    )
    say(f"cost USD: at ${price:g} a million input tokens, without summaries by a model. Cache")
    say("  reads cost 0.1 times this price, and writes 1.25 times.")
    say("compacted: requests with a changed message list. too long: requests above the window.")
    say("recall: names that the model used again and that the request contained.")
    say("cached: input read from the cache. re-billed: tokens written to the cache again.")
    say()
    say(conclusion(rows))


def conclusion(rows: Sequence[PolicyRow]) -> str:
    """Return the result in one sentence.

    It names the policy default, or the cheapest policy whose requests all fit.
    """
    without, *policies = rows
    fitting = [row for row in policies if not row.replay.calls_over] or policies
    chosen = min(fitting, key=lambda row: (row.policy != "default", row.cost_usd))
    kept = chosen.recall / without.recall if without.recall else 1.0
    over = f", and {without.replay.calls_over} requests would have been too long without it"
    return (
        f"{chosen.policy} would have cost ${chosen.cost_usd:.2f} instead of "
        f"${without.cost_usd:.2f} and kept {kept:.0%} of the names that the model used again"
        f"{over if without.replay.calls_over else ''}."
    )
