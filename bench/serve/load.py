"""The client that loads a service: a process of its own, which imports nothing but the standard library.

usage: python -m lensbox.bench.serve.load < question > answers, both JSON: see `Load` and `Answers`.

Closed loop: each connection asks again once it is answered. Open loop: requests leave at a fixed rate,
whether or not earlier ones are answered, as those of many independent clients do, and are timed from the
moment at which they were due. One that this process is late for is not sent: its own slowness is not the
service's.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

_MOST_LATE = 0.1  # seconds


@dataclass
class Load:
    """What to send, and how.

    body: a file. headers: further lines of the request's head. connections: of the closed loop, or the most
    of the open one. rate: requests a second in the open loop; None is the closed loop. seconds: how long;
    what is answered in the first `warm_seconds` is not counted, nor what comes after the end. most: requests
    after which the closed loop ends instead, and which are all counted.
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
    """statuses: how often each came; "failed" for a connection that broke, "unsent" for requests for which no
    connection was left, or no time. seconds: those of the answers with 200. duration: of the time that was
    counted. total: all answers, counted or not."""

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
    """Below asyncio's streams, which would take a core of their own for some thousand answers a second."""

    def __init__(self, load: Load, request: bytes) -> None:
        self._load = load
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[str] | None = None

    async def ask(self) -> str:
        """The status of one answer. Connects where no connection is open."""
        loop = asyncio.get_running_loop()
        self._received.clear()
        self._answer = loop.create_future()
        try:
            if self._transport is None:
                self._transport, _ = await loop.create_connection(
                    lambda: self, self._load.host, self._load.port
                )
            self._transport.write(self._request)
            return await self._answer
        except (OSError, ValueError):
            self.close()
            return "failed"

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 or self._answer is None or self._answer.done():
            return
        head = bytes(self._received[: end + 2]).lower()
        _, _, length = head.partition(b"\r\ncontent-length:")
        try:
            size = int(length.partition(b"\r\n")[0])
        except ValueError as error:
            self._answer.set_exception(error)
            return
        if len(self._received) < end + 4 + size:
            return
        if b"connection: close" in head:
            self.close()
        self._answer.set_result(head[9:12].decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError())

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = None


async def run(load: Load) -> Answers:
    """Sends the load and waits for the last answers."""
    body = Path(load.body).read_bytes()
    head = [f"POST {load.path} HTTP/1.1", f"Host: {load.host}", f"Content-Length: {len(body)}", *load.headers]
    request = "\r\n".join([*head, "", ""]).encode() + body
    started = time.perf_counter()
    end = started + load.seconds
    record = _Record(started + load.warm_seconds, end)
    connections = [_Connection(load, request) for _ in range(load.connections)]
    if load.rate is None:
        await _closed(load, connections, record, end)
    else:
        await _open(load, connections, record, end)
    for connection in connections:
        connection.close()
    duration = min(end, time.perf_counter()) - record.begin
    return Answers(dict(record.statuses), record.seconds, duration, record.total)


async def _closed(load: Load, connections: list[_Connection], record: _Record, end: float) -> None:
    asked_so_far = 0

    async def repeat(connection: _Connection) -> None:
        nonlocal asked_so_far
        while (asked := time.perf_counter()) < end and (load.most is None or asked_so_far < load.most):
            asked_so_far += 1
            status = await connection.ask()
            record.add(status, asked)
            if status == "failed":
                await asyncio.sleep(0.01)

    await asyncio.gather(*map(repeat, connections))


async def _open(load: Load, idle: list[_Connection], record: _Record, end: float) -> None:
    assert load.rate is not None
    free = list(idle)
    running: set[asyncio.Task[None]] = set()

    async def ask(connection: _Connection, due: float) -> None:
        record.add(await connection.ask(), due)
        free.append(connection)

    due = time.perf_counter()
    while due < end:
        # Also when this process is late: answers are to be read.
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        if free and time.perf_counter() < due + _MOST_LATE:
            task = asyncio.ensure_future(ask(free.pop(), due))
            running.add(task)
            task.add_done_callback(running.discard)
        else:
            record.add("unsent", due)
        due += 1 / load.rate
    await asyncio.gather(*running)


def main() -> None:
    """Reads a `Load` and writes its `Answers`."""
    load = Load(**json.load(sys.stdin))
    with contextlib.suppress(KeyboardInterrupt):
        json.dump(asdict(asyncio.run(run(load))), sys.stdout)


if __name__ == "__main__":
    main()
