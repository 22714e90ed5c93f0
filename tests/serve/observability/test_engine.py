"""What is measured of an engine's batches keeps it from nothing."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from serve_process import PATIENCE

from lensbox.runtime.photo import Photo
from lensbox.serve.engine.jobs import DetectJob
from lensbox.serve.observability.engine import observed_instance
from lensbox.serve.observability.metrics import Metrics
from lensbox.serve.settings import Settings


class RuinedTimer:
    def seconds(self) -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_times_that_a_ruined_context_does_not_tell(
    fake: Any, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    detect, batches = fake.detect_images, list[float]()

    def timed(*arguments: Any) -> Any:
        found = detect(*arguments)
        fake.on_letterbox(RuinedTimer())
        return found

    def batch_computed(images: int, seconds: float, waited: list[float], letterbox: float) -> None:
        batches.append(letterbox)

    monkeypatch.setattr(fake, "detect_images", timed)
    metrics = Metrics()
    monkeypatch.setattr(metrics, "batch_computed", batch_computed)
    started = threading.Event()
    instance = observed_instance(
        lambda: fake, Settings(Path("unused")), lambda failure: started.set(), metrics
    )
    instance.start()
    assert started.wait(PATIENCE)
    for count in (1, 2):
        photo = Photo.of(torch.zeros(1, 2, 2, dtype=torch.uint8))
        instance.submit(DetectJob(photo, None, None)).result(PATIENCE)
        wait_until(lambda count=count: len(batches) == count)
    assert batches == [0.0, 0.0]
    assert instance.stop(PATIENCE)
