"""Limits of connections, in front of uvicorn's protocol: heads, trailers, silence, half-closed sockets.

A `Connection` passes asyncio's calls on to uvicorn's protocol, and counts bytes, because uvicorn's parser
keeps any number of headers and trailers.
"""

import asyncio
import errno
import logging
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lensbox.serve.http.answers import error_response

_log = logging.getLogger(__name__)

LARGEST_HEAD = 65_536  # bytes of a request line with its headers, and of trailers
HEAD_TIMEOUT = 10.0  # seconds for a head; looked at once in this time
_DISCARDING = 1.0  # seconds in which a refused client may still send, and reads the answer
# A client that closes its sending half waits for its answer or is gone: the server cannot tell. The answer to
# a request with `Connection: close` is sent whenever it is ready, any other answer within this time.
HALF_CLOSED_TIMEOUT = 1.0
_WARN_AGAIN = 60.0  # seconds
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_STATE = "lensbox.connection"  # key of the ASGI state


class Connections:
    """Make the connections of one app. open: their number."""

    def __init__(self) -> None:
        self.open = 0

    def __call__(
        self, config: Any, server_state: Any, app_state: dict[str, Any], **more: Any
    ) -> "Connection":
        """Return a protocol for uvicorn, which passes the arguments of its own protocols."""
        connection = Connection(self)
        connection.inner = HttpToolsProtocol(config, server_state, {**app_state, _STATE: connection}, **more)
        return connection


def counted(app: ASGIApp) -> ASGIApp:
    """Wrap an app, so that each connection knows when a request begins and when its answer is complete."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        connection: Connection = scope["state"][_STATE]
        try:
            await app(scope, connection.begin(scope, receive), send)
        finally:
            connection.requests -= 1

    return call


class Connection(asyncio.Protocol):
    """One connection. inner: uvicorn's protocol. requests: requests without a complete answer.

    A client may send `LARGEST_HEAD` bytes, and what arrives with the last of them, until a request begins;
    then as many more as `Content-Length` says. Each piece of a chunked body that the app reads renews these
    bytes. A connection that sends more, or no whole head within `HEAD_TIMEOUT`, is closed. uvicorn itself
    closes a connection that is idle after an answer.
    """

    inner: HttpToolsProtocol
    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, connections: Connections) -> None:
        self.requests = 0
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._left = LARGEST_HEAD  # bytes
        self._is_first = True  # no request has begun
        self._is_refused = self._is_last = False
        self._head_began: float | None = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connections.open += 1
        self._transport = cast(asyncio.Transport, transport)  # not an instance, with other event loops
        self._timer = self._loop.call_later(HEAD_TIMEOUT, self._check_head)
        self.inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            self._refuse()
            return
        self._left -= len(data)
        if not self.requests and self._head_began is None:
            self._head_began = self._loop.time()
        self.inner.data_received(data)

    def eof_received(self) -> bool:
        """Return True to keep the connection for an answer. With TLS, asyncio always closes it."""
        if not self.requests or self._transport.get_extra_info("sslcontext") is not None:
            return False
        if not self._is_last:
            self._loop.call_later(HALF_CLOSED_TIMEOUT, self._transport.close)
        return True

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.open -= 1
        self._timer.cancel()
        self.inner.connection_lost(exc)

    def begin(self, scope: Scope, receive: Receive) -> Receive:
        """Begin a request. Return the function with which the app receives the request's body."""
        self.requests += 1
        self._is_first, self._head_began = False, None
        headers = dict(scope["headers"])
        self._is_last = headers.get(b"connection", b"").lower() == b"close"
        length = headers.get(b"content-length", b"0")
        self._left = LARGEST_HEAD + int(length)  # uvicorn has checked that the value is a number
        if length != b"0":
            return receive

        async def receive_chunk() -> Message:
            message = await receive()
            self._left = LARGEST_HEAD
            return message

        return receive_chunk

    def _check_head(self) -> None:
        now = self._loop.time()
        if self._head_began is not None and now - self._head_began >= HEAD_TIMEOUT:
            self._transport.close()
        else:
            self._timer = self._loop.call_later(HEAD_TIMEOUT, self._check_head)

    def _refuse(self) -> None:
        """Answer a first head with 431, and close. Discard the rest: a reset could overtake an answer."""
        if self._is_refused:
            return
        self._is_refused = True
        if self._is_first:
            self._transport.write(_TOO_LARGE)
        if self._transport.can_write_eof() and not self.requests:
            self._transport.write_eof()
            self._loop.call_later(_DISCARDING, self._transport.close)
        else:
            self._transport.close()


def _too_large() -> bytes:
    """Return the answer to a head that is too large."""
    rule = f"the request line and the headers must have at most {LARGEST_HEAD} bytes, got more"
    answer = error_response("", 431, "head_too_large", rule, {"Connection": "close"})
    lines = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
    return b"HTTP/1.1 431 Request Header Fields Too Large\r\n%b\r\n%b" % (lines, bytes(answer.body))


_TOO_LARGE = _too_large()


class ExhaustionLog:
    """An exception handler of an event loop that logs one line while no connection can be accepted.

    asyncio reports each attempt, up to a thousand a second. It pauses accepting for a second by itself.
    """

    def __init__(self) -> None:
        self._warned = -_WARN_AGAIN

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "socket" not in context or not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif loop.time() - self._warned >= _WARN_AGAIN:
            self._warned = loop.time()
            _log.warning("no connection can be accepted for now: %s", error.strerror)
