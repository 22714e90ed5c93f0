"""The front end's side of an engine in another process."""

import asyncio
import contextlib
import itertools
import logging
import math
import threading
import time
from concurrent.futures import Future, InvalidStateError
from multiprocessing.connection import Client
from multiprocessing.reduction import send_handle
from typing import Any, TypeVar

from lensbox.serve.engine.engines import DescribedModel, Engine
from lensbox.serve.engine.jobs import Job
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.models.control import EngineAddress
from lensbox.serve.processes.link import Arena, BusyWait, Link
from lensbox.serve.processes.messages import Request, Told, request_message, unpacked_answers

_log = logging.getLogger(__name__)

_RETRY = 0.05  # seconds between attempts to connect
_FORGOTTEN = 1.0  # seconds after which an idle engine is taken to have all its places

Result = TypeVar("Result")


class RemoteEngine(Engine):
    """Send jobs to an engine process. Reconnect when the supervisor has replaced the process.

    arena: shared memory for the tensors of jobs. busy_poll: seconds for which the event loop busy-polls while
    a single job is in flight.

    Each answer of the engine tells how many jobs the engine has, and how many further ones it takes from this
    process (`room_for`). So a front end decodes no image that the engine would refuse.
    """

    def __init__(self, address: EngineAddress, arena: Arena, busy_poll: float = 0.0) -> None:
        self._address = address
        self._arena = arena
        self._numbers = itertools.count()
        # By number: the future of a job, and the offsets of its blocks in the arena.
        self._pending: dict[int, tuple[Future[Any], list[int]]] = {}
        self._told = Told(0, 0)
        self._told_at = 0.0  # of `time.monotonic`
        self._sent = 0  # jobs since then
        self._places = 0  # jobs that an idle engine takes
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._model: DescribedModel | None = None
        self._loaded = False
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._wait = BusyWait(busy_poll)
        self._thread = threading.Thread(target=self._run, name="lensbox-engine-link", daemon=True)

    def start(self) -> None:
        """Start to connect. Call it in the event loop that receives the results."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._thread.start()

    @property
    def jobs(self) -> int:
        """Number of jobs in flight."""
        return len(self._pending)

    @property
    def room(self) -> int:
        """Number of further jobs that the engine would probably take from this process.

        Without a job in flight no answer would correct an old word of the engine: it counts for a second, and
        one job may always be sent.
        """
        if self._model is None:
            return 0
        if self._pending:
            return self._told.room - self._sent
        if time.monotonic() - self._told_at > _FORGOTTEN:
            return self._places
        return max(1, self._told.room)

    @property
    def serves_others(self) -> bool:
        """True if the engine had further jobs when it sent its latest answer."""
        return self._told.jobs > 0

    def ready_artifact(self) -> DescribedModel:
        """Return the engine's model. Raise NotReadyError with the reason if there is none."""
        if self._stopped.is_set():
            raise NotReadyError("the service is shutting down")
        if self._model is None:
            raise NotReadyError(self._why_not())
        return self._model

    def submit(self, job: Job[Result], deadline: float = math.inf) -> "Future[Result]":
        """See `Instance.submit`. The future may raise OverloadError, because front ends share the queue."""
        self.ready_artifact()
        number, future, blocks = next(self._numbers), Future[Result](), list[int]()
        message = self._message(Request(number, job, time.monotonic(), deadline), blocks)  # type: ignore[arg-type]
        with self._lock:
            link = self._link
            if link is not None:
                if not self._pending:
                    self._told, self._sent = self._told._replace(room=self.room), 0
                self._pending[number] = future, blocks
                self._sent += 1
        if link is None:
            self._arena.free(*blocks)
            raise NotReadyError(self._why_not())

        def tell_cancelled(done: "Future[Result]") -> None:
            if done.cancelled():
                link.send(self._message(Request(number), []))

        future.add_done_callback(tell_cancelled)
        link.send(message)
        if self.is_lone and threading.get_ident() == self._loop_thread:
            self._wait.begin()
            self._stay_awake()
        return future

    def stop(self, timeout: float) -> bool:
        """Disconnect. Jobs in flight are lost."""
        self._stopped.set()
        with self._lock:
            link = self._link
        if link is not None:
            link.end()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_lone(self) -> bool:
        """True if a single job is in flight, so that the event loop is probably idle."""
        return len(self._pending) == 1

    def _stay_awake(self) -> None:
        """Keep the event loop awake by a callback in its next iteration."""
        if self.is_lone and self._wait.goes_on and self._loop is not None:
            self._loop.call_soon(self._stay_awake)

    def _why_not(self) -> str:
        if not self._loaded:
            return "the model is still loading"
        return f"the engine on {self._address.device} has ended and is being restarted"

    def _message(self, request: Request, blocks: list[int]) -> bytes:
        """Return a message. Copy the tensors of its job into the arena, and append the blocks' offsets."""

        def place(memory: memoryview) -> int:
            offset = self._arena.allocate(memory.nbytes)
            if offset is None:
                self._arena.free(*blocks)
                raise OverloadError("the shared memory is full of waiting images; try again later")
            blocks.append(offset)
            self._arena.write(offset, memory)
            return offset

        return request_message(request, place)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                connection = Client(self._address.path, "AF_UNIX", self._address.key)
            except (OSError, EOFError):
                self._stopped.wait(_RETRY)
                continue
            try:
                model, places = connection.recv()
                connection.send(self._arena.size)
                send_handle(connection, self._arena.file, None)
            except (OSError, EOFError):  # the engine ended during the handshake
                connection.close()
                continue
            link = Link(connection, "lensbox-engine-link")
            try:
                self._talk(link, model, places)
            finally:
                link.close()
                self._disconnected()

    def _talk(self, link: Link, model: DescribedModel, places: int) -> None:
        with self._lock:
            self._link = link
            self._places, self._told_at, self._sent = places, -math.inf, 0
            self._model = model
            self._loaded = True
        ended = threading.Event()
        loop = self._loop
        assert loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(link.receive_in, loop, self._take, ended.set)
            ended.wait()

    def _take(self, message: bytes) -> None:
        """Handle a message from the engine: the answers to some jobs."""
        answers, told = unpacked_answers(message)
        with self._lock:
            self._told, self._told_at, self._sent = told, time.monotonic(), 0
        for number, result, error in answers:
            self._settle_job(number, result, error)

    def _settle_job(self, number: int, result: Any, error: BaseException | None) -> None:
        with self._lock:
            jobs = len(self._pending)
            pending = self._pending.pop(number, None)
        if pending is None:  # do not raise: more messages may follow
            _log.error("an engine has sent the result of an unknown job")
            return
        future, blocks = pending
        self._arena.free(*blocks)
        if jobs == 1:
            self._wait.end()
        _settle(future, result, error)

    def _disconnected(self) -> None:
        with self._lock:
            self._link = self._model = None
            lost, self._pending = self._pending, {}
        if lost and not self._stopped.is_set():
            _log.warning("%d requests failed because their engine ended", len(lost))
        for future, blocks in lost.values():
            self._arena.free(*blocks)
            error = NotReadyError(f"the engine on {self._address.device} has ended; try again later")
            _settle(future, None, error)


def _settle(future: "Future[Any]", result: Any, error: BaseException | None) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
