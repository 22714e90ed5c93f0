"""Connections without a network: what they write, in which order, whatever comes in one piece."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from lensbox.serve.connections import connection_class
from lensbox.serve.early_protocol import Refusal, RequestHead
from lensbox.serve.slow_clients import Patience

_PATIENT = Patience(60, 60, 60)
_REFUSED = b"content-length: 2\r\n\r\nno"
_HEAD = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"


class _Transport:
    """Keeps what is written. unsent: bytes that the client has not taken."""

    def __init__(self, unsent: int = 0) -> None:
        self.written: list[bytes] = []
        self.aborted = False
        self._unsent = unsent
        self._closing = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = self.aborted = True

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def get_extra_info(self, name: str) -> None:
        return None

    @property
    def statuses(self) -> list[bytes]:
        """Of all answers in their order."""
        return re.findall(rb"HTTP/1\.1 (\d+)", b"".join(self.written))


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of an answer that HEAD does not get."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


def _post(size: int, body: bytes = b"") -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + body


def _refuse_posts(head: RequestHead) -> bytes | None:
    return _REFUSED if head.method == b"POST" else None


def _talk(
    talk: Callable[[Any], Awaitable[None]],
    transport: _Transport,
    refusal: Refusal | None = _refuse_posts,
    patience: Patience = _PATIENT,
) -> _Transport:
    """Lets `talk` say something on a connection, in an event loop."""

    async def run() -> None:
        config = uvicorn.Config(_app, lifespan="off", log_level="critical")
        connection = connection_class(10, patience=patience, refusal=refusal)(config, ServerState(), {})
        connection.connection_made(transport)
        await talk(connection)
        connection.connection_lost(ConnectionResetError())

    asyncio.run(run())
    return transport


def test_an_answer_without_a_body_comes_before_the_refusal_behind_it() -> None:
    async def talk(connection: Any) -> None:
        connection.data_received(_HEAD)
        await asyncio.sleep(0)  # the app answers
        connection.data_received(_post(0))

    assert _talk(talk, _Transport()).statuses == [b"200", b"503"]


def test_a_body_is_not_counted_as_the_head_behind_it() -> None:
    async def talk(connection: Any) -> None:
        connection.data_received(_post(200_000))
        connection.data_received(bytes(200_000) + _HEAD[:9])
        connection.data_received(_HEAD[9:])
        await asyncio.sleep(0.01)

    assert _talk(talk, _Transport()).statuses == [b"503", b"200"]


def test_trailers_are_no_headers() -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        while (await receive()).get("more_body"):
            pass
        await _app(scope, receive, send)

    async def talk(connection: Any) -> None:
        connection.app = app
        connection.data_received(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.data_received(b"1\r\nx\r\n0\r\nX-API-Key: k\r\n\r\n")
        await asyncio.sleep(0.01)

    assert _talk(talk, _Transport()).statuses == [b"200"]
    assert [name for name, _ in scopes[0]["headers"]] == [b"host", b"transfer-encoding"]


def test_a_client_that_takes_no_refusal_of_nonsense_is_given_up() -> None:
    async def talk(connection: Any) -> None:
        connection.data_received(b"nonsense\r\n\r\n")
        await asyncio.sleep(0.5)

    transport = _talk(talk, _Transport(unsent=1000), patience=Patience(60, 60, 0.05))
    assert transport.statuses == [b"400"]
    assert transport.aborted
