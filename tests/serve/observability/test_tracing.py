"""Traces: a collector receives a span of each request."""

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
from serve_process import ServeProcess
from waiting import PATIENCE

_TRACE, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()


def test_a_collector_receives_a_span_of_each_request(
    monkeypatch: pytest.MonkeyPatch, collector: tuple[str, list[Any]], artifact_path: Path, png: bytes
) -> None:
    """Every line of the log is a JSON object."""
    url, spans = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with (
        ServeProcess(artifact_path, "--log-format", "json") as process,
        httpx.Client(base_url=process.ready(), timeout=PATIENCE) as client,
    ):
        headers = {"traceparent": f"00-{_TRACE}-{_PARENT}-01", "X-Request-ID": "mine"}
        answer = client.post("/v1/detect", content=png, headers=headers)
        assert answer.status_code == 200
        assert client.get("/nothing").status_code == 404
        # Sends the remaining spans. An idle connection does not delay the end.
        assert process.end(signal.SIGTERM) == 0
    child, root = sorted(spans, key=lambda span: span.name, reverse=True)  # probes have no spans
    assert (child.name, root.name) == ("POST /v1/detect", "GET")
    assert (child.trace_id.hex(), child.parent_span_id.hex()) == (_TRACE, _PARENT)
    attributes = {entry.key: entry.value for entry in child.attributes}
    assert attributes["http.route"].string_value == "/v1/detect"
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["lensbox.request_id"].string_value == "mine"
    lines = [json.loads(line) for line in process.lines]
    assert {"lensbox.serve.processes.supervisor", "lensbox.serve.access"} <= {
        line["logger"] for line in lines
    }
    logged = {line["path"]: line["trace_id"] for line in lines if "trace_id" in line}
    assert logged == {"/v1/detect": _TRACE, "/nothing": root.trace_id.hex()}
