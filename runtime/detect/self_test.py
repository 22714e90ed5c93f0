"""Run the self-test in an artifact; compare the detections of two runtimes as sets, as exports do, too.

docs/artifact.md, "The self-test", states the rule. The op library computes it, for the C++ runtime too.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lensbox.runtime.detect.detection import Detections, detections_in
from lensbox.runtime.file.self_test import SelfTest, Tolerance


@dataclass
class Difference:
    """The differences of two sets of detections, summed over all pictures.

    expected: number of expected detections. boxes: largest coordinate difference of each pair, in pixels.
    scores: largest difference of all pairs. by_rounding, unexplained_count: number of unmatched detections,
    without a partner, of both sides, that rounding explains and does not explain. unexplained: a sentence for
    each side of a picture with unexplained detections. moved, score_moved: largest differences between an
    unmatched expected detection and the detection of its label that overlaps it most, with an IoU above 0.5.
    """

    expected: int = 0
    boxes: list[float] = field(default_factory=list)
    scores: float = 0.0
    by_rounding: int = 0
    unexplained: list[str] = field(default_factory=list)
    unexplained_count: int = 0
    moved: float = 0.0
    score_moved: float = 0.0

    @property
    def unmatched(self) -> int:
        """Return the number of detections without a partner, of both sides."""
        return self.by_rounding + self.unexplained_count

    def add(
        self,
        expected: Detections,
        actual: Detections,
        thresholds: tuple[float, float],
        tolerance: Tolerance,
        name: str,
        slots: int | None = None,
    ) -> None:
        """Compare the detections of two runtimes in a picture.

        thresholds: of score and IoU. name: of the picture, for sentences. slots: K, the most detections that
        a canvas can have; None if K varies.
        """
        import lensbox.ops  # noqa: F401 (late: `lensbox info` must report an op library that does not load)

        boxes, numbers, unexplained = torch.ops.lensbox_runtime.compare(
            _tensors(expected, tolerance.extras),
            _tensors(actual, tolerance.extras),
            *thresholds,
            [tolerance.boxes, tolerance.relative, tolerance.scores, tolerance.iou],
            list(tolerance.extras.values()),
            [0 < len(found.scores) == slots for found in (expected, actual)],
        )
        scores, by_rounding, unexplained_count, moved, score_moved = numbers
        self.expected += len(expected.scores)
        self.boxes += boxes
        self.scores = max(self.scores, scores)
        self.by_rounding += int(by_rounding)
        self.unexplained += [f"{name}: {sentence}" for sentence in unexplained]
        self.unexplained_count += int(unexplained_count)
        self.moved = max(self.moved, moved)
        self.score_moved = max(self.score_moved, score_moved)


def _tensors(found: Detections, extras: Iterable[str]) -> list[Tensor]:
    """Return boxes, scores, labels and these extras, which a picture without detections may lack."""
    labels = torch.zeros_like(found.scores, dtype=torch.int64) if found.labels is None else found.labels
    further = (found.extras[name] if len(found.scores) else found.scores for name in extras)
    return [found.boxes, found.scores, labels, *further]


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
