"""Times of a part of a device's work."""

import time
from pathlib import Path

import pytest
import torch

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.device import DeviceTimer
from lensbox.runtime.loading import load_artifact


def test_of_a_cpu() -> None:
    timer = DeviceTimer(torch.device("cpu"))
    time.sleep(0.02)
    timer.stop()
    time.sleep(0.02)
    assert timer.seconds() == timer.seconds() >= 0.02


@pytest.mark.gpu
def test_of_a_gpu() -> None:
    device = torch.device("cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    timer = DeviceTimer(device)
    torch.cuda._sleep(100_000_000)  # cycles
    timer.stop()
    queued = time.perf_counter() - start
    assert timer.seconds() > 0.02 > queued  # at up to 5 GHz


def test_an_artifact_tells_how_long_it_letterboxed(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path)
    timers: list[DeviceTimer] = []
    image = torch.zeros(1, 40, 60, dtype=torch.uint8)
    artifact.detect_image(image)
    artifact.on_letterbox = timers.append
    artifact.detect_images([image, image])
    artifact.detect(torch.zeros(1, *_canvas(artifact), dtype=torch.uint8))
    assert len(timers) == 1
    assert 0 < timers[0].seconds() < 60


def _canvas(artifact: Artifact) -> tuple[int, int, int]:
    canvas = artifact.metadata.canvas
    return canvas.channels, canvas.height, canvas.width
