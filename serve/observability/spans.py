"""Requests as OpenTelemetry's spans: the request, and beneath it decode, queue and inference."""

import contextlib
import os
import threading
import time
from concurrent.futures import CancelledError, Future, InvalidStateError
from importlib.metadata import version
from typing import Any, TypeVar, cast

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lensbox.serve.engine.engines import Engine
from lensbox.serve.engine.jobs import Job
from lensbox.serve.engine.timed_job import Timed, TimedJob
from lensbox.serve.observability.request_ids import CURRENT

_FLUSH_TIMEOUT = 2.0  # seconds
_PROPAGATED = {b"traceparent": "traceparent", b"tracestate": "tracestate"}
# Asked for again and again by programs that watch the service.
_NOT_TRACED = frozenset({"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})

Result = TypeVar("Result")


def to_collector(endpoint: str) -> "Tracing":
    """Spans to an OTLP collector over HTTP; "": the one that the environment names. OpenTelemetry's own
    variables decide on everything else."""
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
    return Tracing(BatchSpanProcessor(exporter))


class Tracing:
    """Makes spans and gives them to a processor. Any thread may make them."""

    def __init__(self, processor: SpanProcessor) -> None:
        name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "lensbox"}
        self._provider = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lensbox.serve", version("lensbox"))

    def app(self, app: ASGIApp) -> ASGIApp:
        """An application whose requests are spans, and whose logs have the trace's id."""
        return _TracedApp(app, self)

    def engine(self, engine: Engine) -> Engine:
        """An engine that makes spans of how long its jobs wait and are computed."""
        return cast(Engine, _TracedEngine(engine, self))

    def request(self, context: Context, method: str) -> trace.Span:
        """The span of a request, beneath that of the client."""
        return self._tracer.start_span(
            method, context, trace.SpanKind.SERVER, attributes={"http.request.method": method}
        )

    def stage(
        self, name: str, begun: float, ended: float, context: Context | None = None, **attributes: Any
    ) -> None:
        """What is over: times on the clock of `time.monotonic`, beneath the current span or that of
        `context`."""
        offset = time.time() - time.monotonic()
        span = self._tracer.start_span(
            name, context, attributes=attributes, start_time=int((begun + offset) * 1e9)
        )
        span.end(int((ended + offset) * 1e9))

    def stop(self) -> None:
        """Sends what is left, within two seconds."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(_FLUSH_TIMEOUT)


class _TracedApp:
    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _NOT_TRACED:
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        span = self._tracing.request(_context_of_client(scope), method)
        if (ids := CURRENT.get()) is not None:
            CURRENT.set(ids._replace(trace_id=trace.format_trace_id(span.get_span_context().trace_id)))
            span.set_attribute("lensbox.request_id", ids.request_id)

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= 500:
                    span.set_status(trace.StatusCode.ERROR)
            await send(message)

        try:
            with trace.use_span(span):
                await self._app(scope, receive, send_and_note)
        finally:
            path = getattr(scope.get("route"), "path", None)
            if path is not None:
                span.update_name(f"{method} {path}")
                span.set_attribute("http.route", path)
            span.end()


def _context_of_client(scope: Scope) -> Context:
    headers = [(_PROPAGATED[name], value) for name, value in scope["headers"] if name in _PROPAGATED]
    carrier = {name: value.decode("latin-1") for name, value in headers}
    if len(carrier) != len(headers):  # twice the same is as good as none
        carrier = {}
    return TraceContextTextMapPropagator().extract(carrier, Context())


class _TracedEngine:
    def __init__(self, engine: Engine, tracing: Tracing) -> None:
        self._engine = engine
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, job: Job[Result], deadline: float) -> "Future[Result]":
        context, submitted = get_current(), time.monotonic()
        timed = self._engine.submit(TimedJob(job), deadline)
        plain: Future[Result] = Future()

        def settle(done: "Future[Timed]") -> None:
            with contextlib.suppress(InvalidStateError):  # cancelled
                try:
                    result, begun, ended, images = done.result()
                except CancelledError:
                    plain.cancel()
                except BaseException as error:
                    plain.set_exception(error)
                else:
                    self._tracing.stage("queue", submitted, begun, context)
                    self._tracing.stage(
                        "inference", begun, ended, context, **{"lensbox.batch_images": images}
                    )
                    plain.set_result(result)

        plain.add_done_callback(lambda done: done.cancelled() and timed.cancel())
        timed.add_done_callback(settle)
        return plain
