"""The process of one engine: compute the jobs of all front ends, and exit when the model is out of use.

The inference thread itself talks with the front ends, between two batches and while idle. A separate thread
would have to wake the inference thread for each job, and would compete for the GIL.
"""

import contextlib
import hmac
import logging
import mmap
import os
import pickle
import select
import socket
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from lensbox.common.machine import exempt_objects
from lensbox.serve.engine.engines import RemoteModelInfo
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.job_queue import Entry
from lensbox.serve.errors import ApiError
from lensbox.serve.loading import load_model
from lensbox.serve.models.control import BEAT, EngineAddress, Loaded
from lensbox.serve.models.files import Content
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.processes.messages import (
    Answer,
    Request,
    framed,
    packed_answers,
    request_decoder,
    unframed,
)
from lensbox.serve.settings import Settings
from lensbox.serve.shutdown import end_process

_log = logging.getLogger(__name__)

_STUCK_CHECKS = 5  # in a row: after the whole process was suspended, the call may still return
_BACKLOG = 64  # front ends that may wait to be accepted
_READ_AHEAD = 1 << 16  # bytes: dozens of messages in one go
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

    model: its name; "": the artifact has it. content: the artifact. folder: for temporary files.
    status: receives `Loaded` when the engine is ready, and then heartbeats; or else the reason why not.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    settings = replace(settings, device=address.device)
    begun = time.monotonic()

    front_ends = FrontEnds(address)
    metrics = Metrics()
    metrics.model = model
    engine = Instance(partial(load_model, settings, content), settings, metrics, front_ends)
    front_ends.engine = engine
    engine.start()
    engine.started.wait()
    if engine.failure:
        status.send(engine.failure)
        end_process(1)
    exempt_objects()
    front_ends.listen()  # before the supervisor knows
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


class FrontEnd:
    """A connected front end. Its greeting has the key and the shared memory with the tensors of its jobs.

    answers: to send, of jobs that are done. unsent: bytes that did not fit into the socket. is_full: whether
    the last ones did not.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.answers: list[Answer] = []
        self.unsent = bytearray()
        self.is_full = False
        self._decoder: Any = None
        self._received = bytearray()
        self._entries: dict[int, Entry] = {}

    def receive(self, engine: Instance, key: bytes) -> bool:
        """Submit and cancel jobs as the received messages say. Return False if the front end is gone."""
        try:
            if self._decoder is None:
                return self._greet(engine, key)
            piece = self.connection.recv(_READ_AHEAD)
            self._received += piece
            for message in unframed(self._received):
                self._handle(engine, self._decoder.decode(message))
            return bool(piece)
        except BlockingIOError:
            return True
        except OSError:
            return False
        except Exception:  # not one of our front ends; keep serving the other front ends
            _log.exception("a front end sent an invalid message and is disconnected")
            return False

    def send(self) -> None:
        """Send the answers to all jobs that are done, as one message: each message may wake a process."""
        if self.answers:
            self.unsent += framed(packed_answers(self.answers))
            self.answers = []
        with contextlib.suppress(OSError):  # full; or gone, as `receive` finds out
            del self.unsent[: self.connection.send(self.unsent)]

    def forget(self) -> None:
        """Cancel the front end's jobs and close the connection."""
        for entry in self._entries.values():
            entry.is_cancelled = True
        self.connection.close()

    def _greet(self, engine: Instance, key: bytes) -> bool:
        """Check the key, take the shared memory, send the model's description. Raise OSError."""
        greeting, files, _, _ = socket.recv_fds(self.connection, len(key) + 8, 1)
        if not files or not hmac.compare_digest(greeting[: len(key)], key):
            return False
        memory = memoryview(mmap.mmap(files[0], int.from_bytes(greeting[len(key) :], "little")))
        os.close(files[0])
        self._decoder = request_decoder(memory)
        loaded = engine.ready_artifact()
        model = RemoteModelInfo(loaded.metadata, loaded.device, loaded.largest_batch, loaded.decodes_jpeg)
        self.unsent += framed(pickle.dumps(model))
        return True

    def _handle(self, engine: Instance, request: Request) -> None:
        number = request.number
        if request.job is None:
            known = self._entries.get(number)
            if known is not None and not known.is_taken:  # else the engine reads the shared memory
                known.is_cancelled = True
                self._answer(number, CancelledError())
            return
        entry = Entry(request.job, partial(self._answer, number), request.deadline, request.asked)
        self._entries[number] = entry
        try:
            engine.enqueue(entry)
        except Exception as error:
            self._answer(number, error)

    def _answer(self, number: int, result: Any) -> None:
        del self._entries[number]
        self.answers.append((number, result))
        if isinstance(result, BaseException) and not isinstance(result, (ApiError, CancelledError)):
            _log.error("a request failed", exc_info=result)


class FrontEnds:
    """The source of an engine's jobs: all connected front ends. Any thread may call `listen` and `wake`."""

    def __init__(self, address: EngineAddress) -> None:
        self.engine: Instance
        self._address = address
        self.connected: dict[int, FrontEnd] = {}  # by the number of the socket
        self._epoll = select.epoll()
        self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wakes, select.EPOLLIN)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)

    def listen(self) -> None:
        """Begin to accept front ends. The engine before has ended, so the name is free."""
        self._listener.bind(self._address.path)
        self._listener.listen(_BACKLOG)
        self._epoll.register(self._listener, select.EPOLLIN)

    def wake(self) -> None:
        os.eventfd_write(self._wakes, 1)

    def receive(self, timeout: float) -> None:
        """Send the answers of done jobs, wait up to `timeout` seconds for a message, handle all messages."""
        self._send()
        for file, _ in self._epoll.poll(timeout):
            if file == self._wakes:
                os.eventfd_read(self._wakes)
            elif file == self._listener.fileno():
                self._accept()
            elif not self.connected[file].receive(self.engine, self._address.key):
                self._epoll.unregister(file)
                self.connected.pop(file).forget()
        self._send()  # to jobs that were refused or cancelled

    def end(self) -> None:
        """Send the answers, then end the connections: a process that hangs in a driver keeps sockets open."""
        self._listener.close()
        self._send()
        for front_end in self.connected.values():
            with contextlib.suppress(OSError):
                front_end.connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            _log.warning("a front end cannot connect: %s", error)
            time.sleep(_PAUSE)
            return
        connection.setblocking(False)
        self.connected[connection.fileno()] = FrontEnd(connection)
        self._epoll.register(connection, select.EPOLLIN)

    def _send(self) -> None:
        for file, front_end in self.connected.items():
            if front_end.answers or front_end.unsent:
                front_end.send()
                if front_end.is_full != bool(front_end.unsent):
                    front_end.is_full = not front_end.is_full
                    self._epoll.modify(file, select.EPOLLIN | (select.EPOLLOUT * front_end.is_full))
