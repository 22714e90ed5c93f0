"""Tracing by OpenTelemetry's ASGI instrumentation, imported only if a collector is configured.

OpenTelemetry's own environment variables apply.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import FastAPI
from starlette.types import Scope

from lensbox.serve.observability.logs import CURRENT

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_FLUSH_TIMEOUT = 2.0  # seconds


def start_tracing(app: FastAPI, probes: Iterable[str] = ()) -> Callable[[], None] | None:
    """Make a span of each request. Return a function that sends the remaining spans, or None without traces.

    OpenTelemetry's own variables name the collector. probes: paths without spans.
    """
    if not any(map(os.environ.get, _ENDPOINTS)):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation import propagators
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        _log.error("no traces are sent: %s; install OpenTelemetry: pip install 'lensbox[otel]'", error)
        return None
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
    os.environ.setdefault("OTEL_SERVICE_NAME", "lensbox")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # W3C's header `traceresponse` in every answer.
    response_propagator = propagators.TraceResponsePropagator()
    propagators.set_global_response_propagator(response_propagator)  # type: ignore[no-untyped-call]
    app.add_middleware(
        OpenTelemetryMiddleware,
        excluded_urls=",".join(f"{path}$" for path in probes),
        exclude_spans=["receive", "send"],
        server_request_hook=_note_ids,
        tracer_provider=provider,
    )

    def stop() -> None:
        thread = threading.Thread(target=provider.shutdown, daemon=True)
        thread.start()
        thread.join(_FLUSH_TIMEOUT)  # the collector may be gone

    return stop


def _note_ids(span: Any, _: Scope) -> None:
    """Copy the trace ID to the log, and the request ID to the span."""
    if span.is_recording() and (ids := CURRENT.get()) is not None:
        CURRENT.set(ids._replace(trace_id=f"{span.get_span_context().trace_id:032x}"))
        span.set_attribute("lensbox.request_id", ids.request_id)
