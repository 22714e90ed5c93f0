"""The process of an engine: waiting for front ends, and the end of a stuck model."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from waiting import PATIENCE, wait_until

from lensbox.serve.engine.errors import NotReadyError
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.jobs import CanvasJob
from lensbox.serve.settings import Settings

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

if hasattr(os, "memfd_create"):
    from lensbox.serve.processes.engine_process import FrontEnds, until_given_up
    from lensbox.serve.processes.heartbeat import Heartbeat

_SOON = Settings(Path("unused"), answer_timeout=0.1, engine_timeout=0.2)


class FakeEpoll:
    """Something comes at the looks whose numbers are in `comes`."""

    def __init__(self, comes: set[int]) -> None:
        self.timeouts: list[float] = []
        self._comes = comes

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.timeouts.append(timeout)
        return [(7, 1)] if len(self.timeouts) in self._comes else []


def _waits(busy_poll: float, comes: set[int], *timeouts: float) -> list[float]:
    """Return the waiting times of each poll, over several calls of `receive`."""
    front_ends: Any = FrontEnds(busy_poll)
    front_ends._epoll.close()
    front_ends._epoll = FakeEpoll(comes)
    front_ends._by_file[7] = SimpleNamespace(receive=lambda: True)
    for timeout in timeouts:
        front_ends.receive(timeout)
    waited: list[float] = front_ends._epoll.timeouts
    return waited


@pytest.mark.parametrize(
    ("busy_poll", "comes", "timeouts", "polls"),
    [
        (0.0, {2, 4}, [100.0, 100.0], [0, 100, 0, 100]),
        (60.0, {1, 2}, [100.0, 0.0], [0, 0]),  # does not wait for messages that are there
        (60.0, {2, 9}, [100.0, 100.0], [0, 100, 0, 0, 0, 0, 0, 0, 0]),  # polls after a short wait
        (60.0, {2}, [100.0, 0.01], [0, 100, 0, 0.01]),  # sleeps while a batch waits for more jobs
    ],
)
def test_busy_polls_while_waits_are_short(
    busy_poll: float, comes: set[int], timeouts: list[float], polls: list[float]
) -> None:
    assert _waits(busy_poll, comes, *timeouts) == polls


def test_an_engine_beats_until_its_model_is_stuck(fake: Any) -> None:
    started = threading.Event()
    instance = Instance(lambda: fake, _SOON, lambda _: started.set())
    instance.start()
    assert started.wait(PATIENCE)
    heartbeat, reasons = Heartbeat(), list[str]()
    watcher = threading.Thread(target=lambda: reasons.append(until_given_up(instance, heartbeat)))
    watcher.start()
    for _ in range(2):
        before = heartbeat.count
        wait_until(lambda before=before: heartbeat.count > before)  # type: ignore[misc]
    fake.gate.clear()
    instance.submit(CanvasJob(torch.zeros([1, 1, 2, 2], dtype=torch.uint8)))
    watcher.join(PATIENCE)
    assert reasons[0].startswith("a call of the model has run for more than ")
    with pytest.raises(NotReadyError, match="has run for more than"):
        instance.ready_artifact()
    fake.gate.set()
    assert instance.stop(PATIENCE)


class _Woken:
    """An engine whose process was stopped twice: a call seems to take long, and returns."""

    failure = "its model has failed"

    def __init__(self) -> None:
        self.looks = [*["stuck"] * 3, "", *["stuck"] * 3, ""]

    def join(self, timeout: float) -> bool:
        return not self.looks

    @property
    def stuck(self) -> str:
        return self.looks.pop(0)


def test_a_stopped_engine_is_not_given_up() -> None:
    engine: Any = _Woken()
    assert until_given_up(engine, Heartbeat()) == engine.failure
