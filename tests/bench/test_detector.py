"""`lensbox bench detector` in its tiniest form."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from small_detectors import SHALLOW

from lensbox.bench.detector import benchmark, ways
from lensbox.common.main import main
from lensbox.model import FaceDetector


@pytest.mark.parametrize("formats", ["TorchScript", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_a_quick_run_writes_its_files(
    formats: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = FaceDetector(SHALLOW).eval()
    monkeypatch.setattr("lensbox.model.load_detector", lambda weights: detector)
    short = replace(benchmark.QUICK, rounds=3, sample_seconds=1e-4, figure_seconds=0.01)
    monkeypatch.setattr(benchmark, "QUICK", short)
    if formats != "all":  # exporting all formats takes half a minute
        chosen = (ways.TORCHSCRIPT, ways.TORCHSCRIPT_NETWORK, "eager PyTorch", "package, float32")
        monkeypatch.setattr(
            benchmark,
            "all_ways",
            lambda *arguments: [way for way in ways.all_ways(*arguments) if way.name in chosen],
        )
    command = ["bench", "detector", "--device", "cpu", "--quick", "--batch", "1,2", "--output", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    with (tmp_path / "detector.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["way"] == ways.TORCHSCRIPT]
    assert [row["case"] for row in rows] == ["1 canvas on cpu", "2 canvases on cpu"]
    assert all(float(row["images_per_second"]) > 0 for row in rows)
    assert "package, float32: not available: left out by --quick" in printed
    assert "WRONG" not in printed
    assert "failed" not in printed
    assert "ONNX file / its network, onnxruntime" in (tmp_path / "detector.md").read_text()
