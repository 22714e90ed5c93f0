"""Run the self-test that travels with an artifact.

Every runtime runs the same procedure: preprocess([image]), detect(canvases, thresholds), restore(boxes,
geometry), and loss(predictions, targets); where there are labels or extras, detect_named(canvases,
thresholds) and restore_points(points, geometry), too. Count, order and labels must be equal, numbers within
the tolerance of the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lensbox.artifact.self_test import ExpectedExtra, SelfTest, max_error, tolerance_failures


@dataclass(frozen=True)
class SelfTestReport:
    """How the self-test went; the errors are the largest absolute differences, boxes in pixels."""

    passed: bool
    failures: list[str]
    max_box_error: float
    max_score_error: float
    loss_error: float


@torch.inference_mode()
def run_self_test(
    module: Any, test: SelfTest, device: torch.device, *, rounded: bool = False
) -> SelfTestReport:
    """Run the self-test on a detector, eager or scripted, on `device`.

    module: has the methods of an artifact; a `loss` of None is not tested. rounded: whether a CPU rounds what
    goes into convolutions as GPUs do; then the tolerances of GPUs hold.
    """
    canvases, geometry = module.preprocess([test.image.to(device)])
    boxes, scores, counts = module.detect(canvases, test.score_threshold, test.iou_threshold)
    count = int(counts[0])
    boxes = module.restore(boxes, geometry)[0, :count].cpu()
    scores = scores[0, :count].cpu()
    loss = test.loss
    if module.loss is not None:
        loss = float(module.loss(test.loss_predictions.to(device), test.loss_targets.to(device)))

    device_type = "cpu" if device.type == "cpu" and not rounded else "cuda"
    tolerance = test.tolerances[device_type]
    failures = []
    expected_count = len(test.scores)
    if count != expected_count:
        failures.append(f"expected {expected_count} detections, got {count}")
    common = min(count, expected_count)
    box_error = max_error(boxes[:common], test.boxes[:common])
    score_error = max_error(scores[:common], test.scores[:common])
    loss_error = abs(loss - test.loss)
    errors = (
        ("boxes", "px", box_error, tolerance.boxes),
        ("scores", "", score_error, tolerance.scores),
        ("loss", "", loss_error, tolerance.loss),
    )
    failures += tolerance_failures(errors)
    if test.labels is not None or test.extras:
        found = module.detect_named(canvases, test.score_threshold, test.iou_threshold)
        failures += _label_failures(found, test.labels, common)
        failures += _extra_failures(module, found, geometry, test.extras, common, device_type)
    return SelfTestReport(not failures, failures, box_error, score_error, loss_error)


def _label_failures(found: Mapping[str, Tensor], expected: Tensor | None, count: int) -> list[str]:
    if expected is None:
        return []
    actual, wanted = found["labels"][0, :count].tolist(), expected[:count].tolist()
    return [] if actual == wanted else [f"labels must be {wanted}, got {actual}"]


def _extra_failures(
    module: Any,
    found: Mapping[str, Tensor],
    geometry: Tensor,
    extras: Mapping[str, ExpectedExtra],
    count: int,
    device_type: str,
) -> list[str]:
    errors = []
    for name, extra in extras.items():
        values = module.restore_points(found[name], geometry) if extra.kind == "points" else found[name]
        error = max_error(values[0, :count].cpu().double(), extra.values[:count])
        unit = "px" if extra.kind == "points" else ""
        errors.append((name, unit, error, extra.tolerances[device_type]))
    return tolerance_failures(errors)
