"""Run the self-test in an artifact, as docs/artifact.md, "The self-test", defines it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lensbox.runtime.detect.detection_sets import Difference, Found, Limits, found_in
from lensbox.runtime.file.self_test import EXCHANGED_PART, IOU_TOLERANCES, SelfTest, Tolerance


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
def run_self_test(
    module: Any, test: SelfTest, device: torch.device, points: Collection[str] = ()
) -> SelfTestReport:
    """Run a self-test on `device`.

    module: has the methods of an artifact; a `loss` of None is not tested. points: outputs that hold points.
    """
    loss_error = 0.0
    if module.loss is not None:
        boxes = (values.to(device) for values in (test.loss.predictions, test.loss.targets))
        loss_error = abs(float(module.loss(*boxes)) - test.loss.expected)
    device_type = "cpu" if device.type == "cpu" else "cuda"
    tolerance: Tolerance = getattr(test.tolerance, device_type)
    extras = {name: tolerance.extras[name] for name in test.expected.extras}
    limits = Limits(tolerance.boxes, tolerance.scores, IOU_TOLERANCES[device_type], extras)

    thresholds = test.score_threshold, test.iou_threshold
    found = found_in(outputs_in_picture(module, test.image.to(device), thresholds, points), None)
    wanted, difference = test.expected, Difference()
    labels = torch.zeros_like(wanted.scores, dtype=torch.int64) if wanted.labels is None else wanted.labels
    expected = Found(wanted.boxes, wanted.scores, labels, False, wanted.extras)
    difference.add(expected, found, thresholds, limits, "the picture of the self-test")
    failures = list(difference.unexplained)
    if failures:
        failures.insert(
            0,
            f"expected {len(expected.scores)} detections, got {len(found.scores)}, moved by up to "
            f"{difference.moved:.3g} px and {difference.score_moved:.3g} of the score",
        )
    if difference.exchanged > (allowed := difference.expected // EXCHANGED_PART):
        failures.append(
            f"{difference.exchanged} detections came or went by rounding, at most {allowed} of "
            f"{difference.expected} may"
        )
    box_error = max([*difference.boxes, difference.moved if failures else 0.0])
    score_error = max(difference.scores, difference.score_moved if failures else 0.0)
    if not loss_error <= tolerance.loss:  # written so that NaN fails
        failures.append(f"losses differ by {loss_error:.6g}, at most {tolerance.loss:g} is allowed")
    return SelfTestReport(not failures, failures, box_error, score_error, loss_error, difference.exchanged)


def outputs_in_picture(
    module: Any, image: Tensor, thresholds: tuple[float, float], points: Collection[str]
) -> dict[str, Tensor]:
    """Return a module's outputs for one picture by name; boxes and points are in pixels of the picture.

    module: has the methods of an artifact. image: uint8 [C, H, W]. thresholds: of score and IoU.
    """
    canvases, geometry = module.preprocess([image])
    found = outputs_by_name(module, canvases, *thresholds)
    found["boxes"] = module.restore(found["boxes"], geometry)
    for name in points:
        found[name] = module.restore_points(found[name], geometry)
    return found


def outputs_by_name(
    module: Any, canvases: Tensor, score_threshold: float, iou_threshold: float
) -> dict[str, Tensor]:
    """Return all outputs of `detect_named`, or of `detect` if the module has no other method."""
    if hasattr(module, "detect_named"):
        return dict(module.detect_named(canvases, score_threshold, iou_threshold))
    found = module.detect(canvases, score_threshold, iou_threshold)
    return dict(zip(("boxes", "scores", "counts"), found, strict=True))
