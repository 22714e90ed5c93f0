"""HTTP/1.1 on one connection: httptools parses requests, the app answers one after the other.

An own protocol instead of uvicorn's: on httptools, uvicorn counts trailers as headers and drops the body of a
request to upgrade; on h11, it takes two to three times the CPU time. Both give no answer to a client that has
shut its half down, never close a silent connection, and read on after the answer to half a body.
"""

import asyncio
import contextlib
import socket
import time
import urllib.parse
from collections import deque
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import cast

import httptools
from starlette.types import ASGIApp, Message, Scope

from lensbox.serve.errors import ApiError
from lensbox.serve.http.answers import STATE, error_response

LARGEST_HEAD = 65_536  # bytes of a request line with its headers, of trailers, of a chunk's extensions
HEAD_TIMEOUT = 10.0  # seconds for a head
STALL_TIMEOUT = 10.0  # seconds in which a client that does not read must take something
_SMALL_BODY = 262_144  # bytes of a body that is read to its end after the request was refused
_REST = 0.5  # seconds for the rest of such a body
_DISCARDING = 2.0  # seconds in which a refused client may still send, and reads the answer
_LAST_HEAD = 0.2  # seconds for a request that is on its way when the service shuts down
_READ_AHEAD = 65_536  # bytes of a body that wait for the app
_PROBE = 0.2  # seconds from the end of a client's half to a look whether the client is gone
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TCP_CLOSED = 7  # Linux' state of a connection that was reset


class Exchange:
    """A request and its answer.

    is_whole: the body has arrived. keeps: the client lets the connection open. sent: the answer has begun.
    """

    def __init__(self, connection: "Connection", scope: Scope, keeps: bool) -> None:
        self._connection = connection
        self.scope = scope
        self.keeps = keeps
        self.is_whole = self.sent = self.is_done = self._is_read = False
        self.expects_continue = False
        self.body = b""
        self.changed = asyncio.Event()

    async def receive(self) -> Message:
        """Return the next part of the body, as ASGI says; a disconnect if there will be none."""
        connection = self._connection
        if self.expects_continue and not (self.is_whole or self.sent):
            self.expects_continue = False
            connection.write(_CONTINUE)
        while not (self.body or self.is_whole != self._is_read or connection.is_lost or self.is_done):
            if connection.is_broken and not self.is_whole:
                break
            self.changed.clear()
            connection.resume_reading()
            await self.changed.wait()
        if self._is_read or not (self.body or self.is_whole):
            return {"type": "http.disconnect"}
        body, self.body, self._is_read = self.body, b"", self.is_whole
        return {"type": "http.request", "body": body, "more_body": not self._is_read}

    async def send(self, message: Message) -> None:
        """Write a part of the answer; wait while the client does not read."""
        connection = self._connection
        if message["type"] == "http.response.start":
            if not (self.is_whole or self.expects_continue):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._discard(), _REST)
            self.sent = True
            is_last = connection.is_ending and connection.exchanges[-1] is self
            self.keeps = self.keeps and self.is_whole and not is_last
            connection.write(self._head(message["status"], message["headers"]))
            return
        if self.scope["method"] != "HEAD" and (body := message.get("body")):
            connection.write(body)
        if message.get("more_body"):
            await connection.writable.wait()
        else:
            self.is_done = True

    async def _discard(self) -> None:
        """Read the rest of a small body, which lets the connection stay open."""
        received = 0
        length = next((int(value) for name, value in self.scope["headers"] if name == b"content-length"), 0)
        while length <= _SMALL_BODY and received <= _SMALL_BODY and not self.is_whole:
            message = await self.receive()
            received += len(message.get("body", b""))
            if message["type"] == "http.disconnect":
                break

    def _head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the head of an answer. Without a length, the body ends with the connection."""
        names = dict(headers)
        if b"content-length" not in names or (b"connection", b"close") in headers:
            self.keeps = False
        lines = [_status_line(status), *map(b"%b: %b\r\n".__mod__, headers), _date(int(time.time()))]
        if not self.keeps and b"connection" not in names:
            lines.append(b"connection: close\r\n")
        elif self.keeps and self.scope["http_version"] == "1.0":
            lines.append(b"connection: keep-alive\r\n")
        return b"".join([*lines, b"\r\n"])


class Connection(asyncio.Protocol):
    """A connection. connections: of the server, which calls `look` about once a second. app: answers.

    is_lost: nobody reads the answers. is_broken: no further request can be read. fault: what is answered to a
    client that has broken HTTP's rules. is_ending: the current answer is the last one. writable: set while
    the client takes what is written.
    """

    def __init__(self, app: ASGIApp, connections: "set[Connection]", keep_alive: float) -> None:
        self._app = app
        self._connections = connections
        self._keep_alive = keep_alive
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.exchanges: deque[Exchange] = deque()  # the first one is being answered
        self._task: asyncio.Task[None] | None = None
        self._arriving: Exchange | None = None
        self._in_head, self._url, self._headers = True, b"", list[tuple[bytes, bytes]]()
        self._unread = 0  # bytes since the parser has last found anything
        self._head_bytes = 0
        self._refusal = b""  # to send after the answers to earlier requests
        self._since = self._loop.time()  # of the beginning of a head, or of idleness
        self._has_head_begun = True
        self._written, self._taken, self._moved = 0, 0, self._since
        self._discards_until = 0.0
        self.is_lost = self.is_broken = self.is_ending = False
        self.fault: ApiError | None = None
        self.writable = asyncio.Event()
        self.writable.set()

    # --- asyncio's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # not an instance, with other event loops
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        addresses = map(transport.get_extra_info, ("sockname", "peername"))
        # None: the client has reset the connection.
        self._addresses = [("", 0) if address is None else tuple(address[:2]) for address in addresses]
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self.is_broken or self.transport.is_closing():
            return  # discard: a reset could overtake the answer
        if self._in_head and not self._has_head_begun:
            self._has_head_begun, self._since = True, self._loop.time()
        self._unread += len(data)
        reason = ""
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            reason = str(error.__context__ or error)
        if max(self._unread, self._head_bytes) > LARGEST_HEAD:
            rule = f"a head, trailers or a chunk's extensions must have at most {LARGEST_HEAD} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"{rule}, got more")
        elif reason:
            self._refuse(HTTPStatus.BAD_REQUEST, f"the request must be valid HTTP/1.1: {reason}")
        if self.exchanges and self._task is None:
            self._task = self._loop.create_task(self._answer(self.exchanges[0]))

    def eof_received(self) -> bool:
        """Answer whole requests of a client that sends nothing more."""
        self.is_ending = self.is_broken = True
        if self._is_tls or not self.exchanges or self._arriving is not None:
            return False
        self._loop.call_later(_PROBE, self._probe, True)
        return True

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._connections.discard(self)
        self.writable.set()
        for exchange in self.exchanges:
            exchange.changed.set()
        self.cancel()

    # --- httptools' calls ---

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else a trailer
            self._headers.append((name.lower(), value))
            self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        if self._arriving is not None:  # again, for the body of a request to upgrade
            return
        if self._head_bytes > LARGEST_HEAD:
            raise ValueError("the head is too large")
        url, headers = httptools.parse_url(self._url), self._headers
        raw_path = url.path or b"/"  # http://host has no path
        path = raw_path.decode("ascii")
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ValueError(f"the version must be 1.0 or 1.1, got {version}")
        if version == "1.1" and (hosts := [name for name, _ in headers].count(b"host")) != 1:
            raise ValueError(f"there must be one header Host, got {hosts}")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "scheme": "https" if self._is_tls else "http",
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": headers,
            "server": self._addresses[0],
            "client": self._addresses[1],
            "state": {},
            STATE: self,
        }
        exchange = Exchange(self, scope, self._parser.should_keep_alive())
        is_asked = dict(headers).get(b"expect", b"").lower() == b"100-continue"
        exchange.expects_continue = is_asked and version == "1.1"
        self._in_head, self._unread = False, 0
        self._arriving = exchange
        self.exchanges.append(exchange)
        if len(self.exchanges) > 1:
            self.transport.pause_reading()  # the client sends before it is answered

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        if (exchange := self._arriving) is not None:
            if not exchange.is_done:  # else nobody reads it
                exchange.body = exchange.body + body if exchange.body else body
                exchange.changed.set()
            if len(exchange.body) > _READ_AHEAD and not exchange.is_done:
                self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade() or self._arriving is None:
            return  # the body is still to come: see `_feed`
        self._arriving.is_whole = True
        self._arriving.changed.set()
        self._arriving = None
        self._in_head, self._url, self._headers = True, b"", []
        self._unread = self._head_bytes = 0
        self._has_head_begun = False

    # --- requests ---

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = httptools.HttpRequestParser(self)
            head = [b"POST / HTTP/1.1\r\n"]
            framing = (b"content-length", b"transfer-encoding")
            head += [b"%b: %b\r\n" % header for header in self._headers if header[0] in framing]
            self._feed(b"".join([*head, b"\r\n", data[upgrade.args[0] :]]))

    async def _answer(self, exchange: Exchange) -> None:
        """Let the app answer a request; then begin the next one, or end the connection."""
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        finally:
            self._task = None
            self.exchanges.popleft()
        if self.is_lost:
            return
        if not exchange.is_done or not exchange.keeps:
            self.exchanges.clear()
            self._end(waits=not exchange.is_whole)
        elif self.exchanges:
            self._task = self._loop.create_task(self._answer(self.exchanges[0]))
        elif self._refusal or self.is_ending:
            self._end(waits=bool(self._refusal))
        else:
            self._since = self._loop.time()
            self.resume_reading()

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        """Answer what cannot be read, after the answers to earlier requests.

        The app answers a request whose body is at fault.
        """
        self.is_broken, self.fault = True, ApiError(status, "malformed_request", reason)
        if self._arriving is None:
            answer = error_response("", self.fault)
            headers = map(b"%b: %b\r\n".__mod__, [*answer.raw_headers, (b"connection", b"close")])
            self._refusal = b"".join([_status_line(status), *headers, b"\r\n", answer.body])
        else:
            self._arriving.changed.set()
        if not self.exchanges:
            self._end(waits=True)

    def _end(self, waits: bool) -> None:
        """End the connection once all is sent. waits: read on for a while, as the client may still send."""
        self.is_broken = True
        self.write(self._refusal)
        if not waits:
            self.transport.close()
            return
        self.resume_reading()
        self._discards_until = self._loop.time() + _DISCARDING
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def write(self, data: bytes) -> None:
        """Write, unless nobody reads."""
        if data and not self.transport.is_closing():
            self._written += len(data)
            self.transport.write(data)

    def resume_reading(self) -> None:
        """Read again, after too much has been read."""
        with contextlib.suppress(RuntimeError):  # closing
            self.transport.resume_reading()

    # --- the server's calls ---

    def look(self, now: float) -> None:
        """End a connection that is idle, silent or stalled for too long."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting or self._written - waiting != self._taken:
            self._taken, self._moved = self._written - waiting, now
        limit = HEAD_TIMEOUT if self._has_head_begun else self._keep_alive
        if now - self._moved > STALL_TIMEOUT:
            self.transport.abort()
        elif (self._discards_until and now > self._discards_until) or (
            not self.exchanges and not self._discards_until and now - self._since > limit
        ):
            self.transport.close()

    def end_soon(self) -> None:
        """End the connection once the current request, or one that is on its way, is answered."""
        self.is_ending = True
        self._loop.call_later(_LAST_HEAD, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if not self.exchanges and not self._discards_until:
            self.transport.close()

    def cancel(self) -> None:
        """Cancel the request that is being answered."""
        if self._task is not None:
            self._task.cancel()

    def _probe(self, is_first: bool) -> None:
        """Find out whether a client that has ended its half still reads: a reset follows what nobody reads.

        A client ignores interim answers that it has not asked for.
        """
        if self.is_lost or not self.exchanges or self.exchanges[0].scope["http_version"] != "1.1":
            return
        raw = self.transport.get_extra_info("socket")
        if raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSED:
            self.transport.abort()
            return
        if is_first and not self.exchanges[0].sent:
            self.write(_CONTINUE)
        self._loop.call_later(_PROBE, self._probe, False)


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()
