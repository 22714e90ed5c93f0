"""An answer's head and body leave together, whatever an application writes, and nothing stays behind."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn

from lensbox.serve.connections import connection_class

PATIENCE = 60.0
_LARGE = 3 << 20


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Answers as its path says."""
    path = scope["path"]
    start = {"type": "http.response.start", "status": 200}
    if path == "/asked":
        await receive()
    if path == "/pieces":
        await send({**start, "headers": []})
        for piece in (b"one", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})
        return
    body = {"/large": bytes(_LARGE), "/empty": b""}.get(path, b"hello")
    headers = [(b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] if path == "/close" else []
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def connection(url_of_server: Callable[[uvicorn.Config], str]) -> socket.socket:
    config = uvicorn.Config(_app, lifespan="off", http=connection_class(10), log_level="critical")
    host, port = url_of_server(config).removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def _ask(connection: socket.socket, path: str, method: str = "GET", more: str = "") -> None:
    connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())


def test_head_and_body_come_in_one_piece(connection: socket.socket) -> None:
    with connection:
        for _ in range(50):
            _ask(connection, "/")
            assert connection.recv(4096).endswith(b"\r\n\r\nhello")


def test_every_kind_of_answer_comes_whole(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as stream:

        def head() -> bytes:
            return b"".join(iter(stream.readline, b"\r\n"))

        for _ in range(2):
            _ask(connection, "/", "HEAD")
            assert b"content-length: 5" in head()
            _ask(connection, "/empty")
            assert b"content-length: 0" in head()
            _ask(connection, "/pieces")
            assert b"chunked" in head()
            assert stream.read(21) == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
            _ask(connection, "/large")
            head()
            assert stream.read(_LARGE) == bytes(_LARGE)
            _ask(connection, "/asked", "POST", "Expect: 100-continue\r\nContent-Length: 1\r\n")
            assert head() == b"HTTP/1.1 100 Continue\r\n"
            connection.sendall(b"x")
            head()
            assert stream.read(5) == b"hello"
        _ask(connection, "/close")
        assert b"connection: close" in head()
        assert stream.read() == b"hello"
