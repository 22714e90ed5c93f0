"""How much the detections change when a detector computes in another precision."""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.ops import box_iou

# A detection and its counterpart overlap by more than this.
_SAME_IOU = 0.5

Detect = Callable[[Tensor, float, float], Mapping[str, Tensor]]


@dataclass
class PrecisionChange:
    """The differences over all detections that both find.

    boxes: the largest difference of each detection's sides, in canvas pixels. It is small, as a rule; where
    two boxes nearly tie, suppression may keep another one, which makes it several pixels. scores: the largest
    difference. unmatched: detections that only one finds, although their score is not near the threshold.
    """

    pictures: int = 0
    boxes: list[float] = field(default_factory=list)
    scores: float = 0.0
    unmatched: int = 0

    @property
    def detections(self) -> int:
        """How many both find."""
        return len(self.boxes)

    @property
    def max_boxes(self) -> float:
        """The largest of `boxes`."""
        return max(self.boxes)

    @property
    def median_boxes(self) -> float:
        """Half of the detections change less."""
        return statistics.median(self.boxes)


class _Detections(NamedTuple):
    """boxes float32 [n, 4], scores float32 [n], labels int64 [n]; full: there were no slots for more."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    full: bool

    def least_score(self, threshold: float) -> float:
        """What a detection needed to be among these."""
        return float(self.scores.min()) if self.full else threshold


@torch.no_grad()
def measure_change(
    exact: Detect,
    changed: Detect,
    canvases: Iterable[Tensor],
    thresholds: tuple[float, float],
    score_limit: float,
) -> PrecisionChange:
    """Compares the detections of two detectors for canvases, uint8 [1, C, H, W] each.

    exact, changed: give the outputs of `detect` by name. thresholds: of scores and of the IoU. A detection is
    compared with the one of its label that overlaps it most; it need not have one if its score is within
    `score_limit` of the threshold, or of the last one where all slots are taken.
    """
    change = PrecisionChange()
    for canvas in canvases:
        change.pictures += 1
        first, second = (_detections(detect(canvas, *thresholds)) for detect in (exact, changed))
        matched, index = _matches(first, second)
        back = _matches(second, first)[0]
        for found, is_matched, other in ((first, matched, second), (second, back, first)):
            clear = found.scores > other.least_score(thresholds[0]) + score_limit
            change.unmatched += int((clear & ~is_matched).sum())
        if matched.any():
            index = index[matched]
            change.boxes += (first.boxes[matched] - second.boxes[index]).abs().amax(dim=1).tolist()
            scores = (first.scores[matched] - second.scores[index]).abs().max()
            change.scores = max(change.scores, float(scores))
    return change


def _detections(found: Mapping[str, Tensor]) -> _Detections:
    """Of the only canvas, on the CPU."""
    count, slots = int(found["counts"][0]), found["scores"].shape[1]
    labels = found.get("labels", torch.zeros_like(found["scores"], dtype=torch.int64))
    boxes, scores, labels = (value[0, :count].cpu() for value in (found["boxes"], found["scores"], labels))
    return _Detections(boxes, scores, labels, full=count == slots)


def _matches(found: _Detections, other: _Detections) -> tuple[Tensor, Tensor]:
    """Whether each detection has a counterpart, bool [n], and which, int64 [n]."""
    if len(other.scores) == 0:
        nothing = torch.zeros(len(found.scores), dtype=torch.int64)
        return nothing.bool(), nothing
    overlap = box_iou(found.boxes, other.boxes)
    overlap = overlap.where(found.labels[:, None] == other.labels, 0.0)
    best, index = overlap.max(dim=1)
    return best > _SAME_IOU, index
