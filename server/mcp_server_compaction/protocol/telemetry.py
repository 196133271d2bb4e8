"""Metrics and traces of each call, through OpenTelemetry's interface.

Its SDK, if installed, sends them where it is configured to; without it they cost nothing. They
contain no text of a conversation and no name of a tenant, user or session: see the audit log.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from context_compaction import ArchiveError, NotFoundError, QueryError, SettingsError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from opentelemetry import metrics, trace
from opentelemetry.metrics import Histogram
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

METRICS_PATH = "/metrics"
# Bucket limits: a fast call takes milliseconds, a compaction of millions of tokens takes seconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKENS = (1e3, 1e4, 3e4, 1e5, 2e5, 5e5, 1e6, 5e6)

_meter = metrics.get_meter("mcp_server_compaction")


def _histogram(name: str, unit: str, limits: tuple[float, ...], description: str) -> Histogram:
    return _meter.create_histogram(
        f"compaction.{name}", unit, description, explicit_bucket_boundaries_advisory=limits
    )


_requests = _histogram(
    "request.duration", "s", _SECONDS, "Duration of requests, by request and outcome."
)
_before = _histogram("tokens.before", "{token}", _TOKENS, "Estimated tokens of the input.")
_after = _histogram("tokens.after", "{token}", _TOKENS, "Estimated tokens of the result.")
_stages = _histogram(
    "stage.duration",
    "s",
    _SECONDS,
    "Duration of each stage of a compaction, including the wait for a turn.",
)
_removed = _meter.create_counter(
    "compaction.layer.tokens_removed", "{token}", "Estimated tokens that each layer removed."
)
_archive_errors = _meter.create_counter(
    "compaction.archive.errors", description="Calls that failed in the archive, by kind."
)
# Names of stages, by the fraction that `compact` reports when the stage ends.
_STAGES = {0.0: "wait", 0.2: "read", 0.4: "archive", 0.6: "clear", 0.8: "summarize", 1.0: "save"}


async def measured(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Measure a request and add its figures to the span that the SDK started."""
    name = ctx.method
    if name == "tools/call" and ctx.params:
        name = str(ctx.params.get("name", ""))[:60]
    start_time = time.perf_counter()
    outcome = "error"
    try:
        result = await call_next(ctx)
        # The SDK passes the result of the innermost handler as JSON.
        reply = result if isinstance(result, dict) else {}
        outcome = "refused" if reply.get("isError") else "ok"
    except ArchiveError as error:
        count_archive_error(error)
        raise
    finally:
        attributes = {"request": name, "outcome": outcome}
        _requests.record(time.perf_counter() - start_time, attributes)
    if name == "compact_messages":
        _record_compaction(reply.get("structuredContent") or {})
    return result


def count_archive_error(error: Exception) -> None:
    """Count a call that failed in the archive, unless the call asked for missing content."""
    if isinstance(error, ArchiveError) and not isinstance(error, NotFoundError | QueryError):
        _archive_errors.add(1, {"kind": type(error).__name__})


def stage_clock() -> Callable[[float], None]:
    """Return a function to call at the end of each stage, with the fraction done by then."""
    start_time = time.perf_counter()

    def end_stage(fraction: float) -> None:
        nonlocal start_time
        name = _STAGES.get(fraction)
        if name is not None:
            now = time.perf_counter()
            _stages.record(now - start_time, {"stage": name})
            trace.get_current_span().add_event(name)
            start_time = now

    return end_stage


def _record_compaction(reply: Mapping[str, Any]) -> None:
    tokens = reply.get("tokens")
    if tokens is None:
        return
    labels = {"status": reply["status"], "writer": reply.get("written_by") or "none"}
    _before.record(tokens["before"], labels)
    _after.record(tokens["after"], labels)
    for layer in reply.get("layers", ()):
        removed = layer["tokens_before"] - layer["tokens_after"]
        _removed.add(max(0, removed), {"layer": layer["name"]})
    attributes = {f"compaction.tokens.{name}": tokens[name] for name in ("before", "after")}
    attributes |= {f"compaction.{name}": value for name, value in labels.items()}
    trace.get_current_span().set_attributes(attributes)


def metrics_route() -> Route:
    """Collect the metrics of this process for Prometheus, and return the route that shows them.

    Raises:
        SettingsError: The extra `metrics` is not installed.
    """
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"--metrics needs {error.name}. Run: pip install 'mcp-server-compaction[metrics]'"
        ) from error
    os.environ.setdefault("OTEL_SERVICE_NAME", "mcp-server-compaction")
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))

    async def show(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return Route(METRICS_PATH, show)
