"""A package of machine code against the TorchScript file of the same detector: Python, C++ and HTTP."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from damaged_files import Change, compiled_for, rewritten, without
from runner_answers import LOW, answer, numbers, refusal
from serve_process import running_service
from waiting import PATIENCE

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector
from lensbox.runtime import load_artifact


def no_machine_code(entries: dict[str, bytes]) -> None:
    """Replace the libraries by a text, which the linker refuses."""
    entries.update({name: b"no machine code" for name in entries if name.endswith(".so")})


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (compiled_for(torch_version="2.10.1"), 3, "compiled for torch 2.10.1"),
        (compiled_for(platform="linux-riscv64"), 3, "compiled for linux-riscv64"),
        (compiled_for(cpu_features=["fpu", "fpu9"]), 3, "fpu9"),
        (compiled_for(device="cuda", gpu_architecture="sm_90"), 2, "device must be cuda"),
        (without("/extra/lensbox.json"), 3, "holds no lensbox.json"),
        (without(".so"), 3, "cannot be loaded on cpu"),
        (no_machine_code, 3, "cannot be loaded on cpu"),
    ],
)
def test_both_refuse_a_package_for_another_machine(
    change: Change, code: int, reason: str, package_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "changed.pt2"
    path.write_bytes(rewritten(package_path.read_bytes(), change))
    with pytest.raises(
        (ArtifactError, DeviceError), match=rf"changed\.pt2 [\s\S]*{reason}|{reason}.*changed"
    ):
        load_artifact(path)
    message = refusal(code, "selftest", "--artifact", path)
    assert reason in message
    assert "changed.pt2" in message


@pytest.fixture(scope="module")
def client(package_path: Path) -> Iterator[httpx.Client]:
    with running_service(package_path) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        yield client


def test_the_service_finds_the_same(client: httpx.Client, artifact_path: Path, photos: list[Path]) -> None:
    artifact = load_artifact(artifact_path)
    for photo in photos:
        found = client.post("/v1/detect", params={"score_threshold": LOW}, content=photo.read_bytes())
        assert found.status_code == 200, found.text
        wanted = artifact.detect_image(artifact.read_photo(photo), LOW)
        torch.testing.assert_close(numbers(found.json(), "box"), wanted.boxes, rtol=1e-4, atol=0.01)


@pytest.mark.gpu
@pytest.mark.usefixtures("new_gpu_float32")
@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16"])
def test_on_a_gpu(detector: FaceDetector, tmp_path: Path, dtype: str) -> None:
    """Compiled there, it finds the same as captured graphs, in Python and in C++."""
    path = tmp_path / "detector.pt2"
    save_artifact(detector, path, 0.25, 0.4, kind="aoti", dtype=dtype, device="cuda")
    artifact = load_artifact(path, "cuda")
    assert artifact.self_test().passed
    canvases = torch.randint(0, 256, (5, 1, 256, 256), dtype=torch.uint8, device="cuda")
    plain = artifact.detect(canvases)
    artifact.capture([5])
    for value, wanted in zip(artifact.detect(canvases), plain, strict=True):
        assert torch.equal(value, wanted)
    for capture in ([], ["--capture"]):
        arguments = ["--batch-sizes", 5, "--seconds", 0.1, *capture]
        assert answer("bench", "--artifact", path, "--device", "cuda", *arguments)
    assert answer("selftest", "--artifact", path, "--device", "cuda")["passed"] is True
