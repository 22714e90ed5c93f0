"""The client that loads a service, as a process that imports the standard library alone.

usage: python -m lensbox.bench.serve.load < load > answers, both JSON: see `Load` and `Answers`.

Closed loop: each connection sends again once it is answered. Open loop: requests leave at a fixed rate,
whether or not earlier ones are answered, and are timed from the moment at which they were due. A request for
which this process is late is not sent: its own slowness is not the service's.

No request has a task or a future: a sender that shares its cores with the service must use little CPU time.
"""

import asyncio
import contextlib
import json
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

_MOST_LATE = 0.1  # seconds
_PAUSE = 0.01  # seconds after which the closed loop tries a broken connection again
_LAST_ANSWERS = 60.0  # seconds that are waited for answers after the end
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)


@dataclass
class Load:
    """The requests to send.

    body: a file. headers: further lines of the request's head. connections: of the closed loop, or the most
    of the open one. rate: requests per second in the open loop; None is the closed loop. seconds: duration;
    answers of the first `warm_seconds` and after the end are not counted. most: number of requests after
    which the closed loop ends.
    """

    host: str
    port: int
    path: str
    body: str
    headers: list[str]
    connections: int
    seconds: float
    warm_seconds: float = 0.0
    rate: float | None = None
    most: int | None = None


@dataclass
class Answers:
    """The answers to a load.

    statuses: count of each; "failed": the connection broke, "unsent": no connection was free, or the sender
    was late. seconds: latencies of the answers with 200. duration: of the counted time. total: all answers,
    counted or not.
    """

    statuses: dict[str, int]
    seconds: list[float]
    duration: float
    total: int = 0


@dataclass
class _Record:
    begin: float
    end: float
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    total: int = 0

    def add(self, status: str, asked: float) -> None:
        now = time.perf_counter()
        self.total += status != "unsent"
        if not self.begin <= now <= self.end:
            return
        self.statuses[status] += 1
        if status == "200":
            self.seconds.append(now - asked)


class _Connection(asyncio.Protocol):
    """One request at a time. on_answer: called with the status of an answer and the time of its request."""

    def __init__(
        self, load: Load, request: bytes, on_answer: Callable[["_Connection", str, float], None]
    ) -> None:
        self._load = load
        self._request = request
        self._on_answer = on_answer
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._asked: float | None = None  # None: nothing is in progress
        self._connecting: asyncio.Task[None] | None = None

    def ask(self, asked: float) -> None:
        """Send the request; connect first if necessary."""
        self._asked = asked
        if self._transport is None:
            self._connecting = asyncio.ensure_future(self._connect())
        else:
            self._transport.write(self._request)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, self._load.host, self._load.port)
        except OSError:
            self._answered("failed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        # Room for a whole request: the rest of a larger one would be copied and sent later.
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(self._request))
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received = received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(received, 0, end + 2)
        if length is None:
            self.close()
            self._answered("failed")
        elif len(received) >= end + 4 + int(length[1]):
            self._received = b""
            if _CLOSE.search(received, 0, end + 2):
                self.close()
            self._answered(received[9:12].decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._received = b""
        self._answered("failed")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.set_protocol(asyncio.Protocol())  # its end is of no interest
            self._transport.close()
        self._transport = None

    def _answered(self, status: str) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            self._on_answer(self, status, asked)


async def run(load: Load) -> Answers:
    """Send the load and wait for the last answers."""
    body = Path(load.body).read_bytes()
    head = [f"POST {load.path} HTTP/1.1", f"Host: {load.host}", f"Content-Length: {len(body)}", *load.headers]
    request = "\r\n".join([*head, "", ""]).encode() + body
    started = time.perf_counter()
    end = started + load.seconds
    record = _Record(started + load.warm_seconds, end)
    if load.rate is None:
        await _closed(load, request, record, end)
    else:
        await _open(load, load.rate, request, record, end)
    duration = min(end, time.perf_counter()) - record.begin
    return Answers(dict(record.statuses), record.seconds, duration, record.total)


async def _closed(load: Load, request: bytes, record: _Record, end: float) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    asked_so_far = waiting = 0

    def ask(connection: _Connection) -> None:
        nonlocal asked_so_far, waiting
        now = time.perf_counter()
        if now < end and (load.most is None or asked_so_far < load.most):
            asked_so_far += 1
            connection.ask(now)
        else:
            waiting -= 1
            if not waiting and not over.done():
                over.set_result(None)

    def go_on(connection: _Connection, status: str, asked: float) -> None:
        record.add(status, asked)
        if status == "failed":
            loop.call_later(_PAUSE, ask, connection)
        else:
            ask(connection)

    connections = [_Connection(load, request, go_on) for _ in range(load.connections)]
    waiting = len(connections)
    for connection in connections:
        loop.call_soon(ask, connection)
    with contextlib.suppress(asyncio.TimeoutError):  # a service that never answers is left
        await asyncio.wait_for(over, max(0.0, end - time.perf_counter()) + _LAST_ANSWERS)
    for connection in connections:
        connection.close()


async def _open(load: Load, rate: float, request: bytes, record: _Record, end: float) -> None:
    def go_on(connection: _Connection, status: str, asked: float) -> None:
        record.add(status, asked)
        free.append(connection)

    connections = [_Connection(load, request, go_on) for _ in range(load.connections)]
    free = list(connections)
    due = time.perf_counter()
    while due < end:
        # Sleep even if this process is late: answers must be read.
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        now = time.perf_counter()
        while due <= now and due < end:
            if free and now < due + _MOST_LATE:
                free.pop().ask(due)
            else:
                record.add("unsent", due)
            due += 1 / rate
    until = time.perf_counter() + _LAST_ANSWERS
    while len(free) < len(connections) and time.perf_counter() < until:
        await asyncio.sleep(0.01)
    for connection in connections:
        connection.close()


def main() -> None:
    """Read a `Load` from stdin and write its `Answers` to stdout."""
    load = Load(**json.load(sys.stdin))
    with contextlib.suppress(KeyboardInterrupt):
        json.dump(asdict(asyncio.run(run(load))), sys.stdout)


if __name__ == "__main__":
    main()
