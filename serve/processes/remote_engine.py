"""An engine in another process, as a front end sees it."""

import asyncio
import contextlib
import itertools
import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from multiprocessing.connection import Client
from multiprocessing.reduction import send_handle
from typing import Any, NamedTuple, TypeVar

import torch

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.serve.engine.engines import Engines
from lensbox.serve.engine.errors import NotReadyError, OverloadError
from lensbox.serve.engine.jobs import Job
from lensbox.serve.engine.model import DescribedModel
from lensbox.serve.processes.addresses import EngineAddress
from lensbox.serve.processes.arena import Arena, aligned
from lensbox.serve.processes.busy_wait import BusyWait
from lensbox.serve.processes.link import Link
from lensbox.serve.processes.packing import packed, packed_whole, unpacked
from lensbox.serve.processes.refusals import Refusals

_log = logging.getLogger(__name__)

_RETRY = 0.05  # seconds between attempts to connect
_FIRST_ATTEMPTS = 5.0  # seconds for all of them; one that ends is a matter of milliseconds

Result = TypeVar("Result")


class _Pending(NamedTuple):
    future: Future[Any]
    offset: int | None  # of its block in the arena


class RemoteEngine:
    """Hands jobs over, and connects again when the other process was replaced by a fresh one.

    arena: where the bytes of jobs are written, shared with the other process. most: jobs that may be handed
    over and not answered. busy_poll: seconds for which the event loop stays awake while a lone job is
    computed.
    """

    def __init__(self, address: EngineAddress, arena: Arena, most: int, busy_poll: float = 0.0) -> None:
        self._address = address
        self._arena = arena
        self._most = most
        self._numbers = itertools.count()
        self._pending: dict[int, _Pending] = {}
        self._refusals = Refusals(most)
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._model: DescribedModel | None = None
        self._loaded = False
        self._tried = threading.Event()
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._wait = BusyWait(busy_poll)
        self._thread = threading.Thread(target=self._run, name="lensbox-engine-link", daemon=True)

    def start(self) -> None:
        """Begins to connect. For the thread of the event loop, which takes the answers."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._thread.start()

    def wait_for_first_attempt(self, timeout: float) -> None:
        """Blocks until it has connected or failed to, `timeout` seconds at most."""
        self._tried.wait(timeout)

    @property
    def waiting(self) -> int:
        """Jobs that were handed over and are not answered."""
        return len(self._pending)

    @property
    def loaded(self) -> bool:
        """Whether the engine has been ready once."""
        return self._loaded

    @property
    def device(self) -> torch.device | None:
        """What the model computes on, in the other process; None while that is not ready."""
        return None if self._model is None else self._model.device

    @property
    def lost(self) -> str:
        """Nothing: the supervisor starts another process in its place."""
        return ""

    @property
    def missing(self) -> list[str]:
        """Why it is not ready, if it is not."""
        return [] if self._model is not None else [self._why_not()]

    def ready_artifact(self) -> DescribedModel:
        """What the engine's model is. Raises NotReadyError, which says why there is none."""
        if self._stopped.is_set():
            raise NotReadyError("the service is shutting down")
        if self._model is None:
            raise NotReadyError(self._why_not())
        return self._model

    def check_room(self, deadline: float = math.inf, requests: int = 0) -> None:
        """Raises OverloadError if `submit` would for want of places, here or, as far as is known, in the
        engine, whose queue other front ends fill as well. Of time the engine itself decides."""
        if not self._refusals.has_room(max(requests, len(self._pending))):
            raise OverloadError("the model's queue is full; try again later")
        self._check_places()

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        """As `Instance.submit`; the future, too, may raise OverloadError: other front ends fill the queue."""
        self.ready_artifact()
        self._check_places()
        data, buffers = packed(job)
        offset, blocks = self._write(buffers)
        number, future = next(self._numbers), Future[Result]()
        with self._lock:
            link = self._link
            if link is not None:
                self._pending[number] = _Pending(future, offset)
        if link is None:
            self._free(offset)
            raise NotReadyError(self._why_not())

        def tell_cancelled(done: "Future[Result]") -> None:
            if done.cancelled():
                link.send(packed_whole((number, None, (), 0.0, 0.0)))

        future.add_done_callback(tell_cancelled)
        link.send(packed_whole((number, data, blocks, time.monotonic(), deadline)))
        if self._is_lone and threading.get_ident() == self._loop_thread:
            self._wait.begin()
            self._stay_awake()
        return future

    def stop(self, timeout: float) -> bool:
        """Disconnects. What is not answered by then is lost."""
        self._stopped.set()
        with self._lock:
            link = self._link
        if link is not None:
            link.end()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def _is_lone(self) -> bool:
        """Whether one job is computed, and the event loop may have nothing else to do."""
        return len(self._pending) == 1

    def _stay_awake(self) -> None:
        """Lets the event loop turn on, which sleeps while there is nothing for its next turn."""
        if self._is_lone and self._wait.goes_on and self._loop is not None:
            self._loop.call_soon(self._stay_awake)

    def _check_places(self) -> None:
        if len(self._pending) >= self._most:
            raise OverloadError(f"{self._most} jobs already wait for the model; try again later")

    def _why_not(self) -> str:
        if not self._loaded:
            return "the model is still loading"
        return f"the engine on {self._address.device} has ended and is being started again"

    def _write(self, buffers: list[memoryview]) -> tuple[int | None, list[tuple[int, int]]]:
        """Copies buffers into one block. Returns its offset, and those and the sizes of the buffers."""
        if not buffers:
            return None, []
        sizes = [buffer.nbytes for buffer in buffers]
        offset = self._arena.allocate(sum(map(aligned, sizes)))
        if offset is None:
            raise OverloadError("images that already wait take all shared memory; try again later")
        ends = itertools.accumulate(map(aligned, sizes), initial=offset)
        blocks = [(begin, size) for begin, size in zip(ends, sizes, strict=False)]
        for (begin, _), buffer in zip(blocks, buffers, strict=True):
            self._arena.write(begin, buffer)
        return offset, blocks

    def _free(self, offset: int | None) -> None:
        if offset is not None:
            self._arena.free(offset)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                connection = Client(self._address.path, "AF_UNIX", self._address.key)
            except (OSError, EOFError):
                self._tried.set()
                self._stopped.wait(_RETRY)
                continue
            try:
                metadata, device = connection.recv()
                connection.send(self._arena.size)
                send_handle(connection, self._arena.file, None)
            except (OSError, EOFError):  # it ended while it said who it is
                self._tried.set()
                connection.close()
                continue
            link = Link(connection, "lensbox-engine-link")
            try:
                self._talk(link, metadata, device)
            finally:
                link.close()
                self._disconnected()

    def _talk(self, link: Link, metadata: str, device: str) -> None:
        with self._lock:
            self._link = link
            self._model = DescribedModel(ArtifactMetadata.from_json(metadata), torch.device(device))
            self._loaded = True
        self._tried.set()
        ended = threading.Event()
        loop = self._loop
        assert loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(link.receive_in, loop, self._take, ended.set)
            ended.wait()

    def _take(self, message: bytes) -> None:
        """An answer of the engine."""
        number, result, error = unpacked(message)
        with self._lock:
            jobs = len(self._pending)
            pending = self._pending.pop(number, None)
        if pending is None:  # others may come in the same piece
            _log.error("an engine has answered what nobody waits for")
            return
        self._free(pending.offset)
        if jobs == 1:
            self._wait.end()
        if isinstance(error, OverloadError):
            self._refusals.refused(jobs)
        elif error is None:
            self._refusals.answered()
        _settle(pending.future, result, error)

    def _disconnected(self) -> None:
        with self._lock:
            self._link = self._model = None
            lost, self._pending = self._pending, {}
        if lost and not self._stopped.is_set():
            _log.warning("%d requests have lost their engine", len(lost))
        for pending in lost.values():
            self._free(pending.offset)
            error = NotReadyError(f"the engine on {self._address.device} has ended; try again later")
            _settle(pending.future, None, error)


class RemoteEngines(Engines):
    """Several of them as one."""

    def __init__(self, engines: Sequence[RemoteEngine]) -> None:
        super().__init__(engines)
        self._remote = engines

    def start(self) -> None:
        """Begins to connect to all of them. For the thread of the event loop, which takes the answers.

        Waits for the first attempts: whoever comes while the model is there refuses nobody. They are made at
        the same time, so that several engines that say nothing take no longer than one.
        """
        super().start()
        until = time.monotonic() + _FIRST_ATTEMPTS
        for engine in self._remote:
            engine.wait_for_first_attempt(max(0.0, until - time.monotonic()))


def _settle(future: "Future[Any]", result: Any, error: Exception | None) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
