"""Sets of detections: which ones rounding may leave without a partner."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from lensbox.runtime.detect.self_test import SelfTestReport, run_self_test
from lensbox.runtime.file.self_test import TOLERANCES, Expected, ExpectedLoss, SelfTest

ONE = torch.ones(1, 4)


def report_of(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> SelfTestReport:
    """Return the report on boxes and scores, at thresholds of 0.4 and 0.3."""
    outputs = {"boxes": found[0][None], "scores": found[1][None], "counts": torch.tensor([len(found[1])])}
    module = SimpleNamespace(
        loss=None,
        preprocess=lambda images: (images[0][None], torch.zeros(1, 6)),
        restore=lambda boxes, geometry: boxes,
        detect=lambda *_: outputs,
    )
    image, loss = torch.zeros(1, 1, 1, dtype=torch.uint8), ExpectedLoss(ONE, ONE, 0)
    test = SelfTest(image, 0.4, 0.3, Expected(*expected), loss, TOLERANCES)
    return run_self_test(module, test, torch.device("cpu"))


def far_apart(count: int) -> Tensor:
    corner = torch.arange(count)[:, None] * torch.tensor([20.0, 0.0])
    return torch.cat([corner, corner + 10], dim=1)


@pytest.mark.parametrize(
    ("count", "scores", "by_rounding", "passes"),
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
    count: int, scores: list[float], by_rounding: int, passes: bool
) -> None:
    boxes, values = far_apart(count), torch.tensor(scores)
    kept = values > 0.5
    report = report_of((boxes[kept], values[kept]), (boxes, values))
    assert (report.passed, report.unmatched_by_rounding) == (passes, by_rounding)


@pytest.mark.parametrize(
    ("shift", "score", "passes"), [(5.4, 0.9, True), (5.4, 0.85, False), (2.0, 0.9, True), (8.0, 0.9, False)]
)
def test_either_of_two_rivals_may_remain(shift: float, score: float, passes: bool) -> None:
    boxes = far_apart(40)
    other = boxes.clone()
    other[39, [0, 2]] += shift
    report = report_of((other, torch.tensor([0.9] * 39 + [score])), (boxes, torch.full((40,), 0.9)))
    assert report.passed == passes
    assert not passes or report.unmatched_by_rounding == 2


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 0), (0,), (3, 2), ()])
def test_rejects_tensors_of_other_numbers_of_detections(
    side: int, position: int, shape: tuple[int, ...]
) -> None:
    sides = [[torch.zeros(3, 4), torch.zeros(3), torch.zeros(3)] for _ in range(2)]
    sides[side][position] = torch.zeros(shape)
    with pytest.raises(ValueError, match=r"(expected|actual) must have"):
        torch.ops.lensbox_runtime.compare(*sides, 0.1, 0.5, [0.0] * 4, [], [False, False])
