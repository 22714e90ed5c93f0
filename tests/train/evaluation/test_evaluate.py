"""`evaluate` takes a detector, as a module or as an artifact, and labelled photographs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from user_detectors import RedAndBlue

from lensbox.common.errors import InputError
from lensbox.model import DetectorSpec, FaceDetector
from lensbox.train.data.labels import LabelledImage, read_labels
from lensbox.train.evaluation.evaluate import evaluate
from lensbox.train.evaluation.evaluation_set import load_evaluation_set


@pytest.fixture
def photographs(tmp_path: Path) -> list[LabelledImage]:
    """A photograph of 640 x 384 pixels with a red square of 64 pixels."""
    pixels = np.full((384, 640, 3), 110, np.uint8)
    pixels[120:184, 400:464] = (250, 10, 10)
    (tmp_path / "images").mkdir()
    Image.fromarray(pixels).save(tmp_path / "images" / "a.png")
    (tmp_path / "x_bbx_gt.txt").write_text("a.png\n1\n400 120 64 64 0 0 0 0 0 0 red\n")
    return read_labels([tmp_path])[0]


class Watched(RedAndBlue):
    """Notes the mode in which it is called."""

    modes: set[tuple[bool, bool]]

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        assert images.shape[1:] == (3, 192, 320)
        self.modes = {(self.training, torch.is_grad_enabled())}
        return super().detect(images, score_threshold, iou_threshold)


def test_a_module_is_scored_on_its_canvas_in_eval_mode_without_gradients(
    photographs: list[LabelledImage],
) -> None:
    detector = Watched().train()
    figures = evaluate(detector, photographs)
    assert figures.classes["red"].average_precision["all>=8"] == 1
    assert detector.modes == {(False, False)}
    assert detector.training


def test_another_canvas_is_refused(photographs: list[LabelledImage]) -> None:
    of_faces = load_evaluation_set(photographs)
    with pytest.raises(InputError, match=r"must have the detector's canvas .*height=192, .*got .*height=256"):
        evaluate(RedAndBlue(), of_faces)
    with pytest.raises(InputError, match="must have a specification"):
        evaluate(nn.Linear(1, 1), of_faces)


class Stretching(FaceDetector):
    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(images), 1, 256, 256, dtype=torch.uint8), torch.zeros(len(images), 6)


def test_a_module_with_its_own_preprocess_is_refused(photographs: list[LabelledImage]) -> None:
    with pytest.raises(InputError, match="its own preprocess is scored as an artifact"):
        evaluate(Stretching(), photographs)


class Returning(nn.Module):
    def __init__(self, **outputs: Tensor) -> None:
        super().__init__()
        self.specification = DetectorSpec(8, 8)
        boxes, scores, counts = torch.ones(1, 1, 4), torch.ones(1, 1), torch.ones(1).long()
        self.outputs: dict[str, Any] = {"boxes": boxes, "scores": scores, "counts": counts} | outputs

    def detect(self, *_: object) -> dict[str, Tensor]:
        return self.outputs


@pytest.mark.parametrize(
    ("outputs", "rule"),
    [
        ({"scores": torch.full((1, 1), torch.nan)}, "scores of detections must be finite numbers, got nan"),
        (
            {"boxes": torch.full((1, 1, 4), -torch.inf)},
            "boxes of detections must be finite numbers, got -inf",
        ),
        ({"boxes": torch.ones(1, 1, 4).long()}, "boxes of detections must be a floating-point tensor, got"),
    ],
)
def test_a_detector_must_find_finite_numbers(
    photographs: list[LabelledImage], outputs: Any, rule: str
) -> None:
    with pytest.raises(InputError, match=re.escape(rule)):
        evaluate(Returning(**outputs), photographs)
