"""The job queue: bytes, batches, late and cancelled jobs."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from services import LOSS

from lensbox.serve.engine.job_queue import Entry, JobQueue
from lensbox.serve.engine.jobs import CanvasJob, CodedJob
from lensbox.serve.errors import DeadlineError, NotReadyError, OverloadError


def _entry(answers: list[Any] | None = None, deadline: float = math.inf, nbytes: int = 4) -> Entry:
    job = CanvasJob((None, None), torch.zeros([1, 1, 1, nbytes], dtype=torch.uint8))
    return Entry(job, [].append if answers is None else answers.append, deadline)


def _coded(count: int, deadline: float = math.inf) -> list[Any]:
    """Return entries whose jobs have a preparation."""
    job = CodedJob((None, None), np.zeros(1, np.uint8), 1, 8, 8)
    return [Entry(job, [].append, deadline) for _ in range(count)]


def _queue(entries: list[Any], nbytes: int = 1 << 20) -> JobQueue:
    queue = JobQueue(nbytes)
    for entry in entries:
        queue.put(entry)
    return queue


def test_cancelled_and_late_jobs_are_not_taken() -> None:
    answers: list[Any] = []
    cancelled, late, good = _entry(answers), _entry(answers, deadline=-1.0), _entry(answers)
    queue = _queue([cancelled, late, good])
    cancelled.is_cancelled = True
    assert queue.take(4) == [good]
    assert [type(answer) for answer in answers] == [DeadlineError]
    assert [entry.is_taken for entry in (cancelled, late, good)] == [False, False, True]
    assert (queue.take(4), len(queue), queue.images) == ([], 0, 0)


def test_losses_are_taken_one_by_one() -> None:
    entries = [Entry(LOSS, [].append, math.inf) for _ in range(3)]
    assert _queue(entries).take(64) == entries[:1]


def test_a_closed_queue_refuses_and_fails_jobs() -> None:
    answers: list[Any] = []
    queue = _queue([_entry(answers), _entry(answers)])
    queue.fail("broken")
    assert [str(answer) for answer in answers] == ["broken"] * 2
    with pytest.raises(NotReadyError, match="broken"):
        queue.put(_entry())


def test_is_bounded_by_bytes() -> None:
    queue = _queue([_entry(nbytes=110)], nbytes=100)  # a larger job fits into an empty queue
    with pytest.raises(OverloadError, match="110 bytes of images already wait"):
        queue.put(_entry(nbytes=1))
    first, second = _entry(nbytes=50), _entry(nbytes=50)
    queue = _queue([first, second], nbytes=100)
    with pytest.raises(OverloadError, match="100 bytes"):
        queue.put(_entry(nbytes=1))
    first.is_cancelled = True
    queue.put(_entry(nbytes=50))


@pytest.mark.parametrize(
    ("queued", "running", "expected"), [(12, 0, 12), (41, 0, 21), (40, 24, 32), (40, 90, 40)]
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
def test_small_batches_wait_for_more_jobs(entries: list[Any], running: int, expected: int) -> None:
    queue = _queue(entries)
    found = queue.take(64, running, least_images=16)
    assert found == [entry for entry in entries if isinstance(entry.job, CodedJob)][:expected]


def test_jobs_without_a_preparation_wait_for_the_model() -> None:
    """A batch of them is taken once the model is free, and has all that came until then."""
    plain = [_entry(), _entry()]
    queue = _queue([*plain, *_coded(3)])
    assert (queue.take(64, only_prepared=True), len(queue)) == ([], 5)
    assert queue.take(64) == plain
    assert len(queue.take(64, only_prepared=True)) == 3
