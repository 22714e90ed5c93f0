"""Too much work, slow clients, clients that leave, and the end of the service.

Nothing here depends on speed: the fake artifact holds an inference until the test lets it go.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from problems import problem_of

from lensbox.runtime.images.photo import Photo
from lensbox.serve.http.admission import Admission
from lensbox.serve.requests import decoding

WaitUntil = Callable[[Callable[[], bool]], None]

_LOSS = {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}


class Requests:
    """Requests sent from threads, so that a test can go on while they wait."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.responses: list[httpx.Response] = []
        self.threads: list[threading.Thread] = []

    def send(self, path: str, **body: Any) -> None:
        """Sends a POST request and does not wait for its answer."""

        def ask() -> None:
            self.responses.append(self.client.post(path, **body))

        self.threads.append(threading.Thread(target=ask))
        self.threads[-1].start()

    def statuses(self) -> list[int]:
        """Waits for every answer."""
        for thread in self.threads:
            thread.join(60)
        return sorted(response.status_code for response in self.responses)


def _occupy(running: Any, fake: Any, wait_until: WaitUntil, png: bytes) -> Requests:
    """Starts one inference that lasts until the gate opens."""
    fake.gate.clear()
    requests = Requests(running.client)
    requests.send("/v1/detect", content=png)
    wait_until(lambda: len(fake.calls) == 1)
    return requests


def _connect(running: Any, head: str, *headers: str) -> socket.socket:
    """A connection over which a POST request with an incomplete body has been sent."""
    url = running.client.base_url
    connection = socket.create_connection((url.host, url.port), timeout=60)
    lines = [f"POST {head}", f"Host: {url.host}", *headers, "Content-Length: 1000", "", "abc"]
    connection.sendall("\r\n".join(lines).encode())
    return connection


def test_a_full_queue_answers_503(
    start: Callable[..., Any], fake: Any, wait_until: WaitUntil, png: bytes
) -> None:
    running = start(queue_size=1)
    client = running.client
    requests = _occupy(running, fake, wait_until, png)
    requests.send("/v1/detect", content=png)
    wait_until(lambda: running.service.engine.waiting == 1)
    for response in (client.post("/v1/detect", content=png), client.post("/v1/loss", json=_LOSS)):
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert problem_of(response) == {
            "code": "overloaded",
            "message": "1 jobs already wait for the model; try again later",
        }
    # The event loop is free meanwhile.
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
    fake.gate.set()
    assert requests.statuses() == [200, 200]
    assert client.post("/v1/detect", content=png).status_code == 200


def test_too_many_requests_in_progress_answer_503(
    start: Callable[..., Any], fake: Any, wait_until: WaitUntil, png: bytes
) -> None:
    running = start(max_requests=2)
    requests = _occupy(running, fake, wait_until, png)
    with _connect(running, "/v1/detect HTTP/1.1"):  # one that sends its body slowly counts too
        wait_until(lambda: running.service.in_progress == 2)
        response = running.client.post("/v1/loss", json=_LOSS)
        assert response.status_code == 503
        assert problem_of(response)["message"] == "2 requests are already in progress; try again later"
    # The slow one has hung up: its place is free again.
    wait_until(lambda: running.service.in_progress == 1)
    fake.gate.set()
    assert running.client.post("/v1/loss", json=_LOSS).status_code == 200
    assert requests.statuses() == [200]
    wait_until(lambda: running.service.in_progress == 0)  # given back after the last byte has gone


def test_a_client_that_hangs_up_costs_no_inference(
    start: Callable[..., Any], fake: Any, wait_until: WaitUntil, png: bytes
) -> None:
    running = start()
    requests = _occupy(running, fake, wait_until, png)
    url = running.client.base_url
    with socket.create_connection((url.host, url.port), timeout=60) as connection:
        connection.sendall(b"POST /v1/loss HTTP/1.1\r\nHost: x\r\nContent-Length: 63\r\n\r\n")
        connection.sendall(b'{"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1.0000]]}')
        wait_until(lambda: running.service.engine.waiting == 1)
    wait_until(lambda: running.service.in_progress == 1)
    fake.gate.set()
    assert requests.statuses() == [200]
    # Jobs are taken in turn, so the dropped one would have run before this one.
    assert running.client.post("/v1/detect", content=png).status_code == 200
    assert [name for name, _ in fake.calls] == ["detect", "detect"]


def test_a_slow_body_is_cut_off(start: Callable[..., Any], wait_until: WaitUntil) -> None:
    running = start(body_timeout=0.05)
    with _connect(running, "/v1/detect HTTP/1.1") as connection:
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # until the service closes the connection
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert b'"code":"body_timeout"' in body
    assert b"within 0.05 seconds" in body
    wait_until(lambda: running.service.in_progress == 0)  # given back after the last byte has gone


def test_an_answer_that_takes_too_long_is_given_up(
    start: Callable[..., Any], fake: Any, wait_until: WaitUntil, png: bytes
) -> None:
    running = start(answer_timeout=1)
    fake.gate.clear()
    for _ in range(2):  # the first is running, the second never runs
        response = running.client.post("/v1/loss", json=_LOSS)
        assert response.status_code == 504
        assert problem_of(response) == {
            "code": "deadline_exceeded",
            "message": "no answer within 1 seconds; try again later",
        }
    fake.gate.set()
    wait_until(lambda: running.service.engine.waiting == 0)
    wait_until(lambda: running.client.post("/v1/detect", content=png).status_code == 200)
    assert [name for name, _ in fake.calls].count("loss") == 1


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "soon", "86400001", "9" * 5000])
def test_a_deadline_that_is_none_is_refused(start: Callable[..., Any], text: str) -> None:
    response = start().client.post("/v1/loss", json=_LOSS, headers={"X-Request-Timeout-Ms": text})
    assert response.status_code == 422
    assert problem_of(response)["code"] == "invalid_parameter"
    rule = "X-Request-Timeout-Ms must be a whole number of milliseconds from 1 to 86400000, got "
    assert problem_of(response)["message"].startswith(rule)


def test_a_clients_deadline_holds(
    start: Callable[..., Any], fake: Any, wait_until: WaitUntil, png: bytes
) -> None:
    running = start()
    requests = _occupy(running, fake, wait_until, png)
    for body in ({"content": png}, {"content": png, "headers": {"X-Request-Timeout-Ms": "86400000"}}):
        requests.send("/v1/detect", **body)
    wait_until(lambda: running.service.engine.waiting == 2)
    for path, late in (("/v1/detect", {"content": png}), ("/v1/loss", {"json": _LOSS})):
        response = running.client.post(path, **late, headers={"X-Request-Timeout-Ms": "50"})
        assert response.status_code == 504
        assert problem_of(response) == {
            "code": "deadline_exceeded",
            "message": "no answer within 0.05 seconds; try again later",
        }
    fake.gate.set()
    assert requests.statuses() == [200, 200, 200]
    # What was late has not been computed.
    assert [name for name, _ in fake.calls] == ["detect"] * 3


def test_a_deadline_holds_while_the_body_arrives(start: Callable[..., Any]) -> None:
    running = start()
    with _connect(running, "/v1/detect HTTP/1.1", "X-Request-Timeout-Ms: 50") as connection:
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 504 ")


def test_clients_in_a_hurry_do_not_make_the_service_unready(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    gate, begun = threading.Event(), threading.Event()

    def decode(*_: Any) -> Photo:
        begun.set()
        assert gate.wait(60)
        return Photo.of(torch.zeros(3, 4, 5, dtype=torch.uint8))

    monkeypatch.setattr(decoding, "photo_from_file", decode)
    running = start(decode_threads=1)
    response = running.client.post("/v1/detect", content=b"a", headers={"X-Request-Timeout-Ms": "20"})
    assert response.status_code == 504
    assert begun.wait(60)
    assert running.client.get("/readyz").status_code == 200
    gate.set()
    assert running.client.post("/v1/detect", content=b"a").status_code == 200


def test_a_defect_is_answered_without_its_details(start: Callable[..., Any], fake: Any, png: bytes) -> None:
    running = start()
    fake.error = RuntimeError("secret detail")
    response = running.client.post("/v1/detect", content=png)
    assert response.status_code == 500
    assert response.headers["connection"] == "close"
    assert problem_of(response) == {
        "code": "internal_error",
        "message": "the service failed on this request; its log has the cause",
    }
    fake.error = None
    assert running.client.post("/v1/detect", content=png).status_code == 200


def test_the_end_waits_for_requests_in_progress(
    start: Callable[..., Any], fake: Any, wait_until: WaitUntil, png: bytes
) -> None:
    running = start()
    requests = _occupy(running, fake, wait_until, png)
    requests.send("/v1/loss", json=_LOSS)
    wait_until(lambda: running.service.engine.waiting == 1)
    running.stop()
    wait_until(lambda: not _accepts(running))
    assert requests.responses == []
    fake.gate.set()
    assert requests.statuses() == [200, 200]


def _accepts(running: Any) -> bool:
    url = running.client.base_url
    try:
        socket.create_connection((url.host, url.port), timeout=60).close()
    except OSError:
        return False
    return True


def test_a_slow_reader_is_in_progress_and_is_cut_off(start: Callable[..., Any]) -> None:
    service = start(send_timeout=0.2).service
    sent: list[int] = []
    in_progress: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(8 << 20)})

    async def send(message: Any) -> None:
        sent.append(len(message.get("body", b"")))
        if len(sent) > 2:  # the client reads no more
            in_progress.append(service.in_progress)
            await asyncio.sleep(3600)

    state: Any = SimpleNamespace(state=SimpleNamespace(service=service))
    scope = {"type": "http", "method": "POST", "path": "/v1/detect", "headers": []}
    asyncio.run(Admission(app, state)(scope, send, send))  # type: ignore[arg-type]
    assert in_progress == [1]
    assert service.in_progress == 0
    assert sum(sent) == 2 << 16
