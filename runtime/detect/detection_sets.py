"""Compare the detections of two runtimes as sets: the one rule of self-tests and exports.

docs/artifact.md, "The self-test", states the rule. The op library computes it, for the C++ runtime too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.file.self_test import Tolerance


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
