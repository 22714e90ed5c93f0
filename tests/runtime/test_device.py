"""The choice of a device, the precision of float32 on GPUs, and the machine of a package."""

from pathlib import Path
from typing import Any

import pytest
import torch
from damaged_files import compiled_for, rewritten

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.export import save_artifact
from lensbox.model import FaceDetector
from lensbox.runtime import Photo, load_artifact
from lensbox.runtime import device as machine
from lensbox.runtime.device import choose_device, set_gpu_float32


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_rejects_cuda_without_a_gpu() -> None:
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(DeviceError, match=r"got 'cuda' with torch .*: this torch was built"):
        choose_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "mps", ""])
def test_rejects_other_names(name: str) -> None:
    with pytest.raises(DeviceError, match=rf"device must be auto, cpu, cuda or cuda:N, got '{name}'"):
        choose_device(name)


def test_two_batches_are_launched_before_the_first_is_fetched(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path)
    images = [torch.full([1, 40 + n, 60], 20 * n, dtype=torch.uint8) for n in range(3)]
    photos = [Photo.of(image) for image in images]
    launched = [artifact.launch(photos[:2]), artifact.launch(photos[2:], 0.01), artifact.launch([])]
    found = [one for batch in launched for one in artifact.fetch(batch)]
    expected = [*artifact.detect_images(images[:2]), *artifact.detect_images(images[2:], 0.01)]
    assert [(one.width, one.height) for one in found] == [(60, 40), (60, 41), (60, 42)]
    for one, wanted in zip(found, expected, strict=True):
        assert torch.equal(torch.from_numpy(one.boxes), wanted.boxes)


CONVOLUTIONS: Any = torch.backends.cudnn
PRODUCTS: Any = torch.backends.cuda.matmul


# These switches are not a GPU's, so they can be tested without one.
@pytest.mark.usefixtures("new_gpu_float32")
@pytest.mark.parametrize("tf32", [False, True])
def test_sets_the_first_precision_and_rejects_the_other(tf32: bool) -> None:
    torch.set_float32_matmul_precision("medium")
    CONVOLUTIONS.conv.fp32_precision = "ieee" if tf32 else "tf32"
    for name in ("a.pt", "b.pt"):
        set_gpu_float32(name, tf32)
        assert (CONVOLUTIONS.conv.fp32_precision == "tf32", PRODUCTS.fp32_precision == "tf32") == (tf32, tf32)
        assert (CONVOLUTIONS.allow_tf32, PRODUCTS.allow_tf32) == (tf32, tf32)  # raises where both disagree
    first, second = ("TF32", "full float32") if tf32 else ("full float32", "TF32")
    with pytest.raises(
        ArtifactError, match=rf"^c\.pt needs {second} on GPUs, but a\.pt set this process to {first}: use a"
    ):
        set_gpu_float32("c.pt", not tf32)
    assert CONVOLUTIONS.allow_tf32 == tf32


@pytest.mark.usefixtures("new_gpu_float32")
def test_an_artifact_on_a_cpu_changes_nothing(artifact_path: Path) -> None:
    CONVOLUTIONS.allow_tf32 = PRODUCTS.allow_tf32 = True
    load_artifact(artifact_path)
    assert CONVOLUTIONS.allow_tf32
    set_gpu_float32("a.pt", tf32=True)


@pytest.mark.usefixtures("new_gpu_float32")
@pytest.mark.gpu
def test_artifacts_of_both_precisions_are_refused(
    artifact_path: Path, detector: FaceDetector, tmp_path: Path
) -> None:
    path = tmp_path / "tf32.pt"
    save_artifact(detector, path, 0.25, 0.4, dtype="tf32")
    load_artifact(path, "cuda")
    assert CONVOLUTIONS.allow_tf32
    with pytest.raises(ArtifactError, match=r"detector\.pt needs full float32 .*tf32\.pt set"):
        load_artifact(artifact_path, "cuda")


def test_rejects_other_devices(package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"device must be cpu, for which .*\.pt2 was compiled, got cuda"):
        load_artifact(package_path, "cuda")
    path = tmp_path / "changed.pt2"
    change = compiled_for(device="cuda", gpu_architecture="sm_90")
    path.write_bytes(rewritten(package_path.read_bytes(), change))
    monkeypatch.setattr(machine, "_gpu_architecture", lambda device: "sm_80")
    with pytest.raises(ArtifactError, match="a GPU of architecture sm_90; cuda has sm_80"):
        load_artifact(path, "cuda")
