"""A queue whose jobs come from other processes, read by the thread that takes them."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

from lensbox.serve.engine.job_queue import Entry, JobQueue
from lensbox.serve.engine.jobs import CanvasJob


def _entry(deadline: float = math.inf) -> Entry:
    return Entry(CanvasJob(torch.zeros([1, 1, 2, 2], dtype=torch.uint8)), Future(), deadline)


class Source:
    """What happens while `take` waits, one step after the other, and how long it would have waited."""

    def __init__(self, *steps: Callable[[JobQueue], Any]) -> None:
        self.timeouts: list[float] = []
        self.queue = JobQueue(8, 1 << 20, self._receive)
        self._steps = list(steps)

    def _receive(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        self._steps.pop(0)(self.queue)


def _nothing(_: JobQueue) -> None:
    pass


def _come(*entries: Entry) -> Callable[[JobQueue], None]:
    def put(queue: JobQueue) -> None:
        for entry in entries:
            queue.put(entry)

    return put


def test_what_has_come_meanwhile_is_taken_together() -> None:
    entries = [_entry(), _entry()]
    source = Source(_come(*entries))
    assert source.queue.take(4, 0.0) == entries
    assert source.timeouts == [0.0]


def test_it_waits_for_the_first() -> None:
    entry = _entry()
    source = Source(_nothing, _nothing, _come(entry))
    assert source.queue.take(4, 0.0) == [entry]
    assert source.timeouts == [0.0, 1.0, 1.0]  # a second at a time, to see that it was closed


def test_others_may_join_until_the_delay_is_over() -> None:
    entries = [_entry(), _entry()]
    source = Source(_come(entries[0]), _come(entries[1]))
    assert source.queue.take(2, 30.0) == entries
    assert source.timeouts[0] == 0.0
    assert 0 < source.timeouts[1] <= 30.0


def test_nobody_is_waited_for_without_end_after_a_job_that_was_given_up() -> None:
    late, cancelled, entry = _entry(deadline=-1.0), _entry(), _entry()
    cancelled.future.cancel()
    source = Source(_come(late, cancelled), _come(entry))
    assert source.queue.take(4, 0.0) == [entry]
    assert source.timeouts == [0.0, 0.0]
    assert "over before its turn" in str(late.future.exception(0))


def test_one_that_is_closed_while_it_waits_ends() -> None:
    source = Source(_nothing, JobQueue.close)
    assert source.queue.take(4, 0.0) is None
