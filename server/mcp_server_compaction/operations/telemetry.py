"""Figures of each call, by OpenTelemetry's interface: its SDK sends them where configured.

Without an SDK that is nowhere, and costs nothing. No figure contains anything of a conversation,
nor the name of a tenant, a user or a session: those are in the audit log.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from context_compaction import ArchiveError, NotFoundError, QueryError, SettingsError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from opentelemetry import metrics, trace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

METRICS_PATH = "/metrics"
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
_stages = _meter.create_histogram(
    "compaction.stage.duration",
    unit="s",
    description="How long each stage of a compaction took, the wait for its turn apart.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_archive_errors = _meter.create_counter(
    "compaction.archive.errors", description="Calls that the archive failed, by kind."
)
# By the share that is done when a stage ends, as `compact` reports it.
_STAGES = {0.0: "wait", 0.2: "read", 0.4: "archive", 0.6: "clear", 0.8: "summarize", 1.0: "save"}


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
        count_archive_error(error)
        raise
    finally:
        attributes = {"request": name, "outcome": outcome}
        _requests.record(time.perf_counter() - began, attributes)
    if name == "compact_messages":
        _note_compaction(answer.get("structuredContent") or {})
    return answered


def count_archive_error(error: Exception) -> None:
    """Count a call that the archive failed; not one that asked for what is not there."""
    if isinstance(error, ArchiveError) and not isinstance(error, NotFoundError | QueryError):
        _archive_errors.add(1, {"kind": type(error).__name__})


def stage_clock() -> Callable[[float], None]:
    """A function that is called when a stage ends, with the share that is done by then."""
    began = time.perf_counter()

    def ended(share: float) -> None:
        nonlocal began
        name = _STAGES.get(share)
        if name is not None:
            now = time.perf_counter()
            _stages.record(now - began, {"stage": name})
            trace.get_current_span().add_event(name)
            began = now

    return ended


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


def metrics_route() -> Route:
    """Collect the figures in this process for Prometheus; return the route that shows them.

    Raises:
        SettingsError: The extra is not installed.
    """
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"--metrics needs {error.name}: install mcp-server-compaction[metrics]."
        ) from error
    os.environ.setdefault("OTEL_SERVICE_NAME", "mcp-server-compaction")
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))

    async def show(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return Route(METRICS_PATH, show)
