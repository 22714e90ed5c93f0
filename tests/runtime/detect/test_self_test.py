"""The self-test compares sets: it accepts any order and rounding, and rejects other detectors."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_detectors import TINY, Changed, RedAndBlue
from torch import Tensor, nn

from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.export.verify.self_test import build_self_test
from lensbox.model import FaceDetector
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime.detect.self_test import SelfTestReport, run_self_test
from lensbox.runtime.file.self_test import TOLERANCES, Expected, ExpectedLoss, SelfTest

CPU = torch.device("cpu")
Answer = dict[str, Tensor]


def report_of(detector: Any, test: SelfTest) -> SelfTestReport:
    return run_self_test(DetectorWrapper(detector), test, CPU)


@pytest.fixture(scope="module")
def colors() -> SelfTest:
    return build_self_test(RedAndBlue().eval())


class OtherLoss(RedAndBlue):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return predictions.new_tensor(self.value)


class OtherLetterbox(RedAndBlue):
    """A detector that shifts its canvases by three pixels, but not its boxes."""

    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        canvases, geometry = fit_to_canvases(images, windows, 192, 320, 3, 114)
        return canvases.roll(3, dims=3), geometry


def reordered(found: Answer) -> Answer:
    count = int(found["counts"][0])
    return {name: value if name == "counts" else value[:, :count].flip(1) for name, value in found.items()}


def only_red(found: Answer) -> Answer:
    order = found["labels"][0, : int(found["counts"][0])].argsort(stable=True)
    count = (found["labels"][0, : len(order)] == 0).sum()
    return {name: count[None] if name == "counts" else value[:, order] for name, value in found.items()}


def twice(found: Answer) -> Answer:
    count = int(found["counts"][0])
    return {
        name: 2 * value if name == "counts" else value[:, :count].repeat_interleave(2, dim=1)
        for name, value in found.items()
    }


def test_any_order_passes(colors: SelfTest) -> None:
    report = report_of(Changed(reordered), colors)
    assert (report.failures, report.unmatched_by_rounding, report.max_box_error) == ([], 0, 0.0)


@pytest.mark.parametrize(
    "mutant",
    [
        Changed(lambda found: {**found, "boxes": found["boxes"] + 0.1}),
        Changed(lambda found: {**found, "scores": found["scores"] - 0.002}),
        Changed(lambda found: {**found, "labels": 1 - found["labels"]}),
        Changed(lambda found: {**found, "labels": torch.zeros_like(found["labels"])}),
        Changed(lambda found: {**found, "boxes": found["boxes"] * torch.nan}),
        Changed(lambda found: {**found, "counts": found["counts"] * 0}),
        Changed(only_red),
        Changed(twice),
        Changed(lambda found: found, iou=0.9),
        RedAndBlue(sharpness=11.5),
        RedAndBlue(side=20),
        OtherLetterbox(),
        OtherLoss(0.5),
        OtherLoss(torch.nan),
    ],
)
def test_mutants_fail(colors: SelfTest, mutant: nn.Module) -> None:
    report = report_of(mutant.eval(), colors)
    assert not report.passed
    assert report.failures


def test_a_loss_that_is_no_number_fails(colors: SelfTest) -> None:
    module: Any = DetectorWrapper(RedAndBlue())
    module.loss = lambda *_: torch.tensor(torch.nan)
    assert run_self_test(module, colors, CPU).failures == ["losses differ by nan, at most 1e-05 is allowed"]


@pytest.mark.parametrize("make", [lambda: FaceDetector(TINY), lambda: RedAndBlue(sharpness=1e-5)])
def test_other_weights_fail_where_scores_tie(make: Callable[[], Any]) -> None:
    detector, other = make().eval(), make().eval()
    test = build_self_test(detector)
    assert report_of(detector, test).passed
    with torch.no_grad():
        for weight, changed in zip(detector.parameters(), other.parameters(), strict=True):
            changed.copy_(weight)
            if weight.dim() > 1:
                changed.add_(0.1 * weight.std() * torch.randn(weight.shape))
    assert not report_of(other, test).passed


ONE = torch.ones(1, 4)


def compared(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> SelfTestReport:
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
    report = compared((boxes[kept], values[kept]), (boxes, values))
    assert (report.passed, report.unmatched_by_rounding) == (passes, by_rounding)


@pytest.mark.parametrize(
    ("shift", "score", "passes"), [(5.4, 0.9, True), (5.4, 0.85, False), (2.0, 0.9, True), (8.0, 0.9, False)]
)
def test_either_of_two_rivals_may_remain(shift: float, score: float, passes: bool) -> None:
    boxes = far_apart(40)
    other = boxes.clone()
    other[39, [0, 2]] += shift
    report = compared((other, torch.tensor([0.9] * 39 + [score])), (boxes, torch.full((40,), 0.9)))
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
