"""A limit of heads and trailers, of which uvicorn's parser keeps any number, and of the time for a head."""

import asyncio
from typing import Any, cast

from starlette.types import Message, Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 65_536  # bytes of a request line with its headers, and of trailers
HEAD_TIMEOUT = 10.0  # seconds for a head; looked at once in this time
_DISCARDING = 1.0  # seconds in which a refused client may still send, and reads the answer
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
STATE = "lensbox.connection"  # key of the ASGI state


class Connection(asyncio.Protocol):
    """Count the bytes of a connection, and pass asyncio's calls on to uvicorn's protocol.

    A client may send `LARGEST_HEAD` bytes, and what arrives with the last of them, until a request begins;
    then as many more as `Content-Length` says. Each piece of a chunked body that the app reads renews these
    bytes. A connection that sends more, or no whole head within `HEAD_TIMEOUT`, is closed. uvicorn itself
    closes a connection that is idle after an answer.
    """

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], **more: Any) -> None:
        """Take the arguments of uvicorn's own protocols."""
        self.inner = HttpToolsProtocol(config, server_state, {**app_state, STATE: self}, **more)
        self.requests = 0  # without a complete answer
        self._loop = asyncio.get_running_loop()
        self._left = LARGEST_HEAD  # bytes
        self._is_refused = False
        self._head_began: float | None = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # not an instance, with other event loops
        self._timer = self._loop.call_later(HEAD_TIMEOUT, self._check_head)
        self.inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            if not self._is_refused:
                self._is_refused = True
                self._transport.write(b"" if self.requests else _TOO_LARGE)
                self._loop.call_later(_DISCARDING, self._transport.close)
            return  # discard more: a reset could overtake the answer
        self._left -= len(data)
        if not self.requests and self._head_began is None:
            self._head_began = self._loop.time()
        self.inner.data_received(data)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self.inner.connection_lost(exc)

    def begin(self, scope: Scope, receive: Receive) -> Receive:
        """Begin a request. Return the function with which the app receives the request's body."""
        self.requests += 1
        self._head_began = None
        length = dict(scope["headers"]).get(b"content-length", b"0")
        self._left = LARGEST_HEAD + int(length)  # uvicorn has checked that the value is a number
        if length != b"0":
            return receive

        async def receive_chunk() -> Message:
            message = await receive()
            self._left = LARGEST_HEAD
            return message

        return receive_chunk

    def _check_head(self) -> None:
        if self._head_began is not None and self._loop.time() - self._head_began >= HEAD_TIMEOUT:
            self._transport.close()
        else:
            self._timer = self._loop.call_later(HEAD_TIMEOUT, self._check_head)
