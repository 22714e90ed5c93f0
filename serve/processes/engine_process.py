"""The process of one engine: compute the jobs of all front ends, and exit when the model is out of use.

The inference thread itself reads from the front ends, between two batches and while idle. A separate reader
thread would have to wake the inference thread for each job, and would compete for the GIL.
"""

import logging
import mmap
import os
import select
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from multiprocessing.reduction import recv_handle
from typing import Any

from lensbox.common.machine import exempt_objects
from lensbox.serve.engine.engines import DescribedModel
from lensbox.serve.engine.instance import Instance
from lensbox.serve.loading import load_model
from lensbox.serve.models.control import BEAT, EngineAddress, Loaded
from lensbox.serve.models.files import Content
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.processes.link import BusyWait, Link
from lensbox.serve.processes.messages import Answer, Told, is_defect, packed_answers, request_decoder
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import end_process

_log = logging.getLogger(__name__)

_STUCK_CHECKS = 5  # in a row: after the whole process was suspended, the call may still return
_PAUSE = 0.1  # seconds before a retry after a lack of file descriptors or memory


def main(
    settings: Settings,
    model: str,
    address: EngineAddress,
    content: Content,
    folder: str,
    status: "Connection[Any, Any]",
) -> None:
    """Run until the supervisor ends the process or the model is out of use; then exit with 1.

    model: its name; "": the artifact has it. content: of the artifact. folder: for temporary files.
    status: receives `Loaded` when the engine is ready, and then heartbeats; or else the reason why not.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    settings = replace(settings, device=address.device)
    begun = time.monotonic()

    front_ends = FrontEnds(settings.busy_poll)
    metrics = Metrics()
    metrics.model = model
    engine = Instance(partial(load_model, settings, content), settings, metrics, front_ends)
    engine.start()
    engine.started.wait()
    if engine.failure:
        status.send(engine.failure)
        end_process(1)
    exempt_objects()
    # Bind before telling the supervisor. The previous process has ended, so the name is free.
    listener = Listener(address.path, "AF_UNIX", backlog=64)
    threading.Thread(target=accept, args=(listener, address.key, engine, front_ends), daemon=True).start()
    name = engine.ready_artifact().metadata.name
    status.send(Loaded(name, time.monotonic() - begun))
    reason = until_given_up(engine, lambda: status.send(None))
    _log.error("the engine of %s on %s ends: %s", model or name, address.device, reason)
    front_ends.end()
    end_process(1)


def until_given_up(engine: Instance, beat: Callable[[], None]) -> str:
    """Beat while the model is in use. Return the reason when the model is out of use."""
    checks = 0
    while not engine.join(BEAT):
        beat()
        stuck = engine.stuck
        checks = checks + 1 if stuck else 0
        if checks == _STUCK_CHECKS:
            return stuck
    return engine.failure


def accept(listener: Listener, key: bytes, engine: Instance, front_ends: "FrontEnds") -> None:
    """Accept front ends, forever."""
    while True:
        try:
            connection = listener.accept()
        except OSError as error:
            _log.warning("a front end cannot connect: %s", error)
            time.sleep(_PAUSE)
            continue
        # One thread per handshake: with `Listener(authkey=...)`, a silent client would block later clients.
        threading.Thread(target=_handshake, args=(connection, key, engine, front_ends), daemon=True).start()


def _handshake(
    connection: "Connection[Any, Any]", key: bytes, engine: Instance, front_ends: "FrontEnds"
) -> None:
    """Authenticate a front end, send the model's description, receive the front end's shared memory."""
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        loaded = engine.ready_artifact()
        model = DescribedModel(loaded.metadata, loaded.device, loaded.largest_batch, loaded.decodes_jpeg)
        connection.send((model, engine.room_for(1)))
        size = connection.recv()
        file = recv_handle(connection)
    except Exception as error:
        _log.debug("a client of the engine's socket failed the handshake: %s", error)
        connection.close()
        return
    memory = memoryview(mmap.mmap(file, size))
    os.close(file)
    front_ends.add(FrontEnd(Link(connection, "lensbox-front-end"), memory, engine))


class Reply:
    """The future of a front end's job, without locks: the inference thread alone uses it, except that the
    thread which decodes may call `set_running_or_notify_cancel`.

    answer: called with the job's number, its result and its error.
    """

    __slots__ = ("_answer", "_is_cancelled", "_is_waiting", "_number")

    def __init__(self, number: int, answer: Callable[[int, Any, BaseException | None], None]) -> None:
        self._number = number
        self._answer = answer
        self._is_waiting = True
        self._is_cancelled = False

    def cancel(self) -> None:
        """Cancel the job unless it is running."""
        if self._is_waiting:
            self._is_waiting, self._is_cancelled = False, True
            self._answer(self._number, None, CancelledError())

    def cancelled(self) -> bool:
        return self._is_cancelled

    def set_running_or_notify_cancel(self) -> bool:
        self._is_waiting = False
        return not self._is_cancelled

    def set_result(self, result: Any) -> None:
        self._answer(self._number, result, None)

    def set_exception(self, exception: BaseException) -> None:
        self._answer(self._number, None, exception)


class FrontEnd:
    """A connected front end. memory: shared memory with the tensors of the front end's jobs."""

    def __init__(self, link: Link, memory: memoryview, engine: Instance) -> None:
        self.link = link
        self._decoder = request_decoder(memory)
        self._engine = engine
        self._replies: dict[int, Reply] = {}
        self._answers: list[Answer] = []

    def receive(self) -> bool:
        """Submit and cancel jobs as the received messages say. Return False if the front end is gone."""
        messages = self.link.received()
        if messages is None:
            return False
        for message in messages:
            self._handle(message)
        return True

    def send_answers(self, front_ends: int) -> None:
        """Send the answers to all jobs that are done, as one message: each message may wake a process.

        front_ends: number of processes that share the engine's room.
        """
        if self._answers:
            answers, self._answers = self._answers, []
            told = Told(self._engine.jobs, self._engine.room_for(front_ends))
            self.link.send(packed_answers(answers, told))

    def forget(self) -> None:
        """Cancel the front end's jobs and close the connection."""
        for reply in list(self._replies.values()):
            reply.cancel()
        self.link.close()

    def _handle(self, message: bytes) -> None:
        request = self._decoder.decode(message)
        number, job = request.number, request.job
        if job is None:
            if number in self._replies:
                self._replies[number].cancel()
            return
        reply = self._replies[number] = Reply(number, self._answer)
        try:
            self._engine.enqueue(job, reply, request.deadline, request.asked)
        except Exception as error:
            reply.set_exception(error)

    def _answer(self, number: int, result: Any, error: BaseException | None) -> None:
        if self._replies.pop(number, None) is not None:  # else answered before
            self._answers.append((number, result, error))
            if error is not None and is_defect(error):
                _log.error("a request failed", exc_info=error)


class FrontEnds:
    """All connected front ends. Any thread may call `add`, `end` and `wake`.

    busy_poll: seconds for which an idle engine busy-polls.
    """

    def __init__(self, busy_poll: float = 0.0) -> None:
        self._by_file: dict[int, FrontEnd] = {}
        self._epoll = select.epoll()
        self._wait = BusyWait(busy_poll)
        self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wakes, select.EPOLLIN)

    def add(self, front_end: FrontEnd) -> None:
        """Begin to receive from a front end."""
        file = front_end.link.fileno()
        self._by_file[file] = front_end
        self._epoll.register(file, select.EPOLLIN)

    @property
    def connected(self) -> list[FrontEnd]:
        return list(self._by_file.values())

    def wake(self) -> None:
        os.eventfd_write(self._wakes, 1)

    def receive(self, timeout: float, busy: bool = True) -> None:
        """Send the answers of done jobs, wait up to `timeout` seconds for a message, handle all messages."""
        self._send_answers()
        poll = self._epoll.poll
        for file, _ in self._wait.poll(poll, timeout) if busy else poll(timeout):
            if file == self._wakes:
                os.eventfd_read(self._wakes)
                continue
            front_end = self._by_file[file]
            try:
                is_connected = front_end.receive()
            except Exception:  # not one of our front ends; keep serving the other front ends
                _log.exception("a front end sent an invalid message and is disconnected")
                is_connected = False
            if not is_connected:
                self._epoll.unregister(file)
                del self._by_file[file]
                front_end.forget()
        self._send_answers()  # jobs that were refused or cancelled

    def _send_answers(self) -> None:
        for front_end in self.connected:
            front_end.send_answers(len(self._by_file))

    def end(self) -> None:
        """Send the answers, then end the connections: a process that hangs in a driver keeps sockets open."""
        self._send_answers()
        for front_end in self.connected:
            front_end.link.end()
