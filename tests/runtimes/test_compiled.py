"""A package of machine code against the TorchScript file of the same detector: Python, C++ and HTTP."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from altered_packages import Change, compiled_for, no_machine_code, without
from damaged_files import rewritten
from runner_answers import LOW, answer, numbers, run
from serve_process import running_service
from waiting import PATIENCE

from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector
from lensbox.runtime import load_artifact


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (compiled_for(torch_version="2.10.1"), 3, "was compiled for torch 2.10.1; this program has"),
        (compiled_for(platform="linux-riscv64"), 3, "was compiled for linux-riscv64; this machine is"),
        (compiled_for(cpu_features=["fpu", "fpu9"]), 3, "a processor with fpu9, which this one lacks"),
        (
            compiled_for(device="cuda", gpu_architecture="sm_90"),
            2,
            "device must be cuda, for which",
        ),
        (compiled_for(device="tpu"), 3, 'compiled.device must match the pattern cpu|cuda, got "tpu"'),
        (compiled_for(gpu_architecture="sm_90"), 3, "compiled.gpu_architecture must be"),
        (compiled_for(cpu_features=["AVX"]), 3, "compiled.cpu_features[0] must match the pattern [a-z"),
        (without("/extra/lensbox.json"), 3, "has no lensbox.json"),
        (without(".so"), 3, "cannot be loaded on cpu"),
        (no_machine_code, 3, "cannot be loaded on cpu"),
    ],
)
def test_the_runner_refuses_a_package_for_another_machine(
    package_path: Path,
    tmp_path: Path,
    change: Change,
    code: int,
    message: str,
) -> None:
    path = tmp_path / "changed.pt2"
    path.write_bytes(rewritten(package_path.read_bytes(), change))
    done = run("selftest", "--artifact", path)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr
    assert "changed.pt2" in done.stderr


@pytest.fixture(scope="module")
def client(package_path: Path) -> Iterator[httpx.Client]:
    with (
        running_service(package_path) as url,
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        yield client


def test_the_service_finds_the_same(client: httpx.Client, artifact_path: Path, photos: list[Path]) -> None:
    artifact = load_artifact(artifact_path)
    for photo in photos:
        found = client.post("/v1/detect", params={"score_threshold": LOW}, content=photo.read_bytes())
        assert found.status_code == 200, found.text
        wanted = artifact.detect_image(artifact.read_photo(photo), LOW)
        torch.testing.assert_close(numbers(found.json(), "box"), wanted.boxes, rtol=1e-4, atol=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16"])
def test_on_a_gpu(detector: FaceDetector, tmp_path: Path, dtype: str) -> None:
    """Compiled there, it finds the same as captured graphs, in Python and in C++."""
    path = tmp_path / "detector.pt2"
    save_artifact(detector, path, 0.25, 0.4, kind="aoti", dtype=dtype, device=torch.device("cuda"))
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
