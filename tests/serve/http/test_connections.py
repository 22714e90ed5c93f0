"""Limits of connections: heads and trailers without end, silence."""

import contextlib
import socket
from itertools import chain, repeat
from typing import Any

import pytest
from services import Running, Start, connect
from waiting import wait_until

from lensbox.serve.http import connections

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
        (_CHUNKED + b"0\r\n", b"A: b\r\n" * 100, b""),
        (_CHUNKED + b"1;a=", b"a" * 1000, b""),
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
    """Shorten the timeout."""
    monkeypatch.setattr(connections, "HEAD_TIMEOUT", 0.3)


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
