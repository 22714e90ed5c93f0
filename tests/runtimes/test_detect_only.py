"""AOTInductor and ONNX files in C++ give the answers of the TorchScript file of the same detector."""

from pathlib import Path

import pytest
import torch
from runner_answers import LOW, answer, assert_same, numbers

from lensbox.runtime import load_artifact


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
