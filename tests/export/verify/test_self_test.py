"""The self-test: built for any weights, passed with TF32, failed by changed weights."""

import dataclasses

import pytest
import torch
from small_detectors import Changed, RedAndBlue
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.export.verify.precision import operand_rounding
from lensbox.export.verify.self_test import build_self_test, reduced_self_test
from lensbox.model import DetectorConfig, FaceDetector
from lensbox.runtime.detect.self_test import run_self_test
from lensbox.runtime.file.self_test import TOLERANCES, Tolerances

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["base", "small"])
def test_untrained_weights_give_a_test_that_tf32_passes(name: str) -> None:
    detector = FaceDetector(DetectorConfig.named(name)).eval()
    test = build_self_test(detector)
    assert 1 <= len(test.expected.scores) <= 20
    of_gpus = dataclasses.replace(test, tolerance=Tolerances(TOLERANCES.cuda, TOLERANCES.cuda))
    with operand_rounding():
        report = run_self_test(DetectorWrapper(detector), of_gpus, CPU)
    assert report.passed, report.failures


def red_square(scale: int) -> Tensor:
    picture = torch.full((3, 192 * scale, 320 * scale), 60, dtype=torch.uint8)
    picture[0, 40 * scale : 80 * scale, 40 * scale : 80 * scale] = 250
    return picture


@pytest.mark.parametrize("scale", [1, 3])
def test_holds_a_picture_with_detections_no_larger_than_the_canvas(scale: int) -> None:
    nothing = torch.zeros(3, 50, 80, dtype=torch.uint8)
    test = build_self_test(RedAndBlue().eval(), pictures=[nothing, red_square(scale)])
    assert torch.equal(test.image, red_square(1))
    assert run_self_test(DetectorWrapper(RedAndBlue().eval()), test, CPU).passed


def test_rejects_a_detector_without_detections() -> None:
    blind = Changed(lambda found: {**found, "counts": 0 * found["counts"]})
    with pytest.raises(ArtifactError, match="finds nothing in any picture, even at a score threshold"):
        build_self_test(blind.eval())


def test_a_reduced_precision_widens_the_tolerance_to_twice_its_change() -> None:
    detector = RedAndBlue().eval()
    exact = build_self_test(detector)
    assert len(exact.expected.scores) == 20  # of 30
    moved = Changed(lambda found: {**found, "boxes": found["boxes"] + 3, "scores": found["scores"] * 0.95})
    test = reduced_self_test(detector, exact, moved.eval().detect)
    change = (test.expected.boxes - exact.expected.boxes).abs().max().item()
    for limit in (test.tolerance.cpu, test.tolerance.cuda):
        assert limit.boxes == pytest.approx(2 * change)
        assert limit.scores == pytest.approx(0.1 * float(exact.expected.scores.max()), abs=1e-3)
    assert change > 0.5
