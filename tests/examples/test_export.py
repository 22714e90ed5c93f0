"""examples/export.py writes both formats, and both answer alike."""

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from programs import load_example

from lensbox.cli.samples import save_photos
from lensbox.export import save_artifact
from lensbox.model import FaceDetector, save_detector, weights_sha256


def test_both_files_find_the_same(
    tmp_path: Path,
    artifact_path: Path,
    onnx_path: Path,
    detector: FaceDetector,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The files come from the fixtures of the same detector: each export takes seconds."""

    def save(given: FaceDetector, path: Path, **options: Any) -> None:
        inspect.signature(save_artifact).bind(given, path, **options)
        assert (weights_sha256(given), options["score_threshold"]) == (weights_sha256(detector), 0.25)
        assert options.get("kind") == {".pt": None, ".onnx": "onnx"}[path.suffix]
        shutil.copy(onnx_path if path.suffix == ".onnx" else artifact_path, path)

    weights = tmp_path / "weights.safetensors"
    save_detector(detector, weights, {"figures": json.dumps({"recommended_threshold": 0.25})})
    photo, _ = save_photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    program = load_example("export.py", monkeypatch, photo, "--weights", weights)
    monkeypatch.setitem(program["export"].__globals__, "save_artifact", save)
    assert program["main"]() == 0
    first, second = capsys.readouterr().out.split("detector.onnx, face_detector:\n")
    assert first == f"detector.pt, face_detector:\n{second}"
    assert second.count("score 0.") > 0
