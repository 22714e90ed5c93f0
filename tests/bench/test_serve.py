"""The client that loads a service, and the figures that are made of its answers."""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from small_detectors import save_random_artifact

from lensbox.bench.report import Options
from lensbox.bench.serve import benchmark, services
from lensbox.bench.serve import load as load_module
from lensbox.bench.serve.answers import Loaded, Measured, Pair, figures
from lensbox.bench.serve.benchmark import Plan
from lensbox.bench.serve.load import Answers, Load, run
from lensbox.bench.serve.services import apply_load, load_cores, without

PATIENCE = 60.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[tuple[str, int]]] = set()
    headers_seen: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        self.connections.add(self.client_address)
        self.headers_seen.add(self.headers.get("X-Test", ""))
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/slow":
            time.sleep(0.1)
        self.send_response(200 if self.path == "/good" else 503)
        self.send_header("Content-Length", "2")
        if self.path == "/close":
            self.send_header("Connection", "close")
        self.end_headers()
        for piece in (b"{", b"}"):
            self.wfile.write(piece)
            if self.path == "/pieces":
                time.sleep(0.02)

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


def closed(port: int, body: str, path: str = "/good", **more: Any) -> Load:
    """A closed loop of 3 connections for half a second."""
    values = {"connections": 3, "seconds": 0.5, **more}
    return Load("127.0.0.1", port, path, body, ["X-Test: yes"], **values)


def test_the_closed_loop_keeps_its_connections(port: int, body: str) -> None:
    answers = asyncio.run(run(closed(port, body)))
    assert set(answers.statuses) == {"200"}
    assert len(answers.seconds) == answers.statuses["200"] > 3
    assert len(_Handler.connections) == 3
    assert "yes" in _Handler.headers_seen
    assert answers.duration == pytest.approx(0.5)
    assert len(answers.seconds) <= answers.total <= len(answers.seconds) + 3  # the last ones come late


def test_the_closed_loop_ends_after_the_most_requests(port: int, body: str) -> None:
    for path in ("/good", "/pieces", "/close"):
        answers = apply_load(closed(port, body, path, seconds=PATIENCE, most=10))
        assert answers.statuses == {"200" if path == "/good" else "503": 10}
        assert answers.duration < PATIENCE / 2
    assert len(_Handler.connections) == 3 + 3 + 10  # one a request where the service closes them


def test_the_open_loop_sends_at_its_rate(port: int, body: str) -> None:
    answers = apply_load(closed(port, body, "/full", connections=20, seconds=1.0, rate=50.0))
    assert 46 <= sum(answers.statuses.values()) <= 52
    assert set(answers.statuses) <= {"503", "unsent"}
    assert answers.seconds == []


def test_requests_without_connection_or_time_are_unsent(
    port: int, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = closed(port, body, "/slow", connections=1, seconds=1.0, rate=50.0)
    answers = asyncio.run(run(load))
    assert answers.statuses["unsent"] > answers.statuses["503"] > 0
    monkeypatch.setattr(load_module, "_MOST_LATE", 0.0)  # any time is too late
    answers = asyncio.run(run(load))
    assert set(answers.statuses) == {"unsent"}
    assert answers.total == 0


def test_broken_connections_fail_and_silence_ends(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(asyncio.run(run(closed(1, body, seconds=0.05))).statuses) == {"failed"}
    monkeypatch.setattr(load_module, "_LAST_ANSWERS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        load = closed(silent.getsockname()[1], body, seconds=0.1)
        answers = asyncio.run(asyncio.wait_for(run(load), PATIENCE / 2))
    assert (answers.statuses, answers.total) == ({}, 0)


def test_processes_share_the_connections(port: int, body: str) -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    for connections in (5, 1):
        _Handler.connections.clear()
        answers = apply_load(closed(port, body, connections=connections, seconds=1.5), [core] * 3)
        assert set(answers.statuses) == {"200"}
        assert len(_Handler.connections) == connections


def test_cores_are_kept_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    have = set(range(16))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(have))

    def take(pid: int, cores: set[int]) -> None:
        have.intersection_update(cores)
        have.update(cores)

    monkeypatch.setattr(os, "sched_setaffinity", take)
    kept = load_cores()
    assert kept == [12, 13, 14, 15]
    with without(kept):
        assert have == set(range(12))
    assert have == set(range(16))
    have -= set(range(7, 16))
    assert load_cores() == []


_TALKATIVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
sys.stderr.write("x" * 300_000)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_service_may_log_much() -> None:
    with services.running([sys.executable, "-c", _TALKATIVE], "/") as service:
        assert service.process


def test_a_service_that_does_not_start_is_told_in_a_line() -> None:
    command = [sys.executable, "-c", "raise SystemExit('a\\nno port')"]
    with pytest.raises(services.NotReadyError, match=r"^it did not become ready: no port$"):  # noqa: SIM117
        with services.running(command, "/"):
            pass


def _row(name: str, count: int, seconds: float = 0.1, **statuses: int) -> Loaded:
    return Loaded(name, Answers({"200": count, **statuses}, [seconds] * count, 10.0))


def test_figures() -> None:
    saturated = _row("lensbox, 64 connections", 900)
    measured = Measured(
        throughput=Pair([90.0, 80.0, 10.0], [100.0, 100.0, 10.0]),
        latency=Pair([0.013], [0.01]),
        canvases=Pair([30.0], [100.0]),
        saturated=saturated,
        overloaded=_row("open loop", 880, 0.8, **{"503": 2000, "504": 10, "500": 1, "unsent": 5}),
        deadline=2.0,
        memory=1.03,
        litserve=[_row("1 worker", 300), _row("8 workers", 450)],
    )
    said: dict[str, Any] = {
        figure.name: (pytest.approx(figure.value), figure.must) for figure in figures(measured, "cpu")
    }
    assert said == {
        "ours / LitServe's best": (2.0, 1.3),
        "images/s by HTTP / in process at its best batch": (0.9, 0.8),
        "canvases by v2 / in process": (0.3, None),
        "p50 of one connection / in process": (1.3, None),
        "at 4 x the load: statuses other than 200, 429, 503, 504": (1, 0),
        "... answered / at saturation": (880 / 900, 0.85),
        "... p99 / deadline": (0.4, 1),
        "memory after many requests / after 1,000": (1.03, 1.05),
    }
    musts = {figure.name: figure.must for figure in figures(measured, "cuda")}
    assert musts["ours / LitServe's best"] == 6
    assert musts["canvases by v2 / in process"] == 0.4
    assert musts["p50 of one connection / in process"] == 1.4
    assert figures(Measured(), "cpu") == []
    assert figures(Measured(saturated=saturated, litserve=[_row("silent", 0, **{"500": 7})]), "cpu") == []


def test_one_row_runs_alone_and_is_written(tmp_path: Path) -> None:
    artifact = save_random_artifact(tmp_path)
    plan = Plan(artifact, ("latency",), seconds=0.4, decode="cpu")
    report = benchmark.run(Options("cpu", tmp_path), plan)
    assert [figure.name for figure in report.figures] == ["p50 of one connection / in process"]
    value = report.figures[0].value
    assert value is not None
    assert 0 < value < PATIENCE
    text = (tmp_path / "serve.md").read_text()
    for part in ("| lensbox, 1 connection |", "| in process, one photograph |", "200: "):
        assert part in text
