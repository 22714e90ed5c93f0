"""The plan of an export checks a detector and does not change it."""

from pathlib import Path

import pytest
import torch
from small_detectors import Brightest, Named
from torch import Tensor

from lensbox.common.errors import ArtifactError, InputError
from lensbox.export import save_artifact
from lensbox.model import FaceDetector, weights_sha256
from lensbox.runtime import load_artifact


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


def test_settings_of_the_caller_do_not_enter_the_file(detector: FaceDetector, tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with (
            torch.device("meta"),
            torch.autocast("cpu", torch.bfloat16),
            torch.autograd.set_detect_anomaly(True),
            torch.inference_mode(),
        ):
            save_artifact(detector, tmp_path / "detector.pt2", kind="program")
            assert torch.get_default_dtype() == torch.float64
            assert torch.empty(0).is_meta
            assert torch.is_autocast_enabled("cpu")
    finally:
        torch.set_default_dtype(torch.float32)
    canvases = torch.randint(0, 256, (3, 1, 256, 256), dtype=torch.uint8)
    found, expected = (
        each.detect(canvases, 0.3, 0.5) for each in (load_artifact(tmp_path / "detector.pt2"), detector)
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-2)


class Crowded(Brightest):
    """Pass more boxes to suppression than a GPU takes."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        boxes, scores, _ = super().detect(images, score_threshold, iou_threshold).values()
        found = torch.ops.lensbox.padded_nms(
            boxes.repeat(1, 131_073, 1), scores.repeat(1, 131_073), iou_threshold, score_threshold, 200_000, 1
        )
        return {"boxes": found[0], "scores": found[1], "counts": found[3]}


@pytest.mark.parametrize("name", ["detector.pt", "detector.pt2", "detector.onnx"])
def test_refuses_more_candidates_than_a_gpu_takes(name: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, ArtifactError), match=r"at most 131072 candidates.*got 131073"):
        save_artifact(Crowded(), tmp_path / name)
    assert not list(tmp_path.iterdir())
