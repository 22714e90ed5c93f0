"""examples/export.py writes both formats, and both answer alike."""

import json
from pathlib import Path

import pytest
from programs import load_example

from lensbox.cli.samples import save_photos
from lensbox.model import FaceDetector, save_detector


def test_both_files_find_the_same(
    tmp_path: Path,
    detector: FaceDetector,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    weights = tmp_path / "weights.safetensors"
    save_detector(detector, weights, {"figures": json.dumps({"recommended_threshold": 0.25})})
    photo, _ = save_photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    assert load_example("export.py", monkeypatch, photo, "--weights", weights)["main"]() == 0
    first, second = capsys.readouterr().out.split("detector.onnx, face_detector:\n")
    assert first == f"detector.pt, face_detector:\n{second}"
    assert second.count("score 0.") > 0
