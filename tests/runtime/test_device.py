"""The choice of a device, and the timer of its work."""

import time
from pathlib import Path

import pytest
import torch

from lensbox.common.errors import DeviceError
from lensbox.runtime import load_artifact
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.device import DeviceTimer, choose_device

_needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@_needs_no_gpu
def test_cuda_without_a_gpu_is_refused() -> None:
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(DeviceError, match=r"got 'cuda' with torch .*: this torch was built"):
        choose_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "mps", ""])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match=r"device must be cpu, cuda, cuda:N or auto, got "):
        choose_device(name)


def test_an_artifact_is_loaded_onto_no_other_device(artifact_path: Path) -> None:
    assert load_artifact(artifact_path, "cpu").device == torch.device("cpu")
    with pytest.raises(DeviceError, match=r"device must be cpu, cuda, cuda:N or auto, got 'gpu'"):
        load_artifact(artifact_path, "gpu")


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
