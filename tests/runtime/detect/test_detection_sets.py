"""Sets of detections: which ones rounding may add, remove and exchange."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from user_detectors import RedAndBlue

from lensbox.export.verify.self_test import build_self_test
from lensbox.runtime.detect.self_test import run_self_test
from lensbox.runtime.file.self_test import Expected, SelfTest

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def colors() -> SelfTest:
    return build_self_test(RedAndBlue().eval())


class Stored(nn.Module):
    """A detector with fixed outputs."""

    loss = None

    def __init__(self, boxes: Tensor, scores: Tensor) -> None:
        super().__init__()
        self.found = boxes[None], scores[None], torch.tensor([len(scores)])

    def preprocess(self, images: list[Tensor]) -> tuple[Tensor, Tensor]:
        return images[0][None], torch.zeros(1, 6)

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes

    def detect(self, canvases: Tensor, score: float, iou: float) -> tuple[Tensor, Tensor, Tensor]:
        return self.found


def far_apart(count: int) -> Tensor:
    corner = torch.arange(count)[:, None] * torch.tensor([20.0, 0.0])
    return torch.cat([corner, corner + 10], dim=1)


def expecting(test: SelfTest, boxes: Tensor, scores: Tensor) -> SelfTest:
    return dataclasses.replace(test, expected=Expected(boxes, scores), score_threshold=0.4, iou_threshold=0.3)


@pytest.mark.parametrize(
    ("count", "scores", "exchanged", "passes"),
    [
        (40, [0.9] * 40, 0, True),
        (40, [0.9] * 39 + [0.4005], 1, True),  # near the threshold of 0.4
        (40, [0.9] * 38 + [0.4005] * 2, 2, True),
        (40, [0.9] * 37 + [0.4005] * 3, 3, False),  # more than one in twenty
        (19, [0.9] * 18 + [0.4005], 1, False),
        (40, [0.9] * 39 + [0.402], 0, False),  # clearly above the threshold
    ],
)
def test_detections_near_the_threshold_may_be_missing(
    colors: SelfTest, count: int, scores: list[float], exchanged: int, passes: bool
) -> None:
    values = torch.tensor(scores)
    kept = values > 0.5
    test = expecting(colors, far_apart(count), values)
    report = run_self_test(Stored(far_apart(count)[kept], values[kept]), test, CPU)
    assert (report.passed, report.exchanged) == (passes, exchanged)


@pytest.mark.parametrize(
    ("shift", "score", "passes"), [(5.4, 0.9, True), (5.4, 0.85, False), (2.0, 0.9, True), (8.0, 0.9, False)]
)
def test_either_of_two_rivals_may_remain(colors: SelfTest, shift: float, score: float, passes: bool) -> None:
    boxes = far_apart(40)
    other = boxes.clone()
    other[39, [0, 2]] += shift
    report = run_self_test(
        Stored(other, torch.tensor([0.9] * 39 + [score])),
        expecting(colors, boxes, torch.full((40,), 0.9)),
        CPU,
    )
    assert report.passed == passes
    assert not passes or report.exchanged == 2
