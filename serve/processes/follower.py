"""A front end's side of swaps: follow the supervisor's table, and move the reference of each model.

Everything runs in the event loop, as admission does, so a request gets one version, and its version stays
connected until the request has ended.
"""

import asyncio
import contextlib
import itertools
import secrets
import select
import time
from multiprocessing.connection import Connection
from typing import Any

from lensbox.serve.engine.engines import Engine, one_of
from lensbox.serve.errors import NotReadyError
from lensbox.serve.models.control import BEAT, Order, Report, Result, Table
from lensbox.serve.models.served import Models, Served
from lensbox.serve.processes.link import Arena
from lensbox.serve.processes.remote_engine import RemoteEngine

_TICK, _IDLE_TICK = 0.01, 0.1  # seconds between looks: at connections and requests; at the readiness
_FIRST = 5.0  # seconds in which the first connections should be there; they take milliseconds
_STOP_TIMEOUT = 1.0  # seconds


class Follower(Models):
    """The models of a front end.

    slot: name of this front end. control: the pipe to the supervisor. arena_size: bytes of shared memory.
    busy_poll: see `RemoteEngine`.
    """

    def __init__(self, slot: str, control: "Connection[Any, Any]", arena_size: int, busy_poll: float) -> None:
        super().__init__(Served(Engine("the model is still loading")))
        self._slot = slot
        self._control = control
        self._arena = Arena(arena_size)
        self._busy_poll = busy_poll
        self._table = Table(0, ())
        self._coming: dict[int, Served] = {}  # by group: connecting
        self._serving: dict[int, Served] = {}
        self._leaving: dict[int, Served] = {}  # has requests that began before the table
        self._report: Report | None = None
        self._next_beat = 0.0  # of `time.monotonic`
        self._orders: dict[int, asyncio.Future[Result]] = {}
        # Random, because the supervisor may still answer orders of the process before.
        self._tickets = itertools.count(secrets.randbits(48))
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to follow. Wait until the models of the first table are connected, if they are loaded.

        So a front end that restarts while the models are ready refuses no request.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), self._receive)
        self._task = loop.create_task(self._follow())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._settled.wait(), _FIRST)

    async def stop(self, timeout: float) -> bool:
        """Disconnect from all engines. Return False if that takes longer than `timeout` seconds."""
        if self._task is not None:
            self._task.cancel()
            asyncio.get_running_loop().remove_reader(self._control.fileno())
        engines = [served.engine for served in (*self.all, *self._coming.values(), *self._leaving.values())]
        stopped = [await asyncio.to_thread(engine.stop, timeout) for engine in engines]
        return all(stopped)

    async def order(self, action: str, name: str = "", version: int | None = None) -> Result:
        """Give an order to the supervisor; return its end. See `control.Order`."""
        ticket = next(self._tickets)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._orders[ticket] = answer
        try:
            self._control.send(Order(ticket, action, name, version))
            return await answer
        finally:
            del self._orders[ticket]

    def _receive(self) -> None:
        """Take the messages of the supervisor, which sends each in one piece."""
        try:
            while self._control.poll():
                message = self._control.recv()
                if isinstance(message, Table):
                    self._table = message
                    self._changed.set()
                elif message.ticket in self._orders and not self._orders[message.ticket].done():
                    self._orders[message.ticket].set_result(message)
        except (EOFError, OSError):  # the supervisor has ended; the kernel ends this process
            asyncio.get_running_loop().remove_reader(self._control.fileno())

    async def _follow(self) -> None:
        """Adopt each table, and report."""
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                is_moving = self._coming or self._leaving
                await asyncio.wait_for(self._changed.wait(), _TICK if is_moving else _IDLE_TICK)
            self._changed.clear()
            table = self._table
            self._connect(table)
            self._move(table)
            for group, served in [
                (group, one) for group, one in self._leaving.items() if not one.in_progress
            ]:
                await asyncio.to_thread(served.engine.stop, _STOP_TIMEOUT)
                del self._leaving[group]
            self._tell(table.number)
            if table.rows and not self._coming:
                self._settled.set()

    def _tell(self, number: int) -> None:
        """Report changes, and send heartbeats: unless nobody reads, as sending would then block."""
        used = frozenset([*self._coming, *self._serving, *self._leaving])
        report = Report(number, frozenset(self._serving), used, self.is_ready())
        now = time.monotonic()
        if report == self._report and now < self._next_beat:
            return
        if select.select([], [self._control], [], 0)[1]:
            with contextlib.suppress(OSError):  # the supervisor has ended; the kernel ends this process
                self._control.send(report)
            self._report, self._next_beat = report, now + BEAT

    def _connect(self, table: Table) -> None:
        """Begin to connect to the groups of a table that are new, and forget those that have left it."""
        wanted = {row.group: row for row in table.rows if row.group is not None}
        for group, row in wanted.items():
            if group not in self._coming and group not in self._serving:
                engine = one_of(
                    [RemoteEngine(address, self._arena, self._busy_poll) for address in row.addresses]
                )
                engine.start()
                self._coming[group] = Served(engine, row.name, row.version)
        for group in [group for group in self._coming if group not in wanted]:
            self._leaving[group] = self._coming.pop(group)

    def _move(self, table: Table) -> None:
        """Let each group that is connected serve. A model without a connected group keeps the one before."""
        before = {served.name: served for served in self._serving.values()}
        now: list[Served] = []
        serving: dict[int, Served] = {}
        for row in table.rows:
            if row.group is None:
                now.append(Served(Engine(row.reason), row.name, row.version, row.is_wanted))
                continue
            served = self._serving.get(row.group) or self._coming[row.group]
            if served.engine.missing and row.group in self._coming:
                old = before.get(row.name)
                now.append(old or served)
                serving |= {group: one for group, one in self._serving.items() if one is old}
                continue
            self._coming.pop(row.group, None)
            serving[row.group] = served
            now.append(served)
        self._leaving |= {group: one for group, one in self._serving.items() if group not in serving}
        self._serving = serving
        if now:
            self.all = tuple(now)
            self.default = now[0]

    def check_loaded(self) -> None:
        """See `Models.check_loaded`. Before the first table, nothing is loaded."""
        if not self._table.rows:
            raise NotReadyError("the model is still loading")
        super().check_loaded()

    def check_peers(self) -> None:
        """See `Models.check_peers`."""
        if self._table.unready - {self._slot}:
            raise NotReadyError("another front end cannot take images yet")
