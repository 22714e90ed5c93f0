"""The job queue: room, batches, and the thread that receives jobs from other processes."""

import math
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import torch

from lensbox.serve.engine.job_queue import Entry, JobQueue
from lensbox.serve.engine.jobs import CanvasJob, CodedJob
from lensbox.serve.errors import OverloadError


def _entry(deadline: float = math.inf, nbytes: int = 4) -> Any:
    job = CanvasJob((None, None), torch.zeros([1, 1, 1, nbytes], dtype=torch.uint8))
    return Entry(job, Future(), deadline)


def _cancelled() -> Any:
    entry = _entry()
    entry.future.cancel()
    return entry


def _coded(count: int, deadline: float = math.inf) -> list[Any]:
    """Return entries whose jobs have a preparation."""
    job = CodedJob((None, None), np.zeros(1, np.uint8), 1, 8, 8)
    return [Entry(job, Future(), deadline) for _ in range(count)]


def _queue(entries: list[Any], size: int = 64, nbytes: int = 1 << 20) -> JobQueue:
    queue = JobQueue(size, nbytes)
    for entry in entries:
        queue.put(entry)
    return queue


class Source:
    """A source of jobs, and its queue. arrivals: the jobs that come in each call. It records timeouts."""

    def __init__(self, arrivals: list[list[Any]]) -> None:
        self.timeouts: list[float] = []
        self.queue = JobQueue(8, 1 << 20, self)
        self._arrivals = iter(arrivals)

    def wake(self) -> None:
        pass

    def receive(self, timeout: float, busy: bool = True) -> None:
        self.timeouts.append(timeout)
        for entry in next(self._arrivals):
            self.queue.put(entry)


@pytest.mark.parametrize(
    ("arrivals", "blocks", "timeouts"),
    [
        ([[], [], [_entry(), _entry()]], True, [0, 1, 1]),  # checks each second whether the queue was closed
        ([[_entry(deadline=-1.0), _cancelled()], [_entry()]], True, [0, 0]),  # at once after dropping jobs
        ([[_entry()]], False, [0]),
        ([[]], False, [0]),
        ([[_entry(deadline=-1.0)]], False, [0]),
    ],
)
def test_waits_for_the_first_job(arrivals: list[list[Any]], blocks: bool, timeouts: list[float]) -> None:
    source = Source(arrivals)
    kept = [entry for entries in arrivals for entry in entries if entry.deadline > 0]
    assert source.queue.take(4, blocks=blocks) == [entry for entry in kept if not entry.future.cancelled()]
    assert source.timeouts == timeouts
    late = [entry for entries in arrivals for entry in entries if entry.deadline < 0]
    assert all("deadline passed while the job was qu" in str(entry.future.exception(0)) for entry in late)


def test_cancelled_and_late_jobs_make_room() -> None:
    queue = _queue([_entry(), late := _entry(deadline=-1.0)], size=2)
    queue.put(running := _entry())
    assert late.future.exception(0) is not None
    with pytest.raises(OverloadError, match="2 jobs already wait for the model"):
        queue.put(_entry())
    running.future.cancel()
    assert queue.room == 1


def test_is_bounded_by_bytes() -> None:
    queue = _queue([_entry(nbytes=110)], nbytes=100)  # a larger job fits into an empty queue
    with pytest.raises(OverloadError, match="110 bytes of images already wait"):
        queue.put(_entry(nbytes=1))
    assert _queue([_entry(nbytes=50), _entry(nbytes=49)], nbytes=100).room == 62
    assert _queue([_entry(nbytes=50), _entry(nbytes=50)], nbytes=100).room == 0


@pytest.mark.parametrize(
    ("queued", "running", "expected"), [(12, 0, 12), (40, 0, 20), (40, 24, 32), (40, 90, 40)]
)
def test_batches_share_jobs_that_are_prepared(queued: int, running: int, expected: int) -> None:
    for entries, size in ((_coded(queued), expected), ([_entry() for _ in range(queued)], queued)):
        assert _queue(entries).take(64, running) == entries[:size]


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
    queue = _queue(entries)
    found = queue.take_to_prepare(64, running)
    assert found == [entry for entry in entries if isinstance(entry.job, CodedJob)][:expected]
    assert sum(entry.future.running() for entry in entries) == expected
    assert len(queue) == len(entries) - expected
