"""The client that loads a service, and the figures that are made of its answers."""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from small_detectors import save_random_artifact

from lensbox.bench.cli import SERVE_ROWS
from lensbox.bench.serve import benchmark, services
from lensbox.bench.serve import load as load_module
from lensbox.bench.serve.answers import Loaded, Measured, Pair, figures
from lensbox.bench.serve.benchmark import LITSERVES, ROWS, LitServe, Options
from lensbox.bench.serve.load import Answers, Load, run
from lensbox.bench.serve.services import apply_load, load_cores, without
from lensbox.common.errors import ExitCode
from lensbox.common.main import main

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


@pytest.fixture(scope="module")
def artifact_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_artifact(tmp_path_factory.mktemp("artifact"))


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
    assert answers.duration == pytest.approx(0.5)
    assert len(answers.seconds) <= answers.total <= len(answers.seconds) + 3  # the last ones come late


def test_open_loop_sends_at_its_rate(port: int, body: str) -> None:
    load = Load("127.0.0.1", port, "/full", body, [], connections=20, seconds=1.0, rate=50.0)
    answers = apply_load(load, processes=2)
    assert 46 <= sum(answers.statuses.values()) <= 52
    assert set(answers.statuses) <= {"503", "unsent"}
    assert answers.seconds == []


def test_what_the_sender_has_no_time_for_is_late(
    port: int, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lensbox.bench.serve.load._MOST_LATE", 0.0)  # any time is too much
    load = Load("127.0.0.1", port, "/good", body, [], connections=2, seconds=0.2, rate=50.0)
    answers = asyncio.run(run(load))
    assert set(answers.statuses) == {"late"}
    assert answers.total == 0


def test_requests_that_find_no_connection_are_unsent(port: int, body: str) -> None:
    load = Load("127.0.0.1", port, "/slow", body, [], connections=1, seconds=1.0, rate=50.0)
    answers = asyncio.run(run(load))
    assert answers.statuses["unsent"] > answers.statuses["503"] > 0


def test_the_sender_tells_what_it_took(port: int, body: str) -> None:
    load = Load("127.0.0.1", port, "/good", body, [], connections=2, seconds=0.3)
    answers = apply_load(load, processes=2)
    assert 0 < answers.cpu < PATIENCE
    assert 0 < answers.busy <= 1


def test_answers_in_pieces_and_closed_connections_are_counted(port: int, body: str) -> None:
    for path in ("/pieces", "/close"):
        load = Load("127.0.0.1", port, path, body, [], connections=2, seconds=PATIENCE, most=10)
        assert asyncio.run(run(load)).statuses == {"503": 10}
    assert len(_Handler.connections) == 2 + 10


def test_what_is_not_there_fails(body: str) -> None:
    load = Load("127.0.0.1", 1, "/good", body, [], connections=1, seconds=0.05)
    assert set(asyncio.run(run(load)).statuses) == {"failed"}


def test_closed_loop_ends_after_the_most_requests(port: int, body: str) -> None:
    load = Load("127.0.0.1", port, "/good", body, [], connections=3, seconds=60.0, most=20)
    answers = apply_load(load, processes=2)
    assert answers.statuses == {"200": 20}
    assert answers.duration < 30


def test_a_service_that_never_answers_is_left(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "_LAST_ANSWERS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        load = Load("127.0.0.1", silent.getsockname()[1], "/", body, [], connections=2, seconds=0.1)
        answers = asyncio.run(asyncio.wait_for(run(load), PATIENCE / 2))
    assert (answers.statuses, answers.total) == ({}, 0)


def test_processes_share_all_connections(port: int, body: str) -> None:
    load = Load("127.0.0.1", port, "/good", body, [], connections=5, seconds=1.5)
    assert set(apply_load(load, processes=3).statuses) == {"200"}
    assert len(_Handler.connections) == 5
    _Handler.connections.clear()
    apply_load(replace(load, connections=1, seconds=0.5), processes=2)
    assert len(_Handler.connections) == 1


_TALKATIVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
sys.stderr.write("x" * 300_000)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_service_may_say_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_START_TIMEOUT", 20.0)
    with services.running(lambda port: [sys.executable, "-c", _TALKATIVE, str(port)], "/") as service:
        assert service.process


def test_a_service_that_does_not_start_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = str(tmp_path / "none.pt")
    command = ["bench", "serve", "--device", "cpu", "--artifact", artifact, "--only", "recovery"]
    assert main(command) == ExitCode.UNUSABLE
    error = capsys.readouterr().err
    assert error.startswith("lensbox bench serve: it did not become ready: lensbox serve: cannot start: ")
    assert "none.pt" in error


def test_services_that_answer_nothing_have_no_figures() -> None:
    peers = [_row("LitServe, 1 workers, batch 1", 0, **{"500": 7})]
    report = Measured(saturated=_row("lensbox, 64 connections", 900), peers=peers)
    assert figures(report, "cpu") == []


def test_load_is_sent_from_its_own_cores(port: int, body: str) -> None:
    cores = sorted(os.sched_getaffinity(0))[-1:]
    load = Load("127.0.0.1", port, "/good", body, [], connections=1, seconds=0.2)
    assert set(apply_load(load, cores=cores).statuses) == {"200"}


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


def _row(name: str, count: int, seconds: float = 0.1, **statuses: int) -> Loaded:
    return Loaded(name, Answers({"200": count, **statuses}, [seconds] * count, 10.0))


def test_figures() -> None:
    report = Measured(
        throughput=Pair([90.0, 80.0, 10.0], [100.0, 100.0, 10.0]),
        latency=Pair([0.013], [0.01]),
        canvases=Pair([30.0], [100.0]),
        saturated=_row("lensbox, 64 connections", 900),
        overloaded=_row(
            "lensbox, open loop, 360 requests/s", 880, 0.8, **{"503": 2000, "504": 10, "500": 1, "unsent": 5}
        ),
        deadline=2.0,
        memory=1.03,
        recovery=6.0,
        peers=[_row("LitServe, 1 workers, batch 1", 300), _row("LitServe, 8 workers, batch 8", 450)],
    )
    said: dict[str, Any] = {
        figure.name: (pytest.approx(figure.value), figure.must) for figure in figures(report, "cpu")
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
        "seconds from the end of an engine to the next answer": (6.0, 5),
    }
    musts = {figure.name: figure.must for figure in figures(report, "cuda")}
    assert musts["ours / LitServe's best"] == 3
    assert musts["canvases by v2 / in process"] == 0.4
    assert musts["p50 of one connection / in process"] == 1.5
    assert figures(Measured(), "cpu") == []


def test_one_row_runs_alone_and_is_written(artifact_path: Path, tmp_path: Path) -> None:
    options = Options(artifact_path, "cpu", tmp_path, rows=("latency",), seconds=0.4)
    report = benchmark.run(options, print)
    assert [figure.name for figure in report.figures] == ["p50 of one connection / in process"]
    value = report.figures[0].value
    assert value is not None
    assert 0 < value < PATIENCE
    text = (tmp_path / "serve.md").read_text()
    assert "| lensbox, 1 connection |" in text
    assert "| in process, one photograph |" in text
    assert "200: " in text
    assert set(SERVE_ROWS) == set(ROWS)


def test_how_litserve_is_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(benchmark, "run", lambda options, say: asked.append(options))
    command = ["bench", "serve", "--device", "cpu"]
    assert main(command) == 0
    assert main([*command, "--litserve", "8x32", "--litserve", "1x8x2"]) == 0
    assert [options.peers for options in asked] == [LITSERVES, (LitServe(8, 32), LitServe(1, 8, 2))]
    for wrong in ("8", "8x", "0x1", "1x8x2x3", "axb", "1x8x0"):
        assert main([*command, "--litserve", wrong]) == 2
        assert f"must be WORKERSxBATCH[xTHREADS], such as 8x32 or 1x8x2, got '{wrong}'" in (
            " ".join(capsys.readouterr().err.split())
        )
    assert len(asked) == 2
