"""Log lines of requests, as JSON, and for a reader that does not read."""

import json
import logging
import os
import re
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from waiting import wait_until

from lensbox.serve.observability.logs import CURRENT, JsonFormatter, QueuedLog

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """Return the lines of the access log so far, as JSON."""
    caplog.handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.INFO, "lensbox.serve.access")
    caplog.handler.setLevel(logging.NOTSET)
    name = '"lensbox.serve.access"'
    return lambda: [json.loads(line) for line in caplog.text.splitlines() if name in line]


def test_requests_are_logged_with_their_ids(client: httpx.Client, lines: Lines) -> None:
    headers = {"X-Request-ID": "mine"}
    client.post("/v1/detect?score_threshold=2", content=b"x", headers=headers)
    for path in ("/livez", "/readyz", "/healthz", "/metrics", "/v2/health/live", "/v2/health/ready"):
        client.get(path)  # probes are not logged at this level
    client.get("/v2/models/other/%0Aready")
    wait_until(lambda: len(lines()) == 2)  # a line comes after its answer
    first, second = lines()
    address = first.pop("client")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    milliseconds = first.pop("milliseconds")
    assert 0 < milliseconds < 60_000
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first.pop("time"))
    assert first == {
        "level": "info",
        "logger": "lensbox.serve.access",
        "message": f"POST /v1/detect 422 {milliseconds:.1f} ms {address} mine face_detector/1",
        "model": "face_detector/1",
        "request_id": "mine",
        "method": "POST",
        "path": "/v1/detect",
        "route": "/v1/detect",
        "status": 422,
    }
    assert second["path"] == "/v2/models/other/%0Aready"
    assert second["route"] == "none"


def test_an_exception_is_part_of_its_line() -> None:
    CURRENT.set({})
    cause = (RuntimeError, RuntimeError("the cause"), None)
    line = JsonFormatter().format(logging.LogRecord("a", 40, "", 0, "it failed: %s", ("x\ny",), cause))
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["level"], entry["message"]) == ("error", "it failed: x\ny")
    assert entry["exception"] == "RuntimeError: the cause"
    assert "request_id" not in entry


def _log_to(file: int) -> logging.Logger:
    log = logging.Logger("test")
    log.addHandler(QueuedLog(file, JsonFormatter()))
    return log


def test_drops_and_counts_lines_that_nobody_reads() -> None:
    reader, writer = os.pipe()
    log = _log_to(writer)
    for number in range(4000):
        log.error("%d %s", number, "x" * 1000)
    lines: list[str] = []

    def read() -> None:
        with os.fdopen(reader, encoding="utf-8") as pipe:
            for line in pipe:
                lines.append(json.loads(line)["message"])

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: len(lines) >= 1000)
    log.error("the last")  # follows the number of lines that were dropped
    wait_until(lambda: lines[-1] == "the last")
    counted = "log lines were dropped, because nobody"
    assert sum(int(line.split()[0]) if counted in line else 1 for line in lines) == 4001
    assert any(counted in line for line in lines)
    assert [int(line.split()[0]) for line in lines[:1000]] == list(range(1000))
    log.handlers[0].flush()
    os.close(writer)
    thread.join()


def test_logs_without_a_reader() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = _log_to(writer)
    for _ in range(2):
        log.error("lost")
        log.handlers[0].flush()
