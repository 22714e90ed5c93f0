"""Connections without a network: what they write, in which order, whatever comes in one piece."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
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

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

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


_OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
_BODIES = {
    "length": (b"Content-Length: 5\r\n\r\n", b"hello"),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
    "none": (b"\r\n", b""),
}


@pytest.mark.parametrize("step", [1, 40, 1 << 20])
@pytest.mark.parametrize("kind", _BODIES)
def test_offers_of_another_protocol_are_left_alone(kind: str, step: int) -> None:
    """As Java's HttpClient makes them. step: bytes that come at once."""
    received: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        received.append(body)
        await _app(scope, receive, send)

    head, body = _BODIES[kind]
    requests = (b"PUT / HTTP/1.1\r\nHost: x\r\n" + _OFFER + head + body) * 3 + _HEAD

    async def talk(connection: Any) -> None:
        connection.app = app
        for begin in range(0, len(requests), step):
            connection.data_received(requests[begin : begin + step])
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)

    assert _talk(talk, _Transport()).statuses == [b"200"] * 4
    assert received == [b"hello" if body else b""] * 3 + [b""]


def test_requests_with_an_offer_are_refused_as_others() -> None:
    async def talk(connection: Any) -> None:
        request = b"POST / HTTP/1.1\r\nHost: x\r\n" + _OFFER + b"Content-Length: 5\r\n\r\nhello"
        connection.data_received(request * 2 + _HEAD)
        await asyncio.sleep(0.05)

    assert _talk(talk, _Transport()).statuses == [b"503", b"503", b"200"]


def test_nobody_connects_to_elsewhere() -> None:
    async def talk(connection: Any) -> None:
        connection.data_received(b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")

    assert _talk(talk, _Transport()).statuses == [b"400"]


def test_a_client_that_takes_no_refusal_of_nonsense_is_given_up() -> None:
    async def talk(connection: Any) -> None:
        connection.data_received(b"nonsense\r\n\r\n")
        await asyncio.sleep(0.5)

    transport = _talk(talk, _Transport(unsent=1000), patience=Patience(60, 60, 0.05))
    assert transport.statuses == [b"400"]
    assert transport.aborted
