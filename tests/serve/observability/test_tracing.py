"""Spans of requests: in memory, and at a collector of a service of several processes."""

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from programs import run_python
from serve_process import ServeProcess
from services import Start
from waiting import PATIENCE, wait_until

from lensbox.serve.observability import tracing as choice
from lensbox.serve.observability.tracing import Tracing
from lensbox.serve.settings import Settings

_TRACE, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_TRACEPARENT = f"00-{_TRACE}-{_PARENT}-01"
_LOSS = {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def client(exporter: InMemorySpanExporter, start: Start) -> httpx.Client:
    """A client of a traced service."""
    return start(tracing=Tracing(SimpleSpanProcessor(exporter))).client


def test_a_request_is_a_tree_of_spans(
    client: httpx.Client, exporter: InMemorySpanExporter, png: bytes
) -> None:
    headers = {"traceparent": _TRACEPARENT, "X-Request-ID": "mine"}
    assert client.post("/v1/detect", content=png, headers=headers).status_code == 200
    wait_until(lambda: len(exporter.get_finished_spans()) == 2)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"POST /v1/detect", "queue and inference"}
    request, job = spans["POST /v1/detect"], spans["queue and inference"]
    assert request.context is not None and request.parent is not None  # noqa: PT018 (for mypy)
    assert f"{request.context.trace_id:032x}" == _TRACE
    assert f"{request.parent.span_id:016x}" == _PARENT
    attributes = {
        "http.request.method": "POST",
        "http.route": "/v1/detect",
        "http.response.status_code": 200,
        "lensbox.request_id": "mine",
    }
    assert attributes.items() <= dict(request.attributes or {}).items()
    assert job.context is not None and job.parent is not None  # noqa: PT018
    assert job.context.trace_id == request.context.trace_id
    assert job.parent.span_id == request.context.span_id


def test_errors_have_spans_and_probes_have_none(
    client: httpx.Client, exporter: InMemorySpanExporter, fake: Any
) -> None:
    for path in ("/healthz", "/metrics", "/v2/health/live"):
        assert client.get(path).status_code == 200
    assert client.get("/nothing").status_code == 404
    fake.error = RuntimeError("a defect")
    assert client.post("/v1/loss", json=_LOSS).status_code == 500
    wait_until(lambda: len(exporter.get_finished_spans()) == 3)
    missing, _, failed = exporter.get_finished_spans()
    assert (missing.name, missing.status.is_ok) == ("GET", True)
    assert (failed.name, failed.status.is_ok) == ("POST /v1/loss", False)


# FastAPI itself imports OpenTelemetry's API if it is installed.
_NOTHING_IMPORTED = """
import sys
from pathlib import Path
from lensbox.serve.http.app import create_app
from lensbox.serve.settings import Settings
create_app(Settings(Path("unused")))
ours = ("opentelemetry.sdk", "opentelemetry.exporter")
print([name for name in sys.modules if name.startswith(ours)])
"""


def test_nothing_is_imported_without_a_collector() -> None:
    assert run_python("-c", _NOTHING_IMPORTED).stdout == "[]\n"


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(choice, "_is_installed", lambda: False)
    with pytest.raises(choice.TracingError, match=r"pip install 'lensbox\[otel\]'$"):
        choice.start_tracing(Settings(Path("unused"), otel_endpoint="http://127.0.0.1:1"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert choice.start_tracing(Settings(Path("unused"))) is None
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set, but traces need OpenTelemetry" in caplog.text


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """The URL of an OTLP collector, and the list of received spans."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            request = ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource in request.resource_spans:
                names = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
                assert names["service.name"] == "lensbox"
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("frontends", ["0", pytest.param("1", marks=pytest.mark.exhaustive)])
def test_a_collector_receives_the_spans(
    frontends: str, collector: tuple[str, list[Any]], artifact_path: Path, png: bytes
) -> None:
    url, spans = collector
    options = ("--frontends", frontends, "--otel-endpoint", url, "--log-format", "json")
    with ServeProcess(artifact_path, *options) as process:
        response = httpx.post(f"{process.ready()}/v1/detect", content=png, timeout=PATIENCE)
        assert response.status_code == 200
        assert process.end(signal.SIGTERM) == 0  # sends the remaining spans
    assert {span.name for span in spans} == {"POST /v1/detect", "queue and inference"}
    (request,) = (span for span in spans if span.name == "POST /v1/detect")
    assert {span.parent_span_id for span in spans if span is not request} == {request.span_id}
    lines = [json.loads(line) for line in process.lines if line.startswith("{")]
    assert request.trace_id.hex() in [line.get("trace_id") for line in lines]
