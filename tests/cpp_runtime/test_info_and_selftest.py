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


@pytest.mark.gpu
def test_selftest_passes_on_the_gpu(run: Run, artifact: Path) -> None:
    result = run("selftest", "--artifact", artifact, "--device", "cuda")
    assert result.code == 0, result.stderr + result.stdout
