"""Traces: FastAPI's own telemetry makes a span of each request, only if a collector is configured.

OpenTelemetry's own environment variables apply.
"""

import os
import threading
from typing import Any

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace

_COLLECTOR = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_FLUSH_TIMEOUT = 2.0  # seconds


def telemetry(probes: tuple[str, ...]) -> TelemetryConfig:
    """Return the settings of FastAPI's telemetry. probes: paths without spans, also behind a prefix."""
    is_traced = any(map(os.environ.get, _COLLECTOR))
    os.environ.setdefault("OTEL_SERVICE_NAME", "lensbox")
    return {
        "tracing": is_traced,
        "auto_configure": is_traced,
        "exclude": lambda scope: scope["path"].endswith(probes),
        "metrics": False,
        "logs": False,
        "operation_spans": False,
    }


def end_traces() -> None:
    """Send the remaining spans, for two seconds at most: the collector may be gone."""
    provider: Any = trace.get_tracer_provider()  # FastAPI's, unless OpenTelemetry was not installed
    if hasattr(provider, "shutdown"):
        thread = threading.Thread(target=provider.shutdown, daemon=True)
        thread.start()
        thread.join(_FLUSH_TIMEOUT)
