"""The plan of an export checks a detector and does not change it."""

from pathlib import Path

import pytest
import torch

from lensbox.common.errors import InputError
from lensbox.export import save_artifact
from lensbox.model import FaceDetector, weights_sha256


def test_refuses_weights_and_options(detector: FaceDetector, tmp_path: Path) -> None:
    blind = FaceDetector(detector.config).eval()
    for parameter in blind.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    with pytest.raises(InputError, match="cannot be exported: the weights must be finite"):
        save_artifact(blind, tmp_path / "detector.pt")
    with pytest.raises(ValueError, match="score_threshold must be greater than or equal to 0, got -1"):
        save_artifact(detector, tmp_path / "detector.pt", score_threshold=-1)
    assert not list(tmp_path.iterdir())


def test_does_not_change_the_detector(detector: FaceDetector, tmp_path: Path) -> None:
    detector.train()
    before = weights_sha256(detector)
    try:
        save_artifact(detector, tmp_path / "detector.pt")
        assert detector.training
    finally:
        detector.eval()
    assert weights_sha256(detector) == before
