"""A front end and an engine, both of this process: what becomes of jobs, answers and shared memory."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from serve_process import PATIENCE

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.errors import NotReadyError
from lensbox.serve.engine.jobs import DetectJob
from lensbox.serve.processes.child import EngineAddress, new_address
from lensbox.serve.processes.shared_memory import packed_whole

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

if hasattr(os, "memfd_create"):
    from multiprocessing.connection import Listener
    from multiprocessing.reduction import recv_handle

    from lensbox.serve.processes import remote_engine
    from lensbox.serve.processes.engine_process import FrontEnd, FrontEnds, accept
    from lensbox.serve.processes.remote_engine import RemoteEngine, RemoteEngines
    from lensbox.serve.processes.shared_memory import Arena


class FakeEngine:
    """Takes jobs, and leaves it to a test what they come to."""

    def __init__(self, artifact: Artifact) -> None:
        self.jobs: list[Future[Any]] = []
        self._model = SimpleNamespace(metadata=artifact.metadata, device=torch.device("cpu"))

    def ready_artifact(self) -> Any:
        return self._model

    def submit(self, job: Any, deadline: float, asked: float) -> "Future[Any]":
        self.jobs.append(Future())
        return self.jobs[-1]


class Pair:
    """An engine and the front end that asks it."""

    def __init__(
        self,
        artifact: Artifact,
        wait_until: Callable[[Callable[[], bool]], None],
        busy_poll: float = 0.0,
    ) -> None:
        self.engine = FakeEngine(artifact)
        self.arena = Arena(1 << 20)
        self.address: EngineAddress = new_address("cpu")
        self.wait_until = wait_until
        self._front_ends = FrontEnds(busy_poll)
        self._listener = Listener(self.address.path, "AF_UNIX", backlog=64)
        arguments: Any = self._listener, self.address.key, self.engine, self._front_ends
        threading.Thread(target=accept, args=arguments, daemon=True).start()
        self._closed = False
        self._receiver = threading.Thread(target=self._receive)
        self._receiver.start()
        self.remote = RemoteEngine(self.address, self.arena, 8, busy_poll)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def front_ends(self) -> "list[FrontEnd]":
        """The connected front ends."""
        return list(self._front_ends._by_file.values())

    def _receive(self) -> None:
        while not self._closed:
            self._front_ends.receive(0.01)

    def run(self, steps: "Coroutine[Any, Any, None]") -> None:
        """Runs a coroutine in the event loop that takes answers."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(steps, self._loop).result(PATIENCE)

    def connect(self) -> None:
        self._thread.start()
        self._loop.call_soon_threadsafe(self.remote.start)
        self.wait_until(lambda: self.remote.loaded and bool(self.front_ends))

    def submit_in_loop(self) -> "Future[Any]":
        """A job that the event loop's thread hands over."""

        async def submit() -> None:
            futures.append(self._submit())

        count = len(self.engine.jobs)
        futures: list[Future[Any]] = []
        asyncio.run_coroutine_threadsafe(submit(), self._loop).result(PATIENCE)
        self.wait_until(lambda: len(self.engine.jobs) == count + 1)
        return futures[0]

    def _submit(self) -> "Future[Any]":
        photo = Photo.of(torch.zeros([3, 8, 8], dtype=torch.uint8))
        return self.remote.submit(DetectJob(photo, None, None))

    def submit(self) -> "Future[Any]":
        """A job that has come to the engine."""
        count = len(self.engine.jobs)
        future = self._submit()
        self.wait_until(lambda: len(self.engine.jobs) == count + 1)
        return future

    def close(self) -> None:
        if self._thread.is_alive():
            assert self.remote.stop(PATIENCE)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)
        self._loop.close()
        self._closed = True
        self._receiver.join(PATIENCE)


@pytest.fixture
def pair(artifact: Artifact, wait_until: Callable[[Callable[[], bool]], None]) -> Iterator[Pair]:
    pair = Pair(artifact, wait_until)
    yield pair
    pair.close()


def test_results_resolve_their_futures_and_free_memory(pair: Pair) -> None:
    pair.connect()
    futures = [pair.submit() for _ in range(3)]
    assert not pair.arena.is_empty
    for number in (2, 0):
        pair.engine.jobs[number].set_result(number)
        assert futures[number].result(PATIENCE) == number
    futures[1].cancel()
    pair.wait_until(pair.engine.jobs[1].cancelled)
    pair.wait_until(lambda: pair.arena.is_empty and pair.remote.waiting == 0)


def test_a_result_without_a_pickle_fails_one_job(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.connect()
    first, second = pair.submit(), pair.submit()
    pair.engine.jobs[0].set_result(threading.Lock())  # as would be a tensor of a dtype that numpy has not
    with pytest.raises(Exception, match="cannot pickle"):
        first.result(PATIENCE)
    pair.engine.jobs[1].set_result("good")
    assert second.result(PATIENCE) == "good"
    pair.wait_until(lambda: pair.arena.is_empty and pair.remote.waiting == 0)
    assert "a request failed" in caplog.text


def test_an_unknown_result_is_logged_and_skipped(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.connect()
    future = pair.submit()
    stray, answer = packed_whole((99, None, None)), packed_whole((0, "good", None))
    with caplog.at_level(logging.ERROR):
        # In one piece, as answers come from a busy engine.
        pieces = [len(message).to_bytes(8, "little") + message for message in (stray, answer)]
        pair.front_ends[0].link._socket.sendall(b"".join(pieces))
        assert future.result(PATIENCE) == "good"
    assert "the result of an unknown job" in caplog.text
    assert pair.arena.is_empty


def test_a_disconnected_front_end_cancels_its_jobs(pair: Pair) -> None:
    pair.connect()
    pair.submit()
    assert pair.remote.stop(PATIENCE)
    pair.wait_until(pair.engine.jobs[0].cancelled)
    assert pair.front_ends == []


def test_the_event_loop_stays_awake_for_a_lone_job_after_a_short_wait(
    artifact: Artifact, wait_until: Callable[[Callable[[], bool]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(artifact, wait_until, busy_poll=PATIENCE)
    turns: list[None] = []

    def is_lone(remote: RemoteEngine) -> bool:
        turns.append(None)
        return len(remote._pending) == 1

    monkeypatch.setattr(RemoteEngine, "_is_lone", property(is_lone))
    try:
        pair.connect()
        first = pair.submit_in_loop()
        time.sleep(0.1)
        assert len(turns) == 2  # asked by `submit` itself: no wait has been short yet
        pair.engine.jobs[0].set_result("good")
        assert first.result(PATIENCE) == "good"
        second = pair.submit_in_loop()
        pair.wait_until(lambda: len(turns) > 100)
        pair.engine.jobs[1].set_result("good")
        assert second.result(PATIENCE) == "good"
        pair.wait_until(lambda: pair.remote.waiting == 0)
        time.sleep(0.05)
        before = len(turns)
        time.sleep(0.1)
        assert len(turns) == before
    finally:
        pair.close()


def test_an_invalid_message_disconnects_its_front_end(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.connect()
    (stranger,) = pair.front_ends
    link = pair.remote._link
    assert link is not None
    link.send(b"nothing that was pickled")
    pair.wait_until(lambda: stranger not in pair.front_ends)
    assert "a front end sent an invalid message" in caplog.text
    pair.wait_until(lambda: bool(pair.front_ends) and not pair.remote.missing)  # it connects again
    future = pair.submit()
    pair.engine.jobs[0].set_result("good")
    assert future.result(PATIENCE) == "good"


def test_a_silent_connection_blocks_no_other(pair: Pair) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(pair.address.path)
        pair.connect()
        future = pair.submit()
        pair.engine.jobs[0].set_result("good")
        assert future.result(PATIENCE) == "good"


def test_a_lost_engine_fails_its_jobs(pair: Pair) -> None:
    pair.connect()
    future = pair.submit()
    pair.front_ends[0].link.end()
    with pytest.raises(Exception, match="has ended; try again later"):
        future.result(PATIENCE)
    assert pair.arena.is_empty
    pair.wait_until(lambda: not pair.remote.missing)  # it is asked again
    again = pair.submit()
    pair.engine.jobs[-1].set_result("good")
    assert again.result(PATIENCE) == "good"


def test_waits_for_silent_engines_at_the_same_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_engine, "_FIRST_ATTEMPTS", 1.0)
    with contextlib.ExitStack() as stack:
        addresses = [new_address("cpu") for _ in range(8)]
        for address in addresses:
            stack.enter_context(Listener(address.path, "AF_UNIX"))  # which takes connections, and is silent
        silent = [RemoteEngine(address, pair.arena, 8) for address in addresses]
        engines = RemoteEngines([*silent, pair.remote])
        took: list[float] = []

        async def start() -> None:
            begun = time.monotonic()
            engines.start()
            took.append(time.monotonic() - begun)

        pair.run(start())
        assert 1.0 <= took[0] < 5.0
        pair.wait_until(lambda: pair.remote.loaded)
        assert len(engines.missing) == 8
        for engine in silent:
            engine.stop(0)


def test_uses_a_ready_engine_at_once(artifact: Artifact) -> None:
    address = new_address("cpu")
    listener = Listener(address.path, "AF_UNIX", authkey=address.key)
    ended = threading.Event()

    def engine() -> None:
        with listener.accept() as connection:
            time.sleep(0.3)  # it is busy
            connection.send((artifact.metadata.to_json(), "cpu"))
            connection.recv()
            os.close(recv_handle(connection))
            ended.wait(60)

    thread = threading.Thread(target=engine)
    thread.start()

    async def start() -> None:
        remote = RemoteEngines([RemoteEngine(address, Arena(1 << 16), 4)])
        remote.start()
        assert remote.ready_artifact().metadata.to_json() == artifact.metadata.to_json()
        ended.set()
        assert await asyncio.to_thread(remote.stop, 60)

    asyncio.run(start())
    thread.join(60)
    listener.close()


def test_start_does_not_wait_for_a_missing_engine() -> None:
    async def start() -> None:
        remote = RemoteEngines([RemoteEngine(new_address("cpu"), Arena(1 << 16), 4)])
        begun = time.monotonic()
        remote.start()
        assert time.monotonic() - begun < 4
        with pytest.raises(NotReadyError, match="still loading"):
            remote.ready_artifact()
        assert await asyncio.to_thread(remote.stop, 60)

    asyncio.run(start())
