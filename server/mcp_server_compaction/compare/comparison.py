"""Compares policies on one conversation: what each leaves of it, and what the session costs.

Two runs for each policy, in an archive that is thrown away: one compaction of the whole, and the
session replayed call by call.
"""

import json
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
    Messages,
    ReportProgress,
    classify,
    compact,
    formats,
    is_request,
    open_archive,
    tool_calls,
    tool_results,
)
from context_compaction.hooks import silent

from mcp_server_compaction.compare.replay import Report, replay

# The row of the session as it would be if every call sent all of it.
NO_COMPACTION = "no compaction"


@dataclass(frozen=True, slots=True)
class Share:
    """How many of something are left."""

    kept: int
    total: int


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy.

    Attributes:
        policy: Its name.
        status: What one compaction of the whole said.
        fits: Whether its result fits the window.
        tokens_before: Tokens of the whole.
        tokens_after: Tokens of the result.
        saved_by_layer: Tokens that each layer saved; below 0 for what it added.
        user_turns: Requests of the user that stand in the result word for word.
        results: Tool results that do.
        files: Files that the result names.
        compact_seconds: Wall time of that compaction.
        calls: Calls of the model in the replayed session.
        compactions: How often the policy changed the list.
        calls_over: Calls that did not fit the window.
        recall: Names that the model used again and that stood in its request, as a part.
        recall_with_context: The same of those that stood there beside words that explain them.
        cache_hit_share: Part of all input that was read from the cache.
        rebilled_tokens: Tokens written to the cache again after a change.
        billed_tokens: All input, in tokens at the plain price.
        cost_usd: The same in dollars.
    """

    policy: str
    status: str
    fits: bool
    tokens_before: int
    tokens_after: int
    saved_by_layer: dict[str, int]
    user_turns: Share
    results: Share
    files: Share
    compact_seconds: float
    calls: int
    compactions: int
    calls_over: int
    recall: float
    recall_with_context: float
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
    """A row for each policy, and before them one of the session as it would be without any.

    Args:
        payload: The conversation.
        request: Window, format and model; its policy is replaced.
        policies: Names.
        price_usd: Of a million input tokens.
        report: Told how far the work is.

    Raises:
        SettingsError: There is no such policy.
    """
    request = replace(request, session_id="whole")
    names = [NO_COMPACTION, *policies]
    requests = [replace(request, mode="record")]
    requests += [replace(request, policy=name) for name in policies]
    rows: list[PolicyRow] = []
    for at, (name, wanted) in enumerate(zip(names, requests, strict=True)):

        async def tell(part: float, at: int = at, name: str = name) -> None:
            await report((at + part) / len(names), name)

        await tell(0.0)
        rows.append(await _row(payload, wanted, name, price_usd, tell))
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
            began = time.perf_counter()
            result = await compact(payload, request, archive=archive)
            seconds = time.perf_counter() - began
            session = await replay(payload, request, archive, report)
    before = formats.parse(payload, format=result.format)
    after = formats.parse(result.messages, format=result.format)
    return PolicyRow(
        policy=name,
        status=result.status,
        fits=result.fits,
        tokens_before=result.tokens.before,
        tokens_after=result.tokens.after,
        saved_by_layer=_saved(result),
        user_turns=_user_turns(before, after),
        results=_results(before, after),
        files=_files(before, result.messages),
        compact_seconds=seconds,
        calls=len(session.calls),
        compactions=session.compactions,
        calls_over=session.calls_over,
        recall=session.recall,
        recall_with_context=session.recall_with_context,
        cache_hit_share=session.hit_share,
        rebilled_tokens=session.rebilled_tokens,
        billed_tokens=session.billed_tokens,
        cost_usd=session.billed_tokens * price_usd / 1_000_000,
    )


def _saved(result: CompactResult) -> dict[str, int]:
    saved: Counter[str] = Counter()
    for layer in result.layers:
        saved[layer.name] += layer.tokens_before - layer.tokens_after
    return dict(saved)  # `asdict` would count the items of a Counter


def _user_turns(before: Messages, after: Messages) -> Share:
    asked = [message.blocks for message in before if is_request(message)]
    left = [message.blocks for message in after if is_request(message)]
    return Share(sum(blocks in left for blocks in asked), len(asked))


def _results(before: Messages, after: Messages) -> Share:
    def contents(messages: Messages) -> list[tuple[str, object]]:
        return [(one.call_id, one.content) for m in messages for one in tool_results(m)]

    left = dict(contents(after))
    given = contents(before)
    return Share(sum(left.get(call_id) == content for call_id, content in given), len(given))


def _files(before: Messages, after: Sequence[JsonObject]) -> Share:
    uses = (classify(call) for message in before for call in tool_calls(message))
    paths = {use.path for use in uses if use.path}
    text = json.dumps(after, ensure_ascii=False)
    return Share(
        sum(json.dumps(path, ensure_ascii=False)[1:-1] in text for path in paths), len(paths)
    )
