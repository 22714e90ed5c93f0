"""AOTInductor packages and ONNX files give the answers of the TorchScript file, in Python and C++.

And both refuse a package for another machine.
"""

from pathlib import Path

import PIL.Image
import pytest
import torch
from damaged_files import Change, compiled_for, rewritten, without
from runner_answers import LOW, answer, assert_same, numbers, refusal

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.pictures import draw_faces
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
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return photographs of different sizes, one of them a large JPEG file decoded at a smaller scale."""
    folder = tmp_path_factory.mktemp("photos")
    paths = []
    for seed, factor in enumerate((3, 5, 40)):
        pixels = draw_faces(seed).repeat_interleave(factor, 1).repeat_interleave(factor, 2)
        paths.append(folder / f"{seed}.{'jpg' if factor == 40 else 'png'}")
        PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(paths[-1])
    return paths


@pytest.fixture(params=["package_path", pytest.param("onnx_path", marks=pytest.mark.onnx_runner)])
def path(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def test_finds_the_same(artifact_path: Path, path: Path, photos: list[Path]) -> None:
    arguments = ["--image", *photos, "--score-threshold", LOW, "--batch", 2]
    script, found = (
        answer("detect", "--artifact", file, *arguments)["images"] for file in (artifact_path, path)
    )
    assert_same(found, script)
    python = load_artifact(path)
    for photo, image in zip(photos, found, strict=True):
        expected = python.detect_image(python.read_photo(photo), LOW)
        torch.testing.assert_close(numbers(image, "box"), expected.boxes, rtol=1e-4, atol=0.01)
        torch.testing.assert_close(numbers(image, "score"), expected.scores, rtol=0, atol=1e-5)


def test_self_test(path: Path) -> None:
    report = answer("selftest", "--artifact", path)
    assert report["passed"] is True
    assert report["max_score_error"] < 1e-4
    assert 0 <= report["loss_error"] <= 1e-5


def test_loss_and_its_gradient(artifact_path: Path, path: Path, tmp_path: Path) -> None:
    predictions, targets = tmp_path / "predictions.json", tmp_path / "targets.json"
    predictions.write_text("[[0, 0, 8, 8], [1, 2, 5, 9]]")
    targets.write_text("[[1, 1, 9, 9], [1, 1, 6, 9]]")
    boxes_of = ["--predictions", predictions, "--targets", targets, "--gradient", "-"]
    script, other = (answer("loss", "--artifact", file, *boxes_of) for file in (artifact_path, path))
    assert script == other
    assert other["loss"] > 0


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
