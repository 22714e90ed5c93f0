"""The job queue of a thread that receives jobs from other processes."""

import math
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import torch

from lensbox.serve.engine.job_queue import Entry, JobQueue
from lensbox.serve.engine.jobs import CanvasJob, CodedJob


def _entry(deadline: float = math.inf) -> Any:
    job = CanvasJob(torch.zeros([1, 1, 2, 2], dtype=torch.uint8))
    return Entry(job, Future(), deadline)


def _coded(count: int, deadline: float = math.inf) -> list[Any]:
    """Return entries whose jobs have a preparation."""
    job = CodedJob(np.zeros(1, np.uint8), 1, 8, 8, None, None)
    return [Entry(job, Future(), deadline) for _ in range(count)]


class Source:
    """A source of jobs, and its queue. arrivals: the jobs that come in each call. It records timeouts."""

    def __init__(self, *arrivals: list[Any]) -> None:
        self.timeouts: list[float] = []
        self.queue = JobQueue(8, 1 << 20, self)
        self._arrivals = iter(arrivals)

    def wake(self) -> None:
        pass

    def receive(self, timeout: float, busy: bool = True) -> None:
        self.timeouts.append(timeout)
        for entry in next(self._arrivals):
            self.queue.put(entry)


def test_waits_for_the_first_job() -> None:
    entries = [_entry(), _entry()]
    source = Source([], [], entries)
    assert source.queue.take(4) == entries
    assert source.timeouts == [0.0, 1.0, 1.0]  # checks each second whether the queue was closed


def test_does_not_wait_if_it_must_not_block() -> None:
    late = _entry(deadline=0.0)
    source = Source([], [late], [entry := _entry()])
    assert source.queue.take(4, blocks=False) == []
    assert source.queue.take(4, blocks=False) == []
    assert late.future.exception() is not None
    assert source.queue.take(4, blocks=False) == [entry]
    assert source.timeouts == [0.0] * 3


@pytest.mark.parametrize(
    ("queued", "running", "expected"), [(12, 0, 12), (40, 0, 20), (40, 24, 32), (40, 90, 40)]
)
def test_batches_share_jobs_that_are_prepared(queued: int, running: int, expected: int) -> None:
    for entries, size in ((_coded(queued), expected), ([_entry() for _ in range(queued)], queued)):
        queue = JobQueue(64, 1 << 20)
        for entry in entries:
            queue.put(entry)
        assert queue.take(64, running) == entries[:size]


@pytest.mark.parametrize(
    ("entries", "running", "expected"),
    [
        (_coded(40), 8, 24),
        (_coded(15), 0, 0),
        ([*_coded(15), _entry(), *_coded(1)], 0, 16),
        ([_entry(), *_coded(30)], 0, 0),
        ([*_coded(15), *_coded(1, deadline=-1.0)], 0, 0),
    ],
)
def test_the_preparing_thread_takes_large_batches(entries: list[Any], running: int, expected: int) -> None:
    queue = JobQueue(64, 1 << 20)
    for entry in entries:
        queue.put(entry)
    found = queue.take_to_prepare(64, running)
    assert found == [entry for entry in entries if isinstance(entry.job, CodedJob)][:expected]
    assert sum(entry.future.running() for entry in entries) == expected
    assert len(queue) == len(entries) - expected


def test_checks_for_jobs_again_after_dropping_jobs() -> None:
    late, cancelled, entry = _entry(deadline=-1.0), _entry(), _entry()
    cancelled.future.cancel()
    source = Source([late, cancelled], [entry])
    assert source.queue.take(4) == [entry]
    assert source.timeouts == [0.0, 0.0]
    assert "deadline passed while the job was queued" in str(late.future.exception(0))
