"""Compare the size, speed, recall and cost of policies on one conversation.

Each policy runs twice in a temporary archive: one compaction of the whole conversation, and a
replay of the session request by request.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from context_compaction import (
    CompactRequest,
    CompactResult,
    JsonObject,
    ReportProgress,
    compact,
    open_archive,
)
from context_compaction.hooks import silent

from mcp_server_compaction.compare.replay import Report, replay

# Name of the first row: the session if every request contained all messages.
NO_COMPACTION = "no compaction"


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
        calls: Number of requests in the replayed session.
        compactions: Number of requests in which the policy changed the message list.
        calls_over: Number of requests that were too long for the window.
        recall: Share of the names needed by the model's answers that the requests contained.
        cache_hit_share: Share of all input tokens that was read from the prompt cache.
        rebilled_tokens: Tokens written to the cache again because an earlier message changed.
        billed_tokens: Cost of all input, converted to tokens at the price of uncached input.
        cost_usd: Cost of all input in US dollars.
    """

    policy: str
    status: str
    fits: bool
    tokens_before: int
    tokens_after: int
    saved_by_layer: dict[str, int]
    compact_seconds: float
    calls: int
    compactions: int
    calls_over: int
    recall: float
    cache_hit_share: float
    rebilled_tokens: int
    billed_tokens: float
    cost_usd: float


async def compare(
    payload: Sequence[JsonObject],
    request: CompactRequest,
    policies: Sequence[str],
    price_usd: float,
    report: ReportProgress = silent,
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
        calls=session.calls,
        compactions=session.compactions,
        calls_over=session.calls_over,
        recall=session.recall,
        cache_hit_share=session.hit_share,
        rebilled_tokens=session.rebilled_tokens,
        billed_tokens=session.billed_tokens,
        cost_usd=session.billed_tokens * price_usd / 1_000_000,
    )


def _saved_by_layer(result: CompactResult) -> dict[str, int]:
    saved: Counter[str] = Counter()
    for layer in result.layers:
        saved[layer.name] += layer.tokens_before - layer.tokens_after
    return dict(saved)  # because `asdict` would count the items of a Counter
