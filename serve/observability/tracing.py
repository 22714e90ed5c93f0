"""Tracing: OpenTelemetry's ASGI instrumentation, and a span for queue and inference of each job.

OpenTelemetry is imported only if a collector is configured. Its own environment variables apply.
"""

import importlib.util
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.serve.observability.logs import CURRENT
from lensbox.serve.observability.middleware import PROBES
from lensbox.serve.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lensbox.serve.engine.engines import Engine
    from lensbox.serve.engine.jobs import Job

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_INSTALL = "traces need OpenTelemetry: pip install 'lensbox[otel]'"
_FLUSH_TIMEOUT = 2.0  # seconds

Result = TypeVar("Result")


class TracingError(LensboxError):
    """Traces are configured but OpenTelemetry is not installed."""

    exit_code = ExitCode.UNUSABLE


def check_tracing(settings: Settings) -> None:
    """Raise TracingError if the settings name a collector and OpenTelemetry is not installed."""
    if settings.otel_endpoint and not _is_installed():
        raise TracingError(_INSTALL)


def start_tracing(settings: Settings) -> "Tracing | None":
    """Send spans to the collector in the settings or in the environment; return None without a collector.

    If only the environment names a collector, which may be meant for other programs, a missing OpenTelemetry
    is a warning. Raise TracingError as `check_tracing`.
    """
    by_environment = any(os.environ.get(name) for name in _ENDPOINTS)
    if not settings.otel_endpoint and not by_environment:
        return None
    check_tracing(settings)
    if not _is_installed():
        _log.warning("%s is set, but %s", " or ".join(_ENDPOINTS), _INSTALL)
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    endpoint = settings.otel_endpoint.rstrip("/")
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces" if endpoint else None)))


class Tracing:
    """Make spans in any thread and pass them to a processor."""

    def __init__(self, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # the stable names of attributes
        name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "lensbox"}
        self._provider = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)

    def app(self, app: "ASGIApp") -> "ASGIApp":
        """Wrap an application: each request is a span, and its log records have the trace ID."""
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

        traced: ASGIApp = OpenTelemetryMiddleware(
            _Described(app),
            excluded_urls=",".join(f"{path}$" for path in PROBES),
            default_span_details=lambda scope: (scope["method"], {}),
            tracer_provider=self._provider,
            exclude_spans=["receive", "send"],
        )
        return traced

    def engine(self, engine: "Engine") -> "Engine":
        """Wrap an engine: each job is a span from `submit` to its result."""
        tracer = self._provider.get_tracer("lensbox.serve", version("lensbox"))
        return cast("Engine", _TracedEngine(engine, tracer.start_span))

    def stop(self) -> None:
        """Send the remaining spans, within two seconds."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(_FLUSH_TIMEOUT)


class _Described:
    """Copy the trace ID to the log, and the request ID and the route to the span."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from opentelemetry import trace

        span = trace.get_current_span()
        if not span.is_recording():
            await self._app(scope, receive, send)
            return
        if (ids := CURRENT.get()) is not None:
            CURRENT.set(ids._replace(trace_id=trace.format_trace_id(span.get_span_context().trace_id)))
            span.set_attribute("lensbox.request_id", ids.request_id)

        async def send_described(message: "Message") -> None:
            route = getattr(scope.get("route"), "path", None)
            if message["type"] == "http.response.start" and route is not None:
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)
            await send(message)

        await self._app(scope, receive, send_described)


class _TracedEngine:
    def __init__(self, engine: "Engine", start_span: Callable[[str], Any]) -> None:
        self._engine = engine
        self._start_span = start_span

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, job: "Job[Result]", deadline: float) -> "Future[Result]":
        span = self._start_span("queue and inference")
        try:
            future = self._engine.submit(job, deadline)
        except BaseException:
            span.end()
            raise
        future.add_done_callback(lambda _: span.end())
        return future


def _is_installed() -> bool:
    names = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.instrumentation.asgi")
    try:
        return all(importlib.util.find_spec(name) is not None for name in names)
    except ModuleNotFoundError:
        return False
