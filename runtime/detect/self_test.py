"""Run the self-test in an artifact, as docs/artifact.md, "The self-test", defines it."""

from dataclasses import dataclass
from typing import Any

import torch

from lensbox.runtime.detect.detection_sets import Difference, Found, Limits, found_in
from lensbox.runtime.file.self_test import IOU_TOLERANCES, SelfTest


@dataclass(frozen=True)
class SelfTestReport:
    """Result of a self-test.

    max_box_error: largest difference of a coordinate, in pixels. max_score_error, loss_error: absolute. If
    the detections fail, the first two include `moved` and `score_moved` of `Difference`. exchanged: see
    `Difference`.
    """

    passed: bool
    failures: list[str]
    max_box_error: float
    max_score_error: float
    loss_error: float
    exchanged: int = 0


@torch.inference_mode()
def run_self_test(module: Any, test: SelfTest, device: torch.device) -> SelfTestReport:
    """Run a self-test on `device`. module: has the methods of an artifact; a `loss` of None is not tested."""
    loss_error = 0.0
    if module.loss is not None:
        loss = float(module.loss(test.loss_predictions.to(device), test.loss_targets.to(device)))
        loss_error = abs(loss - test.loss)
    device_type = "cpu" if device.type == "cpu" else "cuda"
    tolerance = test.tolerances[device_type]
    extras = {name: extra.tolerances[device_type] for name, extra in test.extras.items()}
    limits = Limits(tolerance.boxes, tolerance.scores, IOU_TOLERANCES[device_type], extras)

    found, expected = _find(module, test, device), _expected(test)
    difference = Difference()
    thresholds = test.score_threshold, test.iou_threshold
    difference.add(expected, found, thresholds, limits, "the picture of the self-test")
    failures = list(difference.unexplained)
    if failures:
        failures.insert(
            0,
            f"expected {len(expected.scores)} detections, got {len(found.scores)}, moved by up to "
            f"{difference.moved:.3g} px and {difference.score_moved:.3g} of the score",
        )
    if difference.exchanged > difference.allowed:
        failures.append(
            f"{difference.exchanged} detections came or went by rounding, at most {difference.allowed} of "
            f"{difference.expected} may"
        )
    box_error = max([*difference.boxes, difference.moved if failures else 0.0])
    score_error = max(difference.scores, difference.score_moved if failures else 0.0)
    if not loss_error <= tolerance.loss:  # written so that NaN fails
        failures.append(f"losses differ by {loss_error:.6g}, at most {tolerance.loss:g} is allowed")
    return SelfTestReport(not failures, failures, box_error, score_error, loss_error, difference.exchanged)


def _find(module: Any, test: SelfTest, device: torch.device) -> Found:
    """Return a module's detections in the picture of the test, in pixels of the picture."""
    canvases, geometry = module.preprocess([test.image.to(device)])
    thresholds = test.score_threshold, test.iou_threshold
    if test.labels is not None or test.extras:
        answer = dict(module.detect_named(canvases, *thresholds))
    else:
        answer = dict(zip(("boxes", "scores", "counts"), module.detect(canvases, *thresholds), strict=True))
    answer["boxes"] = module.restore(answer["boxes"], geometry)
    for name, extra in test.extras.items():
        if extra.kind == "points":
            answer[name] = module.restore_points(answer[name], geometry)
    return found_in(answer, None)


def _expected(test: SelfTest) -> Found:
    labels = (
        torch.zeros(len(test.scores), dtype=torch.int64, device="cpu") if test.labels is None else test.labels
    )
    extras = {name: extra.values for name, extra in test.extras.items()}
    return Found(test.boxes, test.scores, labels, False, extras)
