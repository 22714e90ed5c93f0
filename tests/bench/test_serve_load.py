"""The client that loads a service, and the figures that are made of its answers."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from lensbox.bench.serve.benchmark import Row, ServeReport
from lensbox.bench.serve.figures import Figure, figures
from lensbox.bench.serve.load import Answers, Load, run
from lensbox.bench.serve.services import apply_load


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[tuple[str, int]]] = set()
    headers_seen: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        self.connections.add(self.client_address)
        self.headers_seen.add(self.headers.get("X-Test", ""))
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if self.path == "/good" else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    _Handler.connections.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def body(tmp_path: Path) -> str:
    path = tmp_path / "body"
    path.write_bytes(b"an image")
    return str(path)


def test_closed_loop_keeps_its_connections(port: int, body: str) -> None:
    load = Load("127.0.0.1", port, "/good", body, ["X-Test: yes"], connections=3, seconds=0.5)
    answers = asyncio.run(run(load))
    assert set(answers.statuses) == {"200"}
    assert len(answers.seconds) == answers.statuses["200"] > 3
    assert len(_Handler.connections) == 3
    assert "yes" in _Handler.headers_seen
    assert answers.duration >= 0.5


def test_open_loop_sends_at_its_rate(port: int, body: str) -> None:
    load = Load("127.0.0.1", port, "/full", body, [], connections=20, seconds=1.0, rate=50.0)
    answers = apply_load(load, processes=2)
    assert 46 <= sum(answers.statuses.values()) <= 52
    assert set(answers.statuses) <= {"503", "unsent"}
    assert answers.seconds == []


def test_what_is_not_there_fails(body: str) -> None:
    load = Load("127.0.0.1", 1, "/good", body, [], connections=1, seconds=0.05)
    assert set(asyncio.run(run(load)).statuses) == {"failed"}


def _row(name: str, count: int, seconds: float = 0.1, **statuses: int) -> Row:
    return Row(name, Answers({"200": count, **statuses}, [seconds] * count, 10.0))


def test_figures() -> None:
    report = ServeReport([], {"files in batches of 1": 50.0, "files in batches of 8": 100.0})
    report.rows = [
        _row("lensbox, 64 connections", 900),
        _row("lensbox, 1 connection", 100, 0.013),
        _row("lensbox, open loop, 360 requests/s", 880, 0.8, **{"503": 2000, "504": 10, "500": 1}),
        _row("LitServe, 1 workers, batch 1", 300),
        _row("LitServe, 8 workers, batch 8", 450),
    ]
    report.numbers = {"one photograph in process": 0.01, "deadline": 2.0}
    values = {figure.name: pytest.approx(figure.value) for figure in figures(report, "cpu")}
    assert values == {
        "ours / LitServe's best": 2.0,
        "images/s by HTTP / in process at its best batch": 0.9,
        "p50 of one connection / in process": 1.3,
        "at 4 x the load: statuses other than 200, 503, 504": 1,
        "... answered / at saturation": 880 / 900,
        "... p99 / deadline": 0.4,
    }
    assert figures(ServeReport([]), "cpu") == []


def test_figures_say_what_they_reach() -> None:
    said = Counter(str(Figure("x", value, 0.8, 0.92)).rpartition(" ")[2] for value in (0.7, 0.8, 0.93))
    assert said == {"MISSED": 1, "must": 1, "aim": 1}
    assert str(Figure("x", 1.1, 1.5, 1.2, True)) == "x: 1.1 (must <= 1.5, aim <= 1.2): aim"
