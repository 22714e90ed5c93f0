"""Limits of connections: heads and trailers without end, silence."""

import contextlib
import re
import socket
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from services import Running, Start, connect
from waiting import PATIENCE, wait_until

from lensbox.serve.http import connection as module
from lensbox.serve.http import server

_LOSS = b'{"predictions":[],"targets":[]}'
_HEAD = b"POST /v1/loss HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(_LOSS)
_CHUNKED = b"POST /v1/loss HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\n%b\r\n" % _LOSS


def _rest(connection: socket.socket) -> bytes:
    """Return what a service sends until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


@pytest.mark.parametrize(
    ("begin", "more", "answer"),
    [
        (b"GET /", b"a" * 1000, b"HTTP/1.1 431 "),
        (b"GET / HTTP/1.1\r\n", b"A: b\r\n" * 100, b"HTTP/1.1 431 "),
        (_CHUNKED + b"0\r\n", b"A: b\r\n" * 100, b"HTTP/1.1 431 "),
        (_CHUNKED + b"1;a=", b"a" * 1000, b"HTTP/1.1 431 "),
    ],
    ids=["path", "headers", "trailers", "chunk extension"],
)
def test_ends_a_head_or_trailers_without_end(start: Start, begin: bytes, more: bytes, answer: bytes) -> None:
    client = start().client
    with connect(client.base_url) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in chain([begin], repeat(more, 1000)):  # a megabyte
                connection.sendall(piece)
        assert _rest(connection).startswith(answer)
    assert client.get("/livez").status_code == 200


def _ask(connection: socket.socket, request: bytes) -> None:
    """Send a request, and read its answer."""
    connection.sendall(request)
    assert connection.recv(13) == b"HTTP/1.1 200 "
    while connection.recv(1) != b"}":
        pass


def test_takes_heads_trailers_and_chunks_below_the_limit(start: Start) -> None:
    long = b"A: " + b"a" * 60_000 + b"\r\n"
    extensions = b"".join(b"1;%b\r\n \r\n" % (b"a" * 9000) for _ in range(20))
    with connect(start().client.base_url) as connection:
        _ask(connection, _HEAD + long + b"\r\n" + _LOSS)
        _ask(connection, _CHUNKED.replace(b"1f", extensions + b"1f") + b"0\r\n" + long + b"\r\n")
        _ask(connection, _HEAD + b"\r\n" + _LOSS)
        with contextlib.suppress(ConnectionError):
            for piece in chain([b"GET /"], repeat(b"a" * 1000, 1000)):
                connection.sendall(piece)
        assert _rest(connection).startswith(b"HTTP/1.1 431 ")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeouts, and the time between looks."""
    monkeypatch.setattr(module, "HEAD_TIMEOUT", 0.3)
    monkeypatch.setattr(module, "STALL_TIMEOUT", 0.5)
    monkeypatch.setattr(server, "_LOOK", 0.05)


@pytest.mark.parametrize(
    ("sent", "is_later"),
    [(b"", False), (b"GET / HTTP/1.1\r\nHost: x\r\n", False), (b"GET / HT", True)],
)
def test_closes_a_connection_without_a_whole_head(
    start: Start, soon: None, sent: bytes, is_later: bool
) -> None:
    """uvicorn closes a connection that sends nothing after an answer."""
    with connect(start().client.base_url) as connection:
        if is_later:
            _ask(connection, _HEAD + b"\r\n" + _LOSS)
        connection.sendall(sent)
        assert _rest(connection) == b""


def test_waits_for_a_body_and_for_an_answer(start: Start, soon: None, fake: Any) -> None:
    fake.gate.clear()
    running = start()
    with connect(running.client.base_url) as connection:
        connection.sendall(_HEAD + b"\r\n")
        _wait_for_the_timeout(running)
        connection.sendall(_LOSS + b"GET / HT")  # the begin of the next head
        wait_until(lambda: len(fake.calls) == 1)
        _wait_for_the_timeout(running)
        fake.gate.set()
        assert connection.recv(13) == b"HTTP/1.1 200 "


def _wait_for_the_timeout(running: Running) -> None:
    """Wait until another connection has been closed, which has sent nothing."""
    with connect(running.client.base_url) as silent:
        assert _rest(silent) == b""


# --- the end of a connection ---

_CHUNKS = b"".join(b"%x\r\n%b\r\n" % (65_536, bytes(65_536)) for _ in range(48)) + b"0\r\n\r\n"  # 3 MiB


def _statuses(answers: bytes) -> list[bytes]:
    """Return the statuses."""
    return re.findall(rb"HTTP/1\.1 (\d+)", answers)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /v1/detect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"413"),
        (b"POST /v1/detect?a=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"422"),
        (b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"404"),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(_CHUNKS), b"200"),
    ],
)
def test_ends_a_connection_whose_body_was_not_read(start: Start, head: bytes, status: bytes) -> None:
    """Else the rest of the body would be the next request, perhaps of another client of a proxy."""
    with connect(start(max_body_mb=1).client.base_url) as connection:
        connection.sendall(head)
        connection.sendall(_CHUNKS)
        answer = _rest(connection)
        assert _statuses(answer) == [status]
        assert b"connection: close" in answer


def test_answers_requests_that_come_before_their_turn(start: Start) -> None:
    loss = _HEAD + b"\r\n" + _LOSS
    chunked = _CHUNKED + b"0\r\n\r\n"
    parts = [
        loss,
        b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        chunked,
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
        loss,
        b"\0 / HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    for size in (1, 1 << 20):
        with connect(start().client.base_url) as connection:
            sent = b"".join(parts)
            for begin in range(0, len(sent), size):
                connection.sendall(sent[begin : begin + size])
            assert _statuses(_rest(connection)) == [b"200", b"200", b"200", b"404", b"200", b"400"]


@pytest.mark.parametrize(
    "body", [_HEAD + b"%b\r\n" + _LOSS, _CHUNKED.replace(b"\r\n\r\n", b"\r\n%b\r\n", 1) + b"0\r\n\r\n"]
)
def test_a_wish_to_upgrade_keeps_the_body(start: Start, body: bytes) -> None:
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
    request = body % wish
    for pieces in ([request, request], [request[:40], request[40:-5], request[-5:] + request], [request * 2]):
        with connect(start().client.base_url) as connection:
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            assert _statuses(_rest(connection)) == [b"200", b"200"]


def test_a_trailer_is_no_header(start: Start, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("alice-0123456789abcdef")
    with connect(start(api_keys_file=tmp_path / "keys").client.base_url) as connection:
        connection.sendall(_CHUNKED + b"0\r\nAuthorization: Bearer alice-0123456789abcdef\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 401"


def test_answers_a_client_that_has_shut_its_half_down(start: Start, fake: Any) -> None:
    fake.gate.clear()
    running = start()
    with connect(running.client.base_url) as connection:
        connection.sendall(_HEAD + b"\r\n" + _LOSS)
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: len(fake.calls) == 1)
        # An interim answer finds out whether the client still reads.
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        fake.gate.set()
        assert _statuses(_rest(connection)) == [b"200"]


def test_a_client_that_does_not_read_holds_no_place_and_is_cut_off(start: Start, soon: None) -> None:
    running = start()
    with connect(running.client.base_url) as connection:
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection.sendall(_HEAD + b"\r\n" + _LOSS + b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: running.service.in_progress == 0)
        connection.settimeout(PATIENCE)
        wait_until(lambda: _is_reset(connection))
    assert running.client.get("/livez").status_code == 200


def _is_reset(connection: socket.socket) -> bool:
    try:
        connection.send(b"x")
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n", b"400", b"Content-Length"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400", b"one header Host, got 0"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"400", b"one header Host, got 2"),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", b"400", b"got 2.0"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", b"400", b"url"),
        (_CHUNKED + b"zz\r\n", b"400", b"chunk size"),
        (_CHUNKED.replace(b"chunked", b"identity"), b"400", b"Transfer-Encoding"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n", b"431", b"at most 65536 bytes"),
        (_HEAD + b"A: " + b"a" * 100_000 + b"\r\n\r\n" + _LOSS, b"431", b"at most 65536 bytes"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431", b"at most 65536 bytes"),
    ],
)
def test_names_the_fault_of_a_malformed_request(
    start: Start, caplog: pytest.LogCaptureFixture, request_: bytes, status: bytes, reason: bytes
) -> None:
    with connect(start().client.base_url) as connection:
        connection.sendall(request_)
        answer = _rest(connection)
    assert _statuses(answer) == [status]
    assert all(text in answer for text in (b"application/problem+json", b'"malformed_request"', reason))
    assert "Traceback" not in caplog.text


def test_takes_the_absolute_form_of_a_target(start: Start) -> None:
    with connect(start().client.base_url) as connection:
        for target in (b"http://x/livez", b"http://x", b"http://x?a=b"):
            connection.sendall(b"HEAD %b HTTP/1.1\r\nHost: x\r\n\r\n" % target)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_keeps_a_connection_after_a_small_body_that_was_not_read(start: Start) -> None:
    with connect(start().client.base_url) as connection:
        for _ in range(2):
            connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(100):
                connection.sendall(bytes(1000))
            answer = connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 404 ")
            assert b"connection: close" not in answer
