"""The choice of a device, and the timer of its work."""

import time
from pathlib import Path

import pytest
import torch

from lensbox.common.errors import DeviceError
from lensbox.runtime import load_artifact
from lensbox.runtime.device import DeviceTimer, choose_device


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_rejects_cuda_without_a_gpu() -> None:
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(DeviceError, match=r"got 'cuda' with torch .*: this torch was built"):
        choose_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "mps", ""])
def test_rejects_other_names(name: str) -> None:
    with pytest.raises(DeviceError, match=rf"device must be cpu, cuda, cuda:N or auto, got '{name}'"):
        choose_device(name)


def test_timer_of_a_cpu() -> None:
    timer = DeviceTimer(torch.device("cpu"))
    timer.stop()
    assert timer.seconds() == timer.seconds() > 0


@pytest.mark.gpu
def test_timer_of_a_gpu() -> None:
    device = torch.device("cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    timer = DeviceTimer(device)
    torch.cuda._sleep(1_000_000_000)  # cycles
    timer.stop()
    queued = time.perf_counter() - start
    assert timer.seconds() > max(0.2, queued)  # at up to 5 GHz


def test_an_artifact_reports_the_time_of_its_letterbox(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path)
    timers: list[DeviceTimer] = []
    image = torch.zeros(1, 40, 60, dtype=torch.uint8)
    artifact.detect_image(image)
    artifact.on_letterbox = timers.append
    artifact.detect_images([image, image])
    artifact.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8))
    assert len(timers) == 1
    assert timers[0].seconds() > 0
