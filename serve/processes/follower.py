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

from lensbox.serve.engine.engines import Engine, Engines
from lensbox.serve.errors import NotReadyError
from lensbox.serve.models.control import BEAT, Order, Report, Result, Table
from lensbox.serve.models.served import Models, ModelVersion
from lensbox.serve.processes.messages import Arena
from lensbox.serve.processes.remote_engine import RemoteEngine

_TICK, _IDLE_TICK = 0.01, 0.1  # seconds between looks: at connections and requests; at the readiness
_FIRST = 5.0  # seconds in which the first connections should be there; they take milliseconds


class Follower(Models):
    """The models of a front end.

    control: the pipe to the supervisor. table: the latest one. arena_size: bytes of shared memory.
    """

    def __init__(self, control: "Connection[Any, Any]", table: Table, arena_size: int) -> None:
        super().__init__(ModelVersion(Engine("the model is still loading")))
        self._control = control
        self._arena = Arena(arena_size)
        self._table = table
        self._groups: dict[int, ModelVersion] = {}  # connecting, serving, or leaving
        self._serving: frozenset[int] = frozenset()  # the groups of the table that have been connected
        self._report: Report | None = None
        self._next_beat = 0.0  # of `time.monotonic`
        self._orders: dict[int, asyncio.Future[Result]] = {}
        # Random, because the supervisor may still answer orders of the process before.
        self._tickets = itertools.count(secrets.randbits(48))
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to follow. Wait until the models of the table are connected, if they are loaded.

        So a front end that restarts while the models are ready refuses no request.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), self._receive)
        self._adopt(self._table)
        self._task = loop.create_task(self._follow())
        until = time.monotonic() + _FIRST
        while self._is_moving and time.monotonic() < until:
            await asyncio.sleep(_TICK)

    async def stop(self, timeout: float) -> bool:
        """Disconnect from all engines."""
        if self._task is not None:
            self._task.cancel()
            asyncio.get_running_loop().remove_reader(self._control.fileno())
        for served in self._groups.values():
            served.engine.stop(0.0)
        return True

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
            table = self._table
            self._adopt(table)
            wanted = {row.group for row in table.rows}
            for group, served in list(self._groups.items()):
                if group not in wanted and served not in self.all and not served.in_progress:
                    served.engine.stop(0.0)
                    del self._groups[group]
            self._tell(table.number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _TICK if self._is_moving else _IDLE_TICK)
            self._changed.clear()

    @property
    def _is_moving(self) -> bool:
        """True while a group connects, or leaves."""
        return self._groups.keys() != self._serving

    def _tell(self, number: int) -> None:
        """Report changes, and send heartbeats, unless nobody reads: sending would then block.

        A process that cannot take images sends no heartbeats, so that the supervisor replaces it.
        """
        report, now = Report(number, self._serving, frozenset(self._groups)), time.monotonic()
        if report == self._report:
            if now < self._next_beat:
                return
            try:
                self.check_process()
            except NotReadyError:
                return
        if select.select([], [self._control], [], 0)[1]:
            with contextlib.suppress(OSError):  # the supervisor has ended; the kernel ends this process
                self._control.send(report)
            self._report, self._next_beat = report, now + BEAT

    def _adopt(self, table: Table) -> None:
        """Let each group that is connected serve. A model without one keeps what it had before."""
        before = {served.name: served for served in self.all}
        now, serving = list[ModelVersion](), set[int]()
        for row in table.rows:
            if row.group is None:
                now.append(ModelVersion(Engine(row.reason), row.name, row.version, row.is_wanted))
                continue
            served = self._groups.get(row.group)
            if served is None:
                engines = [RemoteEngine(one, self._arena) for one in row.addresses]
                engine = engines[0] if len(engines) == 1 else Engines(engines)
                engine.start()
                served = self._groups[row.group] = ModelVersion(engine, row.name, row.version)
            if row.group in self._serving or not served.engine.missing:
                serving.add(row.group)
                now.append(served)
            else:
                now.append(before.get(row.name, served))
        self._serving = frozenset(serving)
        self.all = tuple(now) or self.all

    def check_loaded(self) -> None:
        """See `Models.check_loaded`. When the service starts, wait for all front ends."""
        super().check_loaded()
        if not self._table.is_ready:
            raise NotReadyError("another front end is still connecting to the model")
