import importlib.metadata
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from built_runner import runner_onnxruntime
from cpp_runtime.running import Rewrite, Run

from lensbox.ops import library_path


def test_version_is_the_package_version(run: Run) -> None:
    result = run("--version")
    torch_version = torch.__version__.split("+")[0]
    version = importlib.metadata.version("lensbox")
    assert result.code == 0
    onnxruntime = runner_onnxruntime()
    libraries = f"libtorch {torch_version}" + (f", onnxruntime {onnxruntime}" if onnxruntime else "")
    assert result.stdout == f"lensbox_runner {version} ({libraries})\n"


@pytest.mark.parametrize("arguments", [["--help"], ["detect", "--help"]])
def test_help(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 0
    assert "Exit codes" in result.stdout


def test_info_is_the_metadata_and_the_runner_and_needs_no_ops(run: Run, artifact: Path) -> None:
    result = run("info", "--artifact", artifact, ops=None)
    assert result.code == 0, result.stderr
    document = result.json()
    about_runner = document.pop("runner")
    with zipfile.ZipFile(artifact) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("/extra/lensbox.json"))
        assert document == json.loads(archive.read(entry))
    assert about_runner == {
        "version": importlib.metadata.version("lensbox"),
        "libtorch": torch.__version__.split("+")[0],
        "device": "cpu",
        "cuda_available": torch.cuda.is_available(),
    }


def test_selftest_passes(run: Run, artifact: Path) -> None:
    result = run("selftest", "--artifact", artifact)
    assert result.code == 0, result.stderr
    report = result.json()
    assert report["passed"] is True
    assert report["failures"] == []
    for error in ("max_box_error", "max_score_error", "loss_error"):
        assert 0 <= report[error] <= 1e-3


def test_selftest_with_the_ops_option(run: Run, artifact: Path) -> None:
    assert run("selftest", "--artifact", artifact, "--ops", library_path(), ops=None).code == 0


def test_selftest_finds_other_numbers(run: Run, rewrite: Rewrite) -> None:
    def change(metadata: dict[str, Any]) -> None:
        expected = metadata["self_test"]["expected"]
        expected["boxes"][0][2] += 2.0
        expected["scores"][0] += 0.25
        metadata["self_test"]["loss"]["expected"] += 0.5

    result = run("selftest", "--artifact", rewrite(change))
    assert result.code == 3
    report = result.json()
    assert report["passed"] is False
    assert [failure.split()[0] for failure in report["failures"]] == ["expected", "losses"]
    assert report["max_box_error"] == pytest.approx(2.0, abs=0.01)
    assert report["max_score_error"] == pytest.approx(0.25, abs=0.001)
    assert report["loss_error"] == pytest.approx(0.5, abs=0.001)


def test_selftest_finds_another_number_of_detections(run: Run, rewrite: Rewrite) -> None:
    def change(metadata: dict[str, Any]) -> None:
        expected = metadata["self_test"]["expected"]
        expected["boxes"].insert(0, [0, 0, 1, 1])
        expected["scores"].insert(0, 1.0)

    result = run("selftest", "--artifact", rewrite(change))
    assert result.code == 3
    assert "has no counterpart" in result.json()["failures"][0]


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata.pop("self_test"),
        lambda metadata: metadata["self_test"].pop("tolerance"),
        lambda metadata: metadata["self_test"]["image"]["pixels"].pop(),
        lambda metadata: metadata["self_test"]["expected"]["boxes"].append([0, 0, 1, 1]),
        lambda metadata: metadata["self_test"]["loss"].update(predictions=[[1, 2, 3]]),
        lambda metadata: metadata["self_test"]["image"].update(shape=[1, -4, -4]),
        lambda metadata: metadata["self_test"]["image"].update(shape=[1, 2**62, 2**62]),
        lambda metadata: metadata["self_test"]["image"].update(shape=[1, 2**64 - 1, 2**64 - 1]),
        lambda metadata: metadata["self_test"].update(expected={"boxes": [], "scores": []}),
        lambda metadata: metadata["self_test"]["loss"].update(predictions=[], targets=[]),
        lambda metadata: metadata["self_test"]["tolerance"]["cuda"].update(boxes=-1),
        lambda metadata: metadata["self_test"]["expected"]["boxes"][0].__setitem__(0, 1e39),
    ],
)
def test_a_damaged_self_test_is_named(run: Run, rewrite: Rewrite, change: Any) -> None:
    path = rewrite(change)
    for command in ("selftest", "info"):  # it is checked when the file is read
        result = run(command, "--artifact", path)
        assert (result.code, result.stdout) == (3, "")
        assert "self-test is damaged" in result.stderr


@pytest.mark.gpu
def test_selftest_passes_on_the_gpu(run: Run, artifact: Path) -> None:
    result = run("selftest", "--artifact", artifact, "--device", "cuda")
    assert result.code == 0, result.stderr + result.stdout
