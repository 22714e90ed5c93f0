"""The self-test compares sets: it accepts any order and rounding, and rejects other detectors."""

from collections.abc import Callable
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
from lensbox.runtime.file.self_test import SelfTest

CPU = torch.device("cpu")
Answer = dict[str, Tensor]


def report_of(detector: Any, test: SelfTest) -> SelfTestReport:
    return run_self_test(DetectorWrapper(detector), test, CPU)


@pytest.fixture(scope="module")
def colors() -> SelfTest:
    return build_self_test(RedAndBlue().eval())


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
    ],
)
def test_mutants_fail(colors: SelfTest, mutant: nn.Module) -> None:
    report = report_of(mutant.eval(), colors)
    assert not report.passed
    assert report.failures


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
