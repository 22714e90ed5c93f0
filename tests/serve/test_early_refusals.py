"""Requests that are refused by their heads alone, and what becomes of their bodies and connections."""

import contextlib
import functools
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from lensbox.serve import decoding, early_refusals
from lensbox.serve.app import App, create_app
from lensbox.serve.connections import connection_class
from lensbox.serve.early_protocol import RequestHead
from lensbox.serve.early_refusals import early_refusal
from lensbox.serve.settings import Settings
from lensbox.serve.slow_clients import Patience

PATIENCE = 60.0
_LARGE = 16 << 20
_PATIENT = Patience(10, 30, 60)
_KEY = "a-key-of-sixteen-letters"


class Full:
    """A service of which one place is taken: all that comes is refused until it is free."""

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.url = url
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)


@pytest.fixture
def serve_full(
    url_of_server: Callable[[uvicorn.Config], str],
    fake: Any,
    png: bytes,
    wait_until: Callable[[Callable[[], bool]], None],
) -> Iterator[Callable[..., Full]]:
    """Starts a full service, as `lensbox serve` does, with the settings of the test."""
    with contextlib.ExitStack() as stack:

        def start(patience: Patience = _PATIENT, key: str = "", **settings: Any) -> Full:
            app = create_app(Settings(artifact=Path("unused"), max_requests=1, **settings), load=lambda: fake)
            http = connection_class(100, patience=patience, refusal=functools.partial(early_refusal, app))
            url = url_of_server(uvicorn.Config(app, lifespan="on", http=http, log_level="critical"))
            wait_until(lambda: httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 200)
            fake.gate.clear()
            headers = {"X-API-Key": key} if key else {}
            first = threading.Thread(
                target=lambda: httpx.post(f"{url}/v1/detect", content=png, headers=headers, timeout=PATIENCE)
            )
            first.start()
            stack.callback(first.join, PATIENCE)
            stack.callback(fake.gate.set)
            wait_until(lambda: len(fake.calls) == 1)
            return Full(app, url)

        yield start


def _read(stream: Any) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """One answer: its first line, its headers and its body."""
    status = stream.readline()
    headers = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.strip().partition(b": ")
        headers[name.lower()] = value
    return status, headers, stream.read(int(headers.get(b"content-length", 0)))


def _head(size: int, *lines: str, path: str = "/v1/detect") -> bytes:
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {size}", *lines, "", ""]
    ).encode()


_ALIVE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_head_is_enough_and_the_connection_stays(serve_full: Callable[..., Full]) -> None:
    full = serve_full()
    with full.connect() as connection, connection.makefile("rb") as stream:
        for _ in range(2):
            connection.sendall(_head(70_000, "X-Request-ID: mine"))
            status, headers, body = _read(stream)  # nothing of the body is there yet
            assert status == b"HTTP/1.1 503 Service Unavailable\r\n"
            assert headers[b"x-request-id"] == b"mine"
            assert b"1 requests are already in progress; try again later" in body
            connection.sendall(b"x" * 70_000)
            connection.sendall(_ALIVE)
            assert _read(stream)[0] == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("path", ["/v1/detect?score_threshold=0.5", "/v1/loss"])
def test_it_says_what_the_app_says(serve_full: Callable[..., Full], path: str) -> None:
    full = serve_full()
    early = early_refusal(full.app, RequestHead(b"POST", path.encode(), [(b"host", b"x")], None))
    assert early is not None
    lines, _, body = early.partition(b"\r\n\r\n")
    ours = dict(line.decode().split(": ", 1) for line in lines.split(b"\r\n"))
    # A request with an Origin is left to the app.
    by_app = httpx.post(f"{full.url}{path}", content=b"x", headers={"Origin": "null"}, timeout=PATIENCE)
    assert by_app.status_code == 503
    own = {"date", "server", "x-request-id"}
    assert {n: v for n, v in ours.items() if n not in own} == {
        n: v for n, v in by_app.headers.items() if n not in own
    }
    assert body == by_app.content


def test_clients_of_the_protocol_v2_read_its_errors(serve_full: Callable[..., Full]) -> None:
    url = f"{serve_full().url}/v2/models/any/infer"
    answer = httpx.post(url, content=b"x", timeout=PATIENCE)
    assert answer.status_code == 503
    assert answer.json() == {"error": "1 requests are already in progress; try again later"}


def test_the_body_is_neither_kept_nor_decoded(
    serve_full: Callable[..., Full], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = serve_full()
    kept: list[int] = []
    monkeypatch.setattr(decoding, "photo_from_file", lambda *_: kept.append(1))
    with full.connect() as connection, connection.makefile("rb") as stream:
        # A client that reads nothing before it has sent all: more than the sockets hold.
        connection.sendall(_head(_LARGE) + bytes(_LARGE))
        assert _read(stream)[0].startswith(b"HTTP/1.1 503 ")
        connection.sendall(b"POST /v1/detect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert _read(stream)[0].startswith(b"HTTP/1.1 503 ")
        connection.sendall(b"5\r\nhello\r\n0\r\n\r\n" + _ALIVE)
        assert _read(stream)[0].startswith(b"HTTP/1.1 200 ")
    assert kept == []


def test_requests_that_come_at_once_are_answered_in_turn(serve_full: Callable[..., Full]) -> None:
    full = serve_full()
    with full.connect() as connection, connection.makefile("rb") as stream:
        refused = _head(3) + b"abc"
        connection.sendall(refused + _ALIVE + refused + refused + _ALIVE)
        statuses = [_read(stream)[0].split()[1] for _ in range(5)]
    assert statuses == [b"503", b"200", b"503", b"503", b"200"]


def test_who_waits_for_leave_to_send_is_told_to_go(serve_full: Callable[..., Full]) -> None:
    full = serve_full()
    with full.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(_head(3, "Expect: 100-continue"))
        status, headers, _ = _read(stream)
        assert status.startswith(b"HTTP/1.1 503 ")
        assert headers[b"connection"] == b"close"
        assert stream.read() == b""


def test_a_body_that_does_not_come_ends_the_connection(serve_full: Callable[..., Full]) -> None:
    full = serve_full(Patience(10, 0.2, 60))
    with full.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(_head(3))
        assert _read(stream)[0].startswith(b"HTTP/1.1 503 ")
        with contextlib.suppress(ConnectionResetError):
            assert stream.read() == b""


def test_the_rest_of_a_body_has_its_own_time(serve_full: Callable[..., Full]) -> None:
    full = serve_full(Patience(0.3, 30, 60))
    with full.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(_head(3))
        assert _read(stream)[0].startswith(b"HTTP/1.1 503 ")
        threading.Event().wait(0.8)  # more than a head has
        connection.sendall(b"abc" + _ALIVE)
        assert _read(stream)[0].startswith(b"HTTP/1.1 200 ")


def test_a_defect_here_leaves_the_answer_to_the_app(
    serve_full: Callable[..., Full], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = serve_full()

    def fail(headers: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(early_refusals, "request_ids", fail)
    answer = httpx.post(f"{full.url}/v1/detect", content=b"x", timeout=PATIENCE)
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a defect"]


def test_an_idle_connection_is_not_taken_for_a_slow_one(serve_full: Callable[..., Full]) -> None:
    full = serve_full(Patience(0.2, 0.2, 60))
    with full.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(_head(3) + b"abc")
        assert _read(stream)[0].startswith(b"HTTP/1.1 503 ")
        threading.Event().wait(0.5)
        connection.sendall(_ALIVE)
        assert _read(stream)[0].startswith(b"HTTP/1.1 200 ")


def test_refusals_are_counted_and_logged(
    serve_full: Callable[..., Full], caplog: pytest.LogCaptureFixture
) -> None:
    full = serve_full()
    with caplog.at_level(logging.INFO, "lensbox.serve.access"):
        httpx.post(f"{full.url}/v1/detect?a=b", content=b"x", headers={"X-Request-ID": "r"}, timeout=PATIENCE)
    line = next(record.getMessage() for record in caplog.records if " 503 " in record.getMessage())
    assert line.startswith("POST /v1/detect 503 ")
    assert line.endswith(" r")
    exposed = httpx.get(f"{full.url}/metrics", timeout=PATIENCE).text
    assert 'lensbox_requests_total{route="/v1/detect",status="503"} 1.0' in exposed


def test_keys_are_looked_at_once_there_is_room(
    serve_full: Callable[..., Full], tmp_path: Path, fake: Any, wait_until: Callable[..., None]
) -> None:
    (tmp_path / "keys").write_text(f"somebody {_KEY}\n")
    full = serve_full(key=_KEY, api_keys_file=tmp_path / "keys")

    def status() -> int:
        return httpx.post(f"{full.url}/v1/detect", content=b"x", timeout=PATIENCE).status_code

    assert status() == 503
    fake.gate.set()
    wait_until(lambda: full.app.state.service.in_progress == 0)
    assert status() == 401


def test_all_else_is_left_to_the_app(serve_full: Callable[..., Full]) -> None:
    full = serve_full()
    assert httpx.get(f"{full.url}/v1/detect", timeout=PATIENCE).status_code == 405
    assert httpx.post(f"{full.url}/nothing", timeout=PATIENCE).status_code == 404
    bad = {"X-Request-Timeout-Ms": "soon"}
    assert httpx.post(f"{full.url}/v1/loss", json={}, headers=bad, timeout=PATIENCE).status_code == 422
    with full.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(_head(1, "Connection: close") + b"x")
        status, headers, _ = _read(stream)
        assert (status.split()[1], headers[b"connection"]) == (b"503", b"close")
        assert stream.read() == b""
