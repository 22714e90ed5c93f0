"""Jobs: which share a batch."""

from typing import Any

import numpy as np
import torch
from services import Begin, Make, photo_job, results, submit
from waiting import PATIENCE, wait_until

from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.jobs import CanvasJob, DetectJob


def test_only_jobs_of_one_kind_and_thresholds_share_a_batch(make: Make, fake: Any, begin: Begin) -> None:
    instance = make()
    running = begin(instance)
    photo = Photo.of(torch.zeros(1, 2, 3, dtype=torch.uint8))
    jobs: list[Any] = [DetectJob((threshold, None), photo) for threshold in (0.5, None, 0.5)]
    jobs += [CanvasJob((None, None), torch.zeros(2, 1, 4, 4, dtype=torch.uint8)), photo_job()]
    futures = [submit(instance, job) for job in jobs]
    wait_until(lambda: instance.jobs == 6)
    fake.gate.set()
    results(running, *futures)
    assert fake.batches == [1, 2, 2, 1]  # the oldest queued job decides the group of the next batch


def test_jobs_of_several_canvases_share_a_batch(make: Make, fake: Any, begin: Begin) -> None:
    fake.largest_batch = 4
    instance = make()
    running = begin(instance)
    canvases = torch.arange(11, dtype=torch.uint8).reshape(11, 1, 1, 1).expand(11, 1, 2, 2)
    futures = [submit(instance, CanvasJob((None, None), part)) for part in canvases.split([1, 2, 6, 1, 1])]
    wait_until(lambda: instance.jobs == 6)
    fake.gate.set()
    running.result(PATIENCE)
    found = results(*futures)
    assert [len(part["boxes"]) for part in found] == [1, 2, 6, 1, 1]
    assert np.concatenate([part["boxes"] for part in found])[:, 0, 0].tolist() == list(range(11))
    assert all(part["counts"].tolist() == [1] * len(part["boxes"]) for part in found)
    # The jobs of 1, 2 and 1; then one with more than there is room for beside others; then the last.
    assert [shape[0] for _, (shape, *_) in fake.calls[1:]] == [4, 6, 1]
