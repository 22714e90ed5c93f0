"""Parts of large jobs: their turns, and their failures."""

from concurrent.futures import Future
from typing import Any

import pytest
from services import LOSS, Begin, Make, large_job, photo_job, results
from waiting import PATIENCE

from lensbox.serve.errors import NotReadyError


def test_small_jobs_run_between_the_parts_of_large_jobs(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(queue_size=20, max_batch=2)
    first = begin(instance, large_job())
    second = instance.submit(large_job(7))
    small: list[Future[Any]] = [instance.submit(LOSS), *(instance.submit(photo_job()) for _ in range(3))]
    fake.gate.set()
    results(first, second, *small)
    assert first.result()["boxes"][:, 0, 0].tolist() == [0] * 10
    assert second.result()["boxes"][:, 0, 0].tolist() == [7] * 10
    turns = ["canvases", "loss", "canvases", "detect", "detect", "canvases", "detect", *["canvases"] * 7]
    assert [name for name, _ in fake.calls] == turns


def test_a_large_job_fails_with_its_part_and_with_the_model(make: Make, fake: Any, begin: Begin) -> None:
    instance = make(max_batch=2, queue_size=9)
    large = begin(instance, large_job())
    fake.error = ValueError("a bad canvas")
    fake.gate.set()
    with pytest.raises(ValueError, match="a bad canvas"):
        large.result(PATIENCE)
    fake.error = None
    assert len(fake.calls) == 1
    large = begin(instance, large_job())
    fake.bad_shape = (3, 9, 9)
    fake.self_test_error = RuntimeError("CUDA error: an illegal memory access was encountered")
    other = instance.submit(photo_job(3, 9, 9))  # runs after the first part
    fake.gate.set()
    with pytest.raises(ValueError, match="a bad image"):
        other.result(PATIENCE)
    with pytest.raises(NotReadyError, match="self-test fails after an error"):
        large.result(PATIENCE)
    assert len(fake.calls) == 3
