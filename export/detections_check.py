"""Whether another runtime's detections are those of the detector, up to rounding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lensbox.artifact.self_test import TOLERANCES
from lensbox.export.predictions_check import BOX_RELATIVE_TOLERANCE, BOX_TOLERANCE
from lensbox.export.self_test_builder import VALUE_TOLERANCES
from lensbox.ops import box_iou

Answer = Mapping[
    str, Tensor
]  # boxes, scores, and what else there is for each detection of one image, [n, ...]

SCORE_TOLERANCE = TOLERANCES["cpu"].scores
_VALUE_TOLERANCE = VALUE_TOLERANCES["cpu"]
# Two boxes of which one suppresses the other overlap by the IoU threshold, which few set below this.
_OVERLAP = 0.3
# Of two boxes whose scores differ by less than rounding does, either may stay. That is rare.
_MOST_TIES = 0.01


@dataclass
class Agreement:
    """How far the detections of another runtime lie from those of the detector, over all images so far.

    detections: those of the detector. boxes: the largest difference, in canvas pixels; scores: the same.
    ties: detections instead of which another one of the same score was found. failures: what differs beyond
    rounding, a sentence each.
    """

    detections: int = 0
    boxes: float = 0.0
    scores: float = 0.0
    ties: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing differs beyond rounding."""
        return not self.failures and self.ties <= _MOST_TIES * self.detections

    def verdict(self) -> str:
        """The first failures, "" where there are none."""
        failures = self.failures[:3]
        if self.ties and not self.holds:
            failures.append(
                f"{self.ties} of {self.detections} detections are others than the detector's, of about the "
                "same score"
            )
        return "; ".join(failures)

    def describe(self, batches: Sequence[int]) -> str:
        """What was compared, in batches of these sizes, as the end of a sentence."""
        return (
            f"{self.detections} detections, in batches of {', '.join(map(str, batches))}, boxes within "
            f"{self.boxes:.5f} px and scores within {self.scores:.6f}, {self.ties} exchanged for others of "
            "the same score"
        )

    def compare(
        self, expected: Answer, actual: Answer, score_threshold: float, slots: int | None, name: str
    ) -> None:
        """Adds what is found in one image, called `name`. slots: the most that can be found, None for any
        number."""
        self.detections += len(expected["scores"])
        wrong = [output for output in expected if _malformed(expected[output], actual[output])]
        if wrong:
            self.failures.append(f"{name}: {', '.join(wrong)} are of another dtype or shape, or not finite")
            return
        same = _same(expected, actual)
        found = same.any(dim=1)
        if found.any():
            # The nearest in score among those that are the same.
            apart = (expected["scores"][:, None] - actual["scores"]).abs().masked_fill(~same, torch.inf)
            apart, index = (value[found] for value in apart.min(dim=1))
            self.scores = max(self.scores, float(apart.max()))
            boxes = (expected["boxes"][found] - actual["boxes"][index]).abs()
            self.boxes = max(self.boxes, float(boxes.max()))
        for first, second, is_found in ((expected, actual, found), (actual, expected, same.any(dim=0))):
            full = 0 < len(second["scores"]) == slots
            least = float(second["scores"].min()) if full else score_threshold
            clear = first["scores"] > least + SCORE_TOLERANCE
            lost = clear & ~is_found
            tied = lost & _tied(first, second)
            self.ties += int(tied.sum())
            if (lost & ~tied).any():
                self.failures.append(_described(name, first, second, int((lost & ~tied).int().argmax())))
                return


def _malformed(expected: Tensor, actual: Tensor) -> bool:
    same = expected.dtype == actual.dtype and expected.shape[1:] == actual.shape[1:]
    return not same or not bool(actual.isfinite().all())


def _same(expected: Answer, actual: Answer) -> Tensor:
    """bool [n, m]: which detections are the same, up to rounding, in all that there is of them."""
    count, other = len(expected["scores"]), len(actual["scores"])
    same = torch.ones(count, other, dtype=torch.bool)
    for name, wanted in expected.items():
        if name == "scores":
            tolerance = torch.tensor(SCORE_TOLERANCE)
        elif name == "boxes":
            tolerance = BOX_TOLERANCE + BOX_RELATIVE_TOLERANCE * wanted.abs()[:, None]
        elif wanted.is_floating_point():
            tolerance = _VALUE_TOLERANCE * wanted.abs().amax() if wanted.numel() else torch.tensor(0.0)
        else:
            tolerance = torch.tensor(0)
        close = (wanted[:, None] - actual[name]).abs() <= tolerance
        same &= close.flatten(2).all(dim=2) if close.dim() > 2 else close
    return same


def _tied(found: Answer, other: Answer) -> Tensor:
    """bool [n]: whether the other side has, in its place, an overlapping detection of the same score."""
    if len(other["scores"]) == 0:
        return torch.zeros(len(found["scores"]), dtype=torch.bool)
    near = (found["scores"][:, None] - other["scores"]).abs() <= SCORE_TOLERANCE
    return (near & (box_iou(found["boxes"], other["boxes"]) > _OVERLAP)).any(dim=1)


def _described(name: str, found: Answer, other: Answer, index: int) -> str:
    box, score = found["boxes"][index], float(found["scores"][index])
    numbers = ", ".join(f"{side:.6g}" for side in box.tolist())
    text = f"{name}: a detection of score {score:.6g} at [{numbers}] has no counterpart"
    if len(other["scores"]):
        distance = (other["boxes"] - box).abs().amax(dim=1)
        nearest = int(distance.argmin())
        text += (
            f"; the nearest is {float(distance[nearest]):.3g} px off and has a score of "
            f"{float(other['scores'][nearest]):.6g}"
        )
    return text
