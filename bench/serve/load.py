"""The client that loads a service: a process of its own, which imports nothing but the standard library.

usage: python -m lensbox.bench.serve.load < question > answers, both JSON: see `Load` and `Answers`.

Closed loop: each connection asks again once it is answered. Open loop: requests leave at a fixed rate,
whether or not earlier ones are answered, as those of many independent clients do, and are timed from the
moment at which they were due.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Load:
    """What to send, and how.

    body: a file. headers: further lines of the request's head. connections: of the closed loop, or the most
    of the open one. rate: requests a second in the open loop; None is the closed loop. seconds: how long;
    what is answered in the first `warm_seconds` is not counted.
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


@dataclass
class Answers:
    """statuses: how often each came; "failed" for a connection that broke, "unsent" for requests for which no
    connection was left. seconds: those of the answers with 200. duration: of the time that was counted."""

    statuses: dict[str, int]
    seconds: list[float]
    duration: float


@dataclass
class _Record:
    begin: float
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def add(self, status: str, asked: float) -> None:
        now = time.perf_counter()
        if asked < self.begin:
            return
        self.statuses[status] += 1
        if status == "200":
            self.seconds.append(now - asked)


class _Connection:
    def __init__(self, load: Load, request: bytes) -> None:
        self._load = load
        self._request = request
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self) -> str:
        """The status of one answer. Connects where no connection is open."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._load.host, self._load.port)
            reader, writer = self._streams
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, length = head.partition(b"\r\ncontent-length:")
            await reader.readexactly(int(length.partition(b"\r\n")[0]))
            if b"connection: close" in head:
                self.close()
            return head[9:12].decode()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            self.close()
            return "failed"

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def run(load: Load) -> Answers:
    """Sends the load and waits for the last answers."""
    body = Path(load.body).read_bytes()
    head = [f"POST {load.path} HTTP/1.1", f"Host: {load.host}", f"Content-Length: {len(body)}", *load.headers]
    request = "\r\n".join([*head, "", ""]).encode() + body
    started = time.perf_counter()
    record = _Record(started + load.warm_seconds)
    end = started + load.seconds
    connections = [_Connection(load, request) for _ in range(load.connections)]
    await (_closed(connections, record, end) if load.rate is None else _open(load, connections, record, end))
    for connection in connections:
        connection.close()
    return Answers(dict(record.statuses), record.seconds, max(time.perf_counter(), end) - record.begin)


async def _closed(connections: list[_Connection], record: _Record, end: float) -> None:
    async def repeat(connection: _Connection) -> None:
        while (asked := time.perf_counter()) < end:
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
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        if free:
            task = asyncio.ensure_future(ask(free.pop(), due))
            running.add(task)
            task.add_done_callback(running.discard)
        else:
            record.add("unsent", due)
            await asyncio.sleep(0)
        due += 1 / load.rate
    await asyncio.gather(*running)


def main() -> None:
    """Reads a `Load` and writes its `Answers`."""
    load = Load(**json.load(sys.stdin))
    with contextlib.suppress(KeyboardInterrupt):
        json.dump(asdict(asyncio.run(run(load))), sys.stdout)


if __name__ == "__main__":
    main()
