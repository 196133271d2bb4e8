"""Figures of each call, by OpenTelemetry's interface: its SDK sends them where configured.

Without an SDK that is nowhere, and costs nothing. No figure contains anything of a conversation,
nor the name of a tenant, a user or a session: those are in the audit log.
"""

import time
from collections.abc import Mapping
from typing import Any

from context_compaction.errors import ArchiveError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from opentelemetry import metrics, trace

# A fast call takes some milliseconds, a compaction of millions of tokens some seconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKENS = (1e3, 1e4, 3e4, 1e5, 2e5, 5e5, 1e6, 5e6)

_meter = metrics.get_meter("mcp_server_compaction")
_requests = _meter.create_histogram(
    "compaction.request.duration",
    unit="s",
    description="How long requests took, by what was asked for and how it ended.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_before = _meter.create_histogram(
    "compaction.tokens.before",
    unit="{token}",
    description="Estimated tokens that came in.",
    explicit_bucket_boundaries_advisory=_TOKENS,
)
_after = _meter.create_histogram(
    "compaction.tokens.after",
    unit="{token}",
    description="Estimated tokens that went out.",
    explicit_bucket_boundaries_advisory=_TOKENS,
)
_removed = _meter.create_counter(
    "compaction.layer.tokens_removed",
    unit="{token}",
    description="Estimated tokens that each layer took out.",
)
_archive_errors = _meter.create_counter(
    "compaction.archive.errors", description="Calls that the archive failed, by kind."
)


async def measured(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Measure one request, and note its figures on the span that the SDK has begun."""
    name = ctx.method
    if name == "tools/call" and ctx.params:
        name = str(ctx.params.get("name", ""))[:60]
    began = time.perf_counter()
    outcome = "error"
    try:
        answered = await call_next(ctx)
        # The innermost handler's answer comes as the wire has it.
        answer = answered if isinstance(answered, dict) else {}
        outcome = "refused" if answer.get("isError") else "ok"
    except ArchiveError as error:
        _archive_errors.add(1, {"kind": type(error).__name__})
        raise
    finally:
        attributes = {"request": name, "outcome": outcome}
        _requests.record(time.perf_counter() - began, attributes)
    if name == "compact_messages":
        _note_compaction(answer.get("structuredContent") or {})
    return answered


def _note_compaction(answer: Mapping[str, Any]) -> None:
    tokens = answer.get("tokens")
    if tokens is None:
        return
    labels = {"status": answer["status"], "writer": answer.get("written_by") or "none"}
    _before.record(tokens["before"], labels)
    _after.record(tokens["after"], labels)
    for layer in answer.get("layers", ()):
        removed = layer["tokens_before"] - layer["tokens_after"]
        _removed.add(max(0, removed), {"layer": layer["name"]})
    span = trace.get_current_span()
    span.set_attribute("compaction.tokens.before", tokens["before"])
    span.set_attribute("compaction.tokens.after", tokens["after"])
    span.set_attribute("compaction.status", labels["status"])
    span.set_attribute("compaction.writer", labels["writer"])
