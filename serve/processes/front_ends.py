"""Front ends, as their engine sees them: jobs come from them, and answers go to them.

The engine's thread itself reads what they send, between two batches and while there is nothing to compute. A
thread that reads for it would have to wake it up for each job, and hold Python's lock when it is needed.
"""

import contextlib
import logging
import select
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from lensbox.serve.engine.instance import Instance
from lensbox.serve.processes.busy_wait import BusyWait
from lensbox.serve.processes.link import Link
from lensbox.serve.processes.packing import packed_whole, unpacked

_log = logging.getLogger(__name__)


class FrontEnd:
    """One of them. memory: where it writes the bytes of its jobs."""

    def __init__(self, link: Link, memory: memoryview, engine: Instance) -> None:
        self.link = link
        self._memory = memory
        self._engine = engine
        self._futures: dict[int, Future[Any]] = {}

    def receive(self) -> bool:
        """Submits and cancels what it has sent; False once it is gone."""
        messages = self.link.received()
        if messages is None:
            return False
        for message in messages:
            self._take(message)
        return True

    def forget(self) -> None:
        """It is gone: nobody waits for what it asked."""
        for future in list(self._futures.values()):
            future.cancel()
        self.link.close()

    def _take(self, message: bytes) -> None:
        number, data, blocks, asked, deadline = unpacked(message)
        if data is None:
            if (future := self._futures.get(number)) is not None:
                future.cancel()
            return
        try:
            job = unpacked(data, [self._memory[begin : begin + length] for begin, length in blocks])
            future = self._engine.submit(job, deadline, asked)
        except Exception as error:
            self.link.send(_answer(number, None, error))
            return
        self._futures[number] = future
        future.add_done_callback(self._answering(number))

    def _answering(self, number: int) -> "Callable[[Future[Any]], None]":
        def answer(done: "Future[Any]") -> None:
            self._futures.pop(number, None)
            error = CancelledError() if done.cancelled() else done.exception()
            self.link.send(_answer(number, None if error else done.result(), error))

        return answer


class FrontEnds:
    """All that are connected. `add` and `end` are for any thread.

    busy_poll: seconds for which the engine stays awake when it has nothing to do.
    """

    def __init__(self, busy_poll: float = 0.0) -> None:
        self._by_file: dict[int, FrontEnd] = {}
        self._epoll = select.epoll()
        self._busy_poll = busy_poll
        self._wait = BusyWait(busy_poll)

    def add(self, front_end: FrontEnd) -> None:
        """From now on what it sends is received."""
        file = front_end.link.fileno()
        self._by_file[file] = front_end
        self._epoll.register(file, select.EPOLLIN)

    def receive(self, timeout: float) -> None:
        """Waits for at most so many seconds until one sends something, and takes what all have sent."""
        for file, _ in self._waited_for(timeout):
            front_end = self._by_file[file]
            try:
                is_there = front_end.receive()
            except Exception:  # no front end of ours says such things: the engine is there for the others
                _log.exception("a front end is not understood, and is given up")
                is_there = False
            if not is_there:
                self._epoll.unregister(file)
                del self._by_file[file]
                front_end.forget()

    def _waited_for(self, timeout: float) -> list[tuple[int, int]]:
        events = self._epoll.poll(0)
        if events or timeout <= 0:
            return events
        if timeout < self._busy_poll:  # others may join a batch until then
            return self._epoll.poll(timeout)
        self._wait.begin()
        while self._wait.goes_on and not events:
            events = self._epoll.poll(0)
        events = events or self._epoll.poll(timeout)
        self._wait.end()
        return events

    def end(self, timeout: float) -> None:
        """Ends the connections, once what was sent is on its way. timeout: seconds for each."""
        for front_end in list(self._by_file.values()):
            front_end.link.flush(timeout)
            # A process that a driver keeps from ending would keep its connections as well.
            front_end.link.end()


def _answer(number: int, result: Any, error: BaseException | None) -> bytes:
    """The number of a job, and its result or error, as bytes."""
    if error is None:
        try:
            return packed_whole((number, result, None))
        except Exception as failure:  # a front end waits for an answer whatever a model makes
            error = failure
    if _is_told(error):
        return packed_whole((number, None, error))
    if not isinstance(error, CancelledError):
        _log.error("a request failed", exc_info=error)
    with contextlib.suppress(Exception):  # exceptions exist that cannot be pickled, or not unpickled
        unpacked(exact := packed_whole((number, None, error)))
        return exact
    return packed_whole((number, None, RuntimeError(f"{type(error).__name__}: {error}")))


def _is_told(error: BaseException) -> bool:
    """Whether clients are told what was wrong, so that the log need not."""
    return type(error).__module__ == "lensbox.serve.engine.errors"
