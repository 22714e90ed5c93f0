"""Admission control: overload, slow clients, hang-ups, deadlines, and shutdown.

No test depends on speed: the fake artifact blocks an inference until the test opens its gate.
"""

import socket
from typing import Any

import pytest
from services import Running, Start, connect, problem_of
from waiting import wait_until

_LOSS = {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}


def _occupied(running: Running, fake: Any, png: bytes) -> Running:
    """Start one inference that lasts until the gate opens."""
    fake.gate.clear()
    running.send("/v1/detect", content=png)
    wait_until(lambda: len(fake.calls) == 1)
    return running


def _begun(running: Running, *headers: str) -> socket.socket:
    """Send a request with an incomplete body over a new connection."""
    connection = connect(running.client.base_url)
    lines = ["POST /v1/detect HTTP/1.1", "Host: x", *headers, "Content-Length: 1000", "", "abc"]
    connection.sendall("\r\n".join(lines).encode())
    return connection


def test_too_many_requests_in_progress_answer_503(start: Start, fake: Any, png: bytes) -> None:
    running = _occupied(start(max_requests=2), fake, png)
    with _begun(running):  # a request with an incomplete body counts, too
        wait_until(lambda: running.service.in_progress == 2)
        message = "2 requests are already in progress; try again later"
        refused = running.client.post("/v1/loss", json=_LOSS)
        assert (problem_of(refused), refused.headers["retry-after"]) == ((503, "overloaded", message), "1")
        # The event loop is not blocked meanwhile.
        assert running.client.get("/healthz").status_code == running.client.get("/readyz").status_code == 200
        metrics = running.client.get("/metrics").text
        assert 'lensbox_queue_jobs{model="fake"} 1.0' in metrics
        assert 'lensbox_requests_in_progress{model="fake"} 2.0' in metrics
    # The hang-up of the slow client frees its place.
    wait_until(lambda: running.service.in_progress == 1)
    fake.gate.set()
    assert running.client.post("/v1/loss", json=_LOSS).status_code == 200
    assert running.statuses() == [200]
    wait_until(lambda: running.service.in_progress == 0)


def test_drops_the_job_of_a_client_that_hangs_up(start: Start, fake: Any, png: bytes) -> None:
    running = _occupied(start(), fake, png)
    with connect(running.client.base_url) as connection:
        connection.sendall(b"POST /v1/loss HTTP/1.1\r\nHost: x\r\nContent-Length: 63\r\n\r\n")
        connection.sendall(b'{"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1.0000]]}')
        wait_until(lambda: running.jobs == 2)
    wait_until(lambda: running.service.in_progress == 1)
    fake.gate.set()
    assert running.statuses() == [200]
    # Jobs run in order, so the dropped job would have run before this one.
    assert running.client.post("/v1/detect", content=png).status_code == 200
    assert [name for name, _ in fake.calls] == ["detect", "detect"]


@pytest.mark.parametrize(
    ("settings", "headers", "status", "code"),
    [
        ({"body_timeout": 0.05}, [], 408, "body_timeout"),
        ({}, ["X-Request-Timeout-Ms: 50"], 504, "deadline_exceeded"),
    ],
)
def test_closes_the_connection_of_a_slow_body(
    start: Start, settings: dict[str, float], headers: list[str], status: int, code: str
) -> None:
    running = start(**settings)
    with _begun(running, *headers) as connection:
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # until the service closes the connection
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in head.lower()
    assert f'"code":"{code}"'.encode() in body
    assert b"within 0.05 seconds" in body
    wait_until(lambda: running.service.in_progress == 0)


def test_enforces_the_clients_deadline(start: Start, fake: Any, png: bytes) -> None:
    running = _occupied(start(), fake, png)
    for text in ("", "0", "-1", "1.5", "86400001", "9" * 5000):
        response = running.client.post("/v1/loss", json=_LOSS, headers={"X-Request-Timeout-Ms": text})
        assert problem_of(response).message.startswith("X-Request-Timeout-Ms must be a whole number of mill")
    for headers in ({}, {"X-Request-Timeout-Ms": "86400000"}):
        running.send("/v1/detect", content=png, headers=headers)
    wait_until(lambda: running.jobs == 3)
    bodies: dict[str, Any] = {"/v1/detect": {"content": png}, "/v1/loss": {"json": _LOSS}}
    for path, body in bodies.items():
        response = running.client.post(path, **body, headers={"X-Request-Timeout-Ms": "50"})
        message = "no answer within 0.05 seconds; try again later"
        assert problem_of(response) == (504, "deadline_exceeded", message)
    fake.gate.set()
    assert running.statuses() == [200, 200, 200]
    assert [name for name, _ in fake.calls] == ["detect"] * 3  # late jobs are not computed
