"""A front end and an engine, both in this process: jobs, answers, lost connections and shared memory."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from waiting import PATIENCE, wait_until

from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.job_queue import Entry
from lensbox.serve.engine.jobs import DetectJob, Job
from lensbox.serve.errors import NotReadyError, OverloadError
from lensbox.serve.models.control import EngineAddress, new_address
from lensbox.serve.processes import remote_engine
from lensbox.serve.processes.engine_process import FrontEnds
from lensbox.serve.processes.messages import Arena, framed
from lensbox.serve.processes.remote_engine import RemoteEngine

PLAIN = DetectJob((None, None), Photo.of(torch.zeros([3, 8, 8], dtype=torch.uint8)))


class FakeEngine:
    """Accept jobs. A test answers them."""

    def __init__(self, artifact: Artifact) -> None:
        self.entries: list[Entry] = []
        self._model = SimpleNamespace(
            metadata=artifact.metadata, device=torch.device("cpu"), largest_batch=3, decodes_jpeg=True
        )

    def ready_artifact(self) -> Any:
        return self._model

    def enqueue(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        return entry


class Pair:
    """An engine, a connected front end, and the front end's event loop."""

    def __init__(self, artifact: Artifact) -> None:
        engine: Any = FakeEngine(artifact)
        self.engine = engine
        self.arena = Arena(1 << 20)
        self.address: EngineAddress = new_address("cpu")
        self.front_ends = FrontEnds(self.address)
        self.front_ends.engine = self.engine
        self.front_ends.listen()
        self._closed = False
        self._receiver = threading.Thread(target=self._receive)
        self._receiver.start()
        self.remote = RemoteEngine(self.address, self.arena)
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
        count = len(self.engine.entries)
        future = asyncio.run_coroutine_threadsafe(self.remote.submit(job), self._loop)
        wait_until(lambda: len(self.engine.entries) == count + 1 or future.done())
        return future

    def answers(self) -> bool:
        """Return whether a new job gets its answer."""
        future = self.submit()
        self.engine.entries[-1].answer("good")
        return bool(future.result(PATIENCE) == "good")

    def stop_receiving(self) -> None:
        self._closed = True
        self._receiver.join(PATIENCE)

    def close(self) -> None:
        assert self.call(self.remote.stop)
        self.call(lambda: None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
        self.stop_receiving()
        self.front_ends.end()
        for front_end in self.front_ends.connected.values():
            front_end.forget()


@pytest.fixture
def pair(artifact: Artifact) -> Iterator[Pair]:
    with contextlib.closing(Pair(artifact)) as pair:
        yield pair


def test_results_resolve_their_futures_and_free_memory(pair: Pair) -> None:
    pair.connect()
    futures = [pair.submit() for _ in range(3)]
    assert pair.arena.taken
    for number in (2, 0):
        pair.engine.entries[number].answer(number)
        assert futures[number].result(PATIENCE) == number
    futures[1].cancel()
    wait_until(lambda: pair.engine.entries[1].is_cancelled)
    wait_until(lambda: not pair.arena.taken and pair.remote.jobs == 0)
    assert pair.remote.ready_artifact().largest_batch == 3


def test_the_memory_of_a_job_that_runs_stays_until_its_end(pair: Pair) -> None:
    pair.connect()
    future = pair.submit()
    pair.engine.entries[0].is_taken = True
    future.cancel()
    assert pair.answers()  # later messages have arrived
    assert not pair.engine.entries[0].is_cancelled
    assert pair.arena.taken
    pair.engine.entries[0].answer("late")
    wait_until(lambda: not pair.arena.taken)


@pytest.mark.parametrize("large", [0, 1 << 30])
def test_large_images_are_copied_in_a_thread(pair: Pair, monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(remote_engine, "_LARGE", large)
    pair.connect()
    pixels = torch.randint(0, 256, [3, 50, 70], dtype=torch.uint8)
    future = pair.submit(DetectJob((None, None), Photo.of(pixels)))
    assert torch.equal(pair.engine.entries[0].job.photo.pixels, pixels)
    pair.engine.entries[0].answer("good")
    assert future.result(PATIENCE) == "good"
    too_large = DetectJob((None, None), Photo.of(torch.zeros([3, 800, 800], dtype=torch.uint8)))
    with pytest.raises(OverloadError, match="full of waiting images"):
        pair.submit(too_large).result(PATIENCE)
    wait_until(lambda: not pair.arena.taken)


def test_a_defect_fails_one_job_and_is_logged(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.connect()
    good, failed = pair.submit(), pair.submit()
    pair.stop_receiving()  # so that both answers go together
    pair.engine.entries[0].answer("good")
    pair.engine.entries[1].answer(ValueError(threading.Lock()))  # cannot be pickled
    pair.front_ends.receive(0)
    assert good.result(PATIENCE) == "good"
    with pytest.raises(RuntimeError, match=r"ValueError: <unlocked"):
        failed.result(PATIENCE)
    wait_until(lambda: not pair.arena.taken and pair.remote.jobs == 0)
    assert "a request failed" in caplog.text


def test_answers_that_do_not_fit_into_the_socket_follow(pair: Pair) -> None:
    pair.connect()
    futures = [pair.submit() for _ in range(4)]
    large = [bytes([number]) * (3 << 20) for number in range(4)]
    for entry, content in zip(list(pair.engine.entries), large, strict=True):
        entry.answer(content)
    assert [future.result(PATIENCE) for future in futures] == large


def test_a_disconnected_front_end_cancels_its_jobs(pair: Pair) -> None:
    pair.connect()
    future = pair.submit()
    pair.call(pair.remote.stop)
    wait_until(lambda: pair.engine.entries[0].is_cancelled and not pair.front_ends.connected)
    with pytest.raises(NotReadyError):
        future.result(PATIENCE)


def test_a_silent_or_invalid_client_does_not_disturb_others(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    silent, stranger, wrong = (socket.socket(socket.AF_UNIX) for _ in range(3))
    for one in (silent, stranger, wrong):
        one.connect(pair.address.path)
    pair.connect()
    assert pair.answers()
    socket.send_fds(wrong, [bytes(40)], [pair.arena.file])
    wait_until(lambda: wrong.recv(1) == b"")
    socket.send_fds(stranger, [pair.address.key + (1 << 20).to_bytes(8, "little")], [pair.arena.file])
    assert stranger.recv(8)
    stranger.sendall(framed(b"nothing that was packed"))
    wait_until(lambda: len(pair.front_ends.connected) == 2)
    assert "a front end sent an invalid message" in caplog.text
    assert pair.answers()
    for one in (silent, stranger, wrong):
        one.close()


def test_a_lost_engine_fails_its_jobs(pair: Pair) -> None:
    with pytest.raises(NotReadyError, match="still loading"):
        pair.remote.ready_artifact()
    pair.connect()
    future = pair.submit()
    next(iter(pair.front_ends.connected.values())).connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(NotReadyError, match="has ended; try again later"):
        future.result(PATIENCE)
    wait_until(lambda: not pair.arena.taken)
    wait_until(lambda: not pair.remote.missing)  # the front end reconnects
    assert pair.answers()
