"""Run the self-test in an artifact, as docs/artifact.md, "The self-test", defines it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lensbox.runtime.detect.detection import Detections, detections_in
from lensbox.runtime.detect.detection_sets import Difference
from lensbox.runtime.file.self_test import SelfTest


@dataclass(frozen=True)
class SelfTestReport:
    """Result of a self-test.

    max_box_error: largest difference of a coordinate, in pixels. max_score_error, loss_error: absolute. If
    the detections fail, the first two include `moved` and `score_moved` of `Difference`.
    unmatched_by_rounding: number of detections without a partner that rounding explains.
    """

    passed: bool
    failures: list[str]
    max_box_error: float
    max_score_error: float
    loss_error: float
    unmatched_by_rounding: int = 0


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
    tolerance, thresholds = test.tolerance.on(device.type), (test.score_threshold, test.iou_threshold)
    tolerance = replace(tolerance, extras={name: tolerance.extras[name] for name in test.expected.extras})
    found = detections_in(outputs_in_picture(module, test.image.to(device), thresholds, points))
    wanted, difference = test.expected, Difference()
    expected = Detections(wanted.boxes, wanted.scores, wanted.labels, wanted.extras)
    difference.add(expected, found, thresholds, tolerance, "the picture of the self-test")
    failures = list(difference.unexplained)
    if failures:
        failures.insert(
            0,
            f"expected {len(expected.scores)} detections, got {len(found.scores)}, moved by up to "
            f"{difference.moved:.3g} px and {difference.score_moved:.3g} of the score",
        )
    if difference.by_rounding > (allowed := int(tolerance.unmatched * difference.expected)):
        failures.append(
            f"{difference.by_rounding} detections are unmatched by rounding, at most {allowed} of "
            f"{difference.expected} may be"
        )
    box_error = max([*difference.boxes, difference.moved if failures else 0.0])
    score_error = max(difference.scores, difference.score_moved if failures else 0.0)
    if not loss_error <= tolerance.loss:  # written so that NaN fails
        failures.append(f"losses differ by {loss_error:.6g}, at most {tolerance.loss:g} is allowed")
    return SelfTestReport(not failures, failures, box_error, score_error, loss_error, difference.by_rounding)


def outputs_in_picture(
    module: Any, image: Tensor, thresholds: tuple[float, float], points: Collection[str]
) -> dict[str, Tensor]:
    """Return a module's outputs for one picture by name; boxes and points are in pixels of the picture.

    module: has the methods of an artifact. image: uint8 [C, H, W]. thresholds: of score and IoU.
    """
    canvases, geometry = module.preprocess([image])
    found = dict(module.detect(canvases, *thresholds))
    found["boxes"] = module.restore(found["boxes"], geometry)
    for name in points:
        found[name] = module.restore_points(found[name], geometry)
    return found
