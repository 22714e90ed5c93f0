"""`lensbox bench detector` in its tiniest form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lensbox.bench.detector import benchmark, ways
from lensbox.bench.detector.ways import Detectors, groups_of_ways
from lensbox.common.errors import ArtifactError
from lensbox.model import FaceDetector


@pytest.fixture
def choose_ways(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Keep the ways of these names alone: exporting all formats takes half a minute."""

    def choose(*names: str) -> None:
        monkeypatch.setattr(
            benchmark,
            "groups_of_ways",
            lambda *arguments: [
                [way for way in group if way.name in names] for group in groups_of_ways(*arguments)
            ],
        )

    return choose


@pytest.mark.parametrize("formats", ["TorchScript", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_a_quick_run_writes_its_files(
    formats: str, quick_run: Callable[..., Any], choose_ways: Callable[..., None]
) -> None:
    if formats != "all":
        choose_ways(ways.TORCHSCRIPT, ways.TORCHSCRIPT_NETWORK, "eager PyTorch", "package, float32")
    written = quick_run("detector", benchmark, "--batch", "1,2")
    assert "WRONG" not in written.printed
    assert "failed" not in written.printed
    rows = [row for row in written.rows if row["way"] == ways.TORCHSCRIPT]
    assert [row["case"] for row in rows] == ["1 canvas on cpu", "2 canvases on cpu"]
    assert all(float(row["images_per_second"]) > 0 for row in rows)
    assert "package, float32: not available: left out by --quick" in written.printed
    assert "ONNX file / its network, onnxruntime" in written.markdown
    assert "| batch | 1 | 2 |" in written.markdown


def test_a_given_package_is_timed(
    quick_run: Callable[..., Any],
    choose_ways: Callable[..., None],
    package_path: Path,
    detector: FaceDetector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lensbox.model.load_detector", lambda weights: detector)
    choose_ways("package, float32")
    written = quick_run("detector", benchmark, "--batch", "2", "--package", str(package_path))
    assert [(row["way"], row["note"]) for row in written.rows] == [("package, float32", "")]
    assert float(written.rows[0]["images_per_second"]) > 0


def test_rejects_files_that_are_no_packages_for_the_device(
    artifact_path: Path, package_path: Path, detector: FaceDetector, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"expected an AOTInductor package .*kind torchscript"):
        Detectors(detector, tmp_path, "cpu", 1, [artifact_path])
    with pytest.raises(ArtifactError, match=r"expected a package compiled for cuda, got one for cpu"):
        Detectors(detector, tmp_path, "cuda", 1, [package_path])
    with pytest.raises(ArtifactError, match=r"are both float32 packages"):
        Detectors(detector, tmp_path, "cpu", 1, [package_path, package_path])


def test_groups_of_a_gpu_are_files_without_and_with_graphs(detector: FaceDetector, tmp_path: Path) -> None:
    groups = groups_of_ways(Detectors(detector, tmp_path, "cuda", 1), 4)
    names = [[way.name for way in group] for group in groups]
    assert all(captured == plain + ways.CAPTURED for plain, captured in names)
    assert [plain for plain, _ in names] == [
        *(ways.TORCHSCRIPT, "package, float32", "package, float16", "package, bfloat16"),
    ]
