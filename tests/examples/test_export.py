"""examples/export.py writes both formats, and both answer alike."""

import json
from pathlib import Path

import pytest
from programs import load_example
from small_detectors import varied_detector

from lensbox.cli.samples import save_photos
from lensbox.model import save_detector
from lensbox.runtime import load_artifact


def test_both_files_find_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights.safetensors"
    figures = json.dumps({"recommended_threshold": 0.25})
    save_detector(varied_detector(spread=0.2), weights, {"figures": figures})
    photo, _ = save_photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    assert load_example("export.py", monkeypatch, photo, "--weights", weights)["main"]() == 0
    first, second = capsys.readouterr().out.split("detector.onnx, face_detector:\n")
    assert first == f"detector.pt, face_detector:\n{second}"
    assert second.count("score 0.") > 0
    for name in ("detector.pt", "detector.onnx"):
        assert load_artifact(name).metadata.score_threshold == 0.25


def test_names_a_missing_file_before_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_example("export.py", monkeypatch, "none")["main"]() == 4
    error = capsys.readouterr().err
    assert error.startswith("export.py: ")
    assert "none" in error
    assert list(tmp_path.iterdir()) == []
