"""The plan of an export checks a detector and does not change it."""

import shutil
from pathlib import Path

import pytest
import torch

from lensbox.common.errors import InputError
from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector, weights_sha256


def test_failed_export_leaves_the_old_artifact(
    detector: FaceDetector, artifact_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "detector.pt"
    shutil.copy(artifact_path, path)
    blind = FaceDetector(detector.config).eval()
    for parameter in blind.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    with pytest.raises(InputError, match="cannot be exported: the weights must be finite"):
        save_artifact(blind, path)
    with pytest.raises(ValueError, match="score_threshold must be greater than or equal to 0, got -1"):
        save_artifact(detector, path, score_threshold=-1)
    assert path.read_bytes() == artifact_path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["detector.pt"]


def test_export_does_not_change_the_detector(detector: FaceDetector, tmp_path: Path) -> None:
    detector.train()
    before = weights_sha256(detector)
    try:
        save_artifact(detector, tmp_path / "detector.pt")
        assert detector.training
    finally:
        detector.eval()
    assert weights_sha256(detector) == before
