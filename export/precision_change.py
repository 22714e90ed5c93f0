"""How much the detections change when a detector computes in another precision."""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lensbox.model.protocol_check import slots_of
from lensbox.ops import box_iou

# A detection and its counterpart overlap by more than this.
_SAME_IOU = 0.5
# Of several that overlap a detection alike, its counterpart is the one of the nearest score: a score that
# differs by 1 counts as much as this part of the IoU.
_SCORE_SHARE = 0.01

_NO_EXTRAS = frozenset({"boxes", "scores", "counts", "labels"})

Detect = Callable[[Tensor, float, float], Mapping[str, Tensor]]


@dataclass
class PrecisionChange:
    """The differences over all detections that both find.

    boxes: the largest difference of each detection's sides, in canvas pixels. It is small, as a rule; where
    two boxes nearly tie, suppression may keep another one, which makes it several pixels. scores: the largest
    difference. unmatched: detections that only one finds, although their score is not near the threshold.
    extras: the largest difference of what else each detection has, as a part of the largest value in its
    canvas; as many as boxes.
    """

    pictures: int = 0
    boxes: list[float] = field(default_factory=list)
    scores: float = 0.0
    unmatched: int = 0
    extras: list[float] = field(default_factory=list)

    def compare(self, first: "Found", second: "Found", score_threshold: float, score_limit: float) -> None:
        """Adds what two detectors find in one canvas. score_limit: see `measure_change`."""
        self.pictures += 1
        matched, index = matches(first, second)
        back = matches(second, first)[0]
        for found, is_matched, other in ((first, matched, second), (second, back, first)):
            clear = found.scores > other.least_score(score_threshold) + score_limit
            self.unmatched += int((clear & ~is_matched).sum())
        if matched.any():
            index = index[matched]
            self.boxes += (first.boxes[matched] - second.boxes[index]).abs().amax(dim=1).tolist()
            scores = (first.scores[matched] - second.scores[index]).abs().max()
            self.scores = float(np.maximum(self.scores, float(scores)))  # unlike `max`, it keeps a NaN
            self.extras += _extras_apart(first, second, matched, index).tolist()

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


class Found(NamedTuple):
    """boxes float32 [n, 4], scores float32 [n], labels int64 [n]; full: there was no room for more. extras:
    what else there is, by name, [n, ...]."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    full: bool
    extras: Mapping[str, Tensor]

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
    pairs = [(exact(canvas, *thresholds), changed(canvas, *thresholds)) for canvas in canvases]
    first, second = (
        [found_in(answer, slots_of(answers)) for answer in answers] for answers in zip(*pairs, strict=True)
    )
    for one, other in zip(first, second, strict=True):
        change.compare(one, other, thresholds[0], score_limit)
    return change


def found_in(answer: Mapping[str, Tensor], slots: int | None, index: int = 0) -> Found:
    """Of one canvas of a batch, on the CPU. slots: the most that there can be, None for any number."""
    count = int(answer["counts"][index])
    labels = answer.get("labels", torch.zeros_like(answer["scores"], dtype=torch.int64))
    boxes, scores, labels = (
        value[index, :count].cpu() for value in (answer["boxes"], answer["scores"], labels)
    )
    extras = {name: value[index, :count].cpu() for name, value in answer.items() if name not in _NO_EXTRAS}
    return Found(boxes, scores, labels, 0 < count == slots, extras)


def matches(found: Found, other: Found) -> tuple[Tensor, Tensor]:
    """Whether each detection has a counterpart, bool [n], and which, int64 [n]."""
    if len(other.scores) == 0:
        nothing = torch.zeros(len(found.scores), dtype=torch.int64)
        return nothing.bool(), nothing
    overlap = box_iou(found.boxes, other.boxes)
    # Boxes without an area, as those beyond a photograph's edge become, overlap nothing.
    equal = (found.boxes[:, None] == other.boxes).all(dim=2)
    overlap = overlap.masked_fill(equal, 1.0)
    overlap = overlap.where(found.labels[:, None] == other.labels, 0.0)
    apart = (found.scores[:, None] - other.scores).abs()
    index = (overlap - _SCORE_SHARE * apart).argmax(dim=1)
    return overlap.gather(1, index[:, None])[:, 0] > _SAME_IOU, index


def _extras_apart(found: Found, other: Found, matched: Tensor, index: Tensor) -> Tensor:
    """float64 [m], of the m detections that are matched, with the other one's at `index`."""
    apart = torch.zeros(len(index), dtype=torch.float64)
    for name, values in found.extras.items():
        wanted, actual = (
            numbers.double().reshape(len(index), -1)
            for numbers in (values[matched], other.extras[name][index])
        )
        scale = values.double().nan_to_num(0, 0, 0).abs().amax().clamp(min=1e-12)
        # What is no number on both sides, or infinite, is the same.
        same = (wanted == actual) | (wanted.isnan() & actual.isnan())
        differences = ((wanted - actual).abs() / scale).masked_fill(same, 0.0)
        apart = torch.maximum(apart, differences.amax(dim=1))
    return apart
