"""A front end and an engine, both in this process: jobs, answers, lost connections and shared memory."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import Client, Listener
from multiprocessing.reduction import send_handle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from waiting import PATIENCE, wait_until

from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.jobs import DetectJob, Job
from lensbox.serve.errors import NotReadyError
from lensbox.serve.models.control import EngineAddress, new_address
from lensbox.serve.processes.engine_process import FrontEnds, Reply, accept
from lensbox.serve.processes.link import Arena, Link
from lensbox.serve.processes.messages import Told
from lensbox.serve.processes.remote_engine import RemoteEngine

PLAIN = DetectJob((None, None), Photo.of(torch.zeros([3, 8, 8], dtype=torch.uint8)))


class FakeEngine:
    """Accept jobs. A test answers them."""

    def __init__(self, artifact: Artifact) -> None:
        self.replies: list[Reply] = []
        self.last: Any = None
        self.told = Told(0, 8)
        self._model = SimpleNamespace(
            metadata=artifact.metadata, device=torch.device("cpu"), largest_batch=3, decodes_jpeg=True
        )

    def ready_artifact(self) -> Any:
        return self._model

    @property
    def jobs(self) -> int:  # of other front ends, too
        return self.told.jobs

    def room_for(self, processes: int) -> int:
        assert processes >= 1
        return self.told.room

    def enqueue(self, job: Any, reply: Reply, deadline: float, asked: float) -> None:
        self.last = job
        self.replies.append(reply)


class Pair:
    """An engine, a connected front end, and the front end's event loop."""

    def __init__(self, artifact: Artifact) -> None:
        self.engine = FakeEngine(artifact)
        self.arena = Arena(1 << 20)
        self.address: EngineAddress = new_address("cpu")
        self.front_ends = FrontEnds()
        self._listener = Listener(self.address.path, "AF_UNIX", backlog=64)
        arguments: Any = self._listener, self.address.key, self.engine, self.front_ends
        threading.Thread(target=accept, args=arguments, daemon=True).start()
        self._closed = False
        self._receiver = threading.Thread(target=self._receive)
        self._receiver.start()
        self.remote = RemoteEngine(self.address, self.arena, busy_poll=0.01)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def _receive(self) -> None:
        while not self._closed:
            self.front_ends.receive(0.01)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in the event loop that receives answers."""

        async def step() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(step(), self._loop).result(PATIENCE)

    def connect(self) -> None:
        self.call(self.remote.start)
        wait_until(lambda: not self.remote.missing and bool(self.front_ends.connected))

    def submit(self, job: Job[Any] = PLAIN) -> "Future[Any]":
        """Submit a job from the event loop; return its future once the job has come to the engine."""
        count = len(self.engine.replies)
        future: Future[Any] = self.call(lambda: self.remote.submit(job))
        wait_until(lambda: len(self.engine.replies) == count + 1)
        return future

    def answers(self) -> bool:
        """Return whether a new job gets its answer."""
        future = self.submit()
        self.engine.replies[-1].set_result("good")
        return bool(future.result(PATIENCE) == "good")

    def stop_receiving(self) -> None:
        self._closed = True
        self._receiver.join(PATIENCE)

    def close(self) -> None:
        assert self.remote.stop(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
        self.stop_receiving()


@pytest.fixture
def pair(artifact: Artifact) -> Iterator[Pair]:
    with contextlib.closing(Pair(artifact)) as pair:
        yield pair


def test_results_resolve_their_futures_and_free_memory(pair: Pair) -> None:
    pair.connect()
    futures = [pair.submit() for _ in range(3)]
    assert not pair.arena.is_empty
    for number, jobs in ((2, 5), (0, 0)):
        pair.engine.told = Told(jobs, 8)
        pair.engine.replies[number].set_result(number)
        assert futures[number].result(PATIENCE) == number
        assert pair.remote.serves_others is (jobs > 0)
    futures[1].cancel()
    wait_until(pair.engine.replies[1].cancelled)
    wait_until(lambda: pair.arena.is_empty and pair.remote.jobs == 0)


def test_a_defect_fails_one_job_and_is_logged(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.connect()
    good, failed = pair.submit(), pair.submit()
    pair.stop_receiving()  # so that both answers go together
    pair.engine.replies[0].set_result("good")
    pair.engine.replies[1].set_exception(ValueError(threading.Lock()))  # cannot be pickled
    pair.front_ends.receive(0)
    assert good.result(PATIENCE) == "good"
    with pytest.raises(RuntimeError, match=r"ValueError: <unlocked"):
        failed.result(PATIENCE)
    wait_until(lambda: pair.arena.is_empty and pair.remote.jobs == 0)
    assert "a request failed" in caplog.text


def test_a_disconnected_front_end_cancels_its_jobs(pair: Pair) -> None:
    pair.connect()
    pair.submit()
    assert pair.remote.stop(PATIENCE)
    wait_until(lambda: pair.engine.replies[0].cancelled() and not pair.front_ends.connected)


def test_a_silent_or_invalid_client_does_not_disturb_others(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(pair.address.path)
    pair.connect()
    silent.close()
    connection = Client(pair.address.path, "AF_UNIX", pair.address.key)
    connection.recv()
    connection.send(pair.arena.size)
    send_handle(connection, pair.arena.file, None)
    wait_until(lambda: len(pair.front_ends.connected) == 2)
    with contextlib.closing(Link(connection, "stranger")) as stranger:
        stranger.send(b"nothing that was pickled")
        wait_until(lambda: len(pair.front_ends.connected) == 1)
    assert "a front end sent an invalid message" in caplog.text
    assert pair.answers()


def test_a_lost_engine_fails_its_jobs(pair: Pair) -> None:
    pair.connect()
    future = pair.submit()
    pair.front_ends.connected[0].link.end()
    with pytest.raises(Exception, match="has ended; try again later"):
        future.result(PATIENCE)
    wait_until(lambda: pair.arena.is_empty)
    wait_until(lambda: not pair.remote.missing)  # the front end reconnects
    assert pair.answers()


def test_the_engine_tells_how_many_jobs_it_takes(pair: Pair) -> None:
    with pytest.raises(NotReadyError, match="still loading"):
        pair.remote.ready_artifact()
    assert pair.remote.room == 0
    pair.connect()
    assert pair.remote.room == 8  # the handshake told of eight places
    assert pair.remote.ready_artifact().largest_batch == 3
    first, second = pair.submit(), pair.submit()
    assert (pair.remote.room, pair.remote.jobs) == (6, 2)
    pair.engine.told = Told(40, 1)
    pair.engine.replies[0].set_result("good")
    assert first.result(PATIENCE) == "good"
    assert (pair.remote.room, pair.remote.jobs) == (1, 1)
    pair.submit()
    assert pair.remote.room == 0
    pair.engine.told = Told(40, 0)
    for job in pair.engine.replies[1:]:
        job.set_result("good")
    second.result(PATIENCE)
    wait_until(lambda: pair.remote.jobs == 0)
    assert pair.remote.room == 1  # one job finds out whether there is room again
