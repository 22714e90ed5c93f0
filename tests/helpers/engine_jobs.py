"""Jobs for an engine over a fake artifact, and types of its fixtures."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
from waiting import PATIENCE

from lensbox.runtime.images.photo import Photo
from lensbox.serve.engine.instance import Instance
from lensbox.serve.engine.jobs import CanvasJob, DetectJob, Loss, LossJob

Make = Callable[..., Instance]
Begin = Callable[..., "Future[Any]"]

LOSS = LossJob(torch.zeros(2, 4), torch.zeros(2, 4), False)
ANSWER = Loss(0.25, None)


def photo_job(*shape: int) -> DetectJob:
    """Return a job with a black photograph."""
    return DetectJob(Photo.of(torch.zeros(shape or (1, 2, 3), dtype=torch.uint8)), None, None)


def large_job(value: int = 0) -> CanvasJob:
    """Return a job that takes five calls of an instance with `max_batch=2`."""
    return CanvasJob(torch.full([10, 1, 2, 2], value, dtype=torch.uint8))


def results(*futures: "Future[Any]") -> list[Any]:
    """Wait for the results of futures."""
    return [future.result(PATIENCE) for future in futures]
