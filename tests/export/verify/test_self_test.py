"""The self-test: built for any weights, passed under coarse arithmetic, failed by changed weights."""

import copy
import dataclasses
import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lensbox.artifact.self_test import TOLERANCES, SelfTest
from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.precision import OperandRounding
from lensbox.export.verify.self_test import build_self_test
from lensbox.model import DetectorConfig, DetectorSpec, FaceDetector
from lensbox.runtime.self_test import run_self_test

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def self_test(detector: FaceDetector) -> SelfTest:
    return build_self_test(detector)


def gpu_tolerance(test: SelfTest) -> SelfTest:
    """The same test with the tolerance of GPUs on the CPU."""
    return dataclasses.replace(test, tolerances={"cpu": TOLERANCES["cuda"]})


def test_detector_passes_its_own_test(detector: FaceDetector, self_test: SelfTest) -> None:
    report = run_self_test(detector, self_test, CPU)
    assert report.passed
    assert report.failures == []
    # Not 0: with another number of threads, convolutions sum in another order.
    assert report.max_box_error < 1e-3
    assert report.max_score_error < 1e-5
    assert report.loss_error < 1e-6


@pytest.mark.parametrize("name", ["base", "small"])
@pytest.mark.parametrize("seed", range(2))
def test_untrained_weights_give_a_test_that_tf32_passes(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    detector = FaceDetector(DetectorConfig.named(name)).eval()
    test = build_self_test(detector)
    assert 1 <= len(test.scores) <= 20
    with OperandRounding():
        report = run_self_test(detector, gpu_tolerance(test), CPU)
    assert report.passed, report.failures


def test_small_noise_in_the_weights_changes_no_decision(detector: FaceDetector, self_test: SelfTest) -> None:
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        noisy = copy.deepcopy(detector)
        for parameter in noisy.parameters():
            parameter.data *= 1 + 2e-4 * torch.randn(parameter.shape, generator=generator)
        report = run_self_test(noisy, gpu_tolerance(self_test), CPU)
        assert report.passed, report.failures


@pytest.mark.parametrize(
    "name", ["backbone.stem.0.0.weight", "head8.conv.0.0.weight", "pyramid.lateral16.1.bias"]
)
def test_tampered_weights_fail(detector: FaceDetector, self_test: SelfTest, name: str) -> None:
    tampered = copy.deepcopy(detector)
    tampered.get_parameter(name).data *= 1.05
    report = run_self_test(tampered, self_test, CPU)
    assert not report.passed
    assert report.failures


def test_failures_say_what_differs(detector: FaceDetector, self_test: SelfTest) -> None:
    changed = dataclasses.replace(
        self_test,
        boxes=torch.cat([self_test.boxes + 1, torch.zeros(1, 4)]),
        scores=torch.cat([self_test.scores - 0.25, torch.zeros(1)]),
        loss=self_test.loss + 0.5,
    )
    report = run_self_test(detector, changed, CPU)
    count = len(self_test.scores)
    assert not report.passed
    assert report.failures[0].startswith(f"expected {count + 1} detections, got {count}, moved by up to 1 px")
    assert "a detection of score" in report.failures[1]
    assert report.failures[-1].startswith("loss differ")
    assert report.max_box_error == pytest.approx(1, abs=1e-4)
    assert report.max_score_error == pytest.approx(0.25, abs=1e-6)
    assert report.loss_error == pytest.approx(0.5, abs=1e-6)


def test_expected_loss_is_the_definition_s(self_test: SelfTest) -> None:
    total, valid = 0.0, 0
    pairs = zip(self_test.loss_predictions.tolist(), self_test.loss_targets.tolist(), strict=True)
    for (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) in pairs:
        if by2 == 0:
            continue
        intersection = max(0.0, min(ax2, bx2) - max(ax1, bx1)) * max(0.0, min(ay2, by2) - max(ay1, by1))
        union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - intersection
        enclosing = (max(ax2, bx2) - min(ax1, bx1)) * (max(ay2, by2) - min(ay1, by1))
        total += 1 - (intersection / union - (enclosing - union) / enclosing)
        valid += 1
    assert valid < len(self_test.loss_targets)
    assert self_test.loss == pytest.approx(total / valid, abs=1e-6)


class Quarters(nn.Module):
    """The brightest cell of each quarter of a canvas; the class is its column within the quarter, 0 to 3.

    Class 4, "never", is none's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.specification = DetectorSpec(
            height=64, width=64, channels=1, classes=("first", "second", "third", "fourth", "never")
        )

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        cells = torch.nn.functional.avg_pool2d(images.float() / 255, 8)  # [B, 1, 8, 8]
        quarters = cells.view(-1, 2, 4, 2, 4).transpose(2, 3).flatten(3)  # [B, 2, 2, 16]
        scores, index = quarters.max(dim=3)
        scores, order = scores.flatten(1).sort(descending=True)
        index = index.flatten(1).gather(1, order)
        x = (order % 2 * 4 + index % 4) * 8.0
        y = (order // 2 * 4 + index // 4) * 8.0
        return {
            "boxes": torch.stack([x, y, x + 8, y + 8], dim=-1),
            "scores": scores,
            "counts": (scores > score_threshold).sum(dim=1),
            "labels": index % 4,
        }


def test_as_many_classes_as_it_finds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lensbox"):
        metadata = save_artifact(Quarters(), tmp_path / "quarters.pt")
    assert metadata.self_test.labels is not None
    assert sorted(set(metadata.self_test.labels.tolist())) == [0, 1, 2, 3]
    assert "the self-test covers 4 of 5 classes, not never" in caplog.messages
