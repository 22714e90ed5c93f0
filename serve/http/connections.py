"""Limits of connections, in front of uvicorn's protocol: heads, trailers, silence, half-closed sockets.

A `Connection` passes asyncio's calls on to uvicorn's protocol. A second parser of the same library follows
the bytes, because uvicorn's parser keeps any number of headers and trailers.
"""

import asyncio
import errno
import json
import logging
from http import HTTPStatus
from typing import Any

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log = logging.getLogger(__name__)

LARGEST_HEAD = 65_536  # bytes of a request line with its headers, and of trailers
HEAD_TIMEOUT = 10.0  # seconds from a connection, or from the first byte of a later head, to the end of a head
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
    """Wrap an app, so that each connection knows when an answer is complete."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if scope["type"] == "http":
                scope["state"][_STATE].requests -= 1

    return call


class Connection(asyncio.Protocol):
    """One connection. inner: uvicorn's protocol. requests: requests without a complete answer.

    A head above `LARGEST_HEAD` is answered with 431. A connection without a whole head after `HEAD_TIMEOUT`
    is closed. uvicorn itself closes a connection that is idle after an answer.
    """

    inner: HttpToolsProtocol
    _transport: asyncio.Transport

    def __init__(self, connections: Connections) -> None:
        self.requests = 0
        self._connections = connections
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's parser
        self._in_head = self._in_body = self._is_last = self._is_refused = False
        self._calls = 0  # of callbacks, during one piece
        self._completed = False  # a message, during one piece
        self._size = 0  # of headers since the begin of the message, or of trailers
        self._largest = 0  # size of a whole head or whole trailers, during one piece
        self._unparsed = 0  # bytes since the last callback
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connections.open += 1
        self._transport = transport
        self.inner.connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._parser is not None and self._is_too_large(data):
            self._refuse()
            return
        self.inner.data_received(data)

    def eof_received(self) -> bool:
        """Return True to keep the connection for an answer. With TLS, asyncio always closes it."""
        is_tls = self._transport.get_extra_info("sslcontext") is not None
        if is_tls or not self.requests or self._in_body or self._in_head:
            return False
        if not self._is_last:
            asyncio.get_running_loop().call_later(HALF_CLOSED_TIMEOUT, self._transport.close)
        return True

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.open -= 1
        self._stop_waiting()
        self.inner.connection_lost(exc)

    def _is_too_large(self, data: bytes) -> bool:
        """Follow a piece of the stream. Return whether a head or trailers, whole or not, are too large."""
        assert self._parser is not None
        self._calls = self._largest = 0
        self._completed = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._parser = None  # uvicorn's parser raises the same, and keeps nothing from then on
        self._unparsed = 0 if self._calls else self._unparsed + len(data)
        if self._in_body or self._parser is None or (self._completed and not self._in_head):
            self._stop_waiting()
        elif self._timer is None:
            self._wait_for_head()
        return max(self._largest, self._size, self._unparsed) > LARGEST_HEAD

    def _refuse(self) -> None:
        """Answer 431 and close. Discard what the client still sends: a reset could overtake the answer."""
        self._is_refused = True
        self._stop_waiting()
        if self.requests or not self._transport.can_write_eof():
            self._transport.close()  # after trailers, an answer may have begun
            return
        self._transport.write(_TOO_LARGE)
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(HALF_CLOSED_TIMEOUT, self._transport.close)

    def _wait_for_head(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT, self._end_waiting)

    def _end_waiting(self) -> None:
        if self.requests:  # uvicorn reads no further while an answer is due
            self._wait_for_head()
        else:
            self._transport.close()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- callbacks of the parser ---

    def on_message_begin(self) -> None:
        self._calls += 1
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._calls += 1
        self._size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._calls += 1
        self._size += len(name) + len(value) + 4  # ": " and a line break

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self.requests += 1
        self._in_head, self._in_body = False, True
        self._is_last = not self._parser.should_keep_alive()
        self._end_part()

    def on_body(self, _: bytes) -> None:
        self._end_part()

    def on_message_complete(self) -> None:
        self._in_body, self._completed = False, True
        self._end_part()

    def _end_part(self) -> None:
        self._calls += 1
        self._largest = max(self._largest, self._size)
        self._size = 0


def _too_large() -> bytes:
    """Return the answer to a head that is too large, with a problem document."""
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    detail = f"the request line and the headers must have at most {LARGEST_HEAD} bytes, got more"
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    body = json.dumps({**problem, "code": "head_too_large"})
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/problem+json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


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
