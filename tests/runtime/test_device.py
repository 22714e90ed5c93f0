"""Which device a name means."""

from pathlib import Path

import pytest
import torch

from lensbox.common.errors import DeviceError
from lensbox.runtime import load_artifact
from lensbox.runtime.device import choose_device

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
