"""`/metrics`: the figures of this process as Prometheus reads them (extra `metrics`)."""

import os

from context_compaction import SettingsError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

METRICS_PATH = "/metrics"


def metrics_route() -> Route:
    """Collect the figures in this process from now on; return the route that shows them.

    Raises:
        SettingsError: The extra is not installed.
    """
    try:
        from opentelemetry import metrics
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
