"""Compare the detections of two runtimes as sets: the one rule of self-tests and exports.

Each detection needs a partner of the same label on the other side, within the limits of boxes, scores and
extras, in any order. A detection without a partner may come or go if rounding explains it:

- its score is within the limit of the threshold, or of the last detection where all slots are taken;
- a detection of the other side suppresses it, and which of the two stays depends on rounding: their scores
  are within the limit of each other, or their IoU is within the limit of the IoU threshold. Moving the edges
  of a box of w x h pixels by b pixels changes an IoU by about b / w + b / h; the limit grows by that much.

Such detections are counted as exchanged. The caller decides how many of them there may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.ops import box_iou


class Found(NamedTuple):
    """The detections in one picture, on the CPU.

    boxes: float32 [n, 4]; scores: float32 [n]; labels: int64 [n], zeros for a detector without classes;
    full: whether all slots are taken; extras: further outputs by name, [n, ...].
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    full: bool
    extras: Mapping[str, Tensor]


class Limits(NamedTuple):
    """How far partners may lie apart.

    boxes: pixels; relative: part of a coordinate, allowed beside `boxes`; scores, iou: absolute; extras: the
    largest difference by name, absolute. Extras without a limit are not compared.
    """

    boxes: float
    scores: float
    iou: float
    extras: Mapping[str, float]
    relative: float = 0.0


@dataclass
class Difference:
    """How far two sets of detections lie apart; several pictures add up.

    boxes: largest difference of each pair, in pixels; scores: largest difference of all pairs. exchanged:
    number of detections without a partner, of both sides, that rounding explains. unexplained: a sentence for
    each picture with others. moved: largest distance from a detection without a partner to the detection of
    the other side that overlaps it most, in pixels.
    """

    expected: int = 0
    boxes: list[float] = field(default_factory=list)
    scores: float = 0.0
    exchanged: int = 0
    unexplained: list[str] = field(default_factory=list)
    unexplained_count: int = 0
    moved: float = 0.0
    score_moved: float = 0.0

    @property
    def others(self) -> int:
        """Number of detections without a partner, of both sides."""
        return self.exchanged + self.unexplained_count

    def add(
        self, expected: Found, actual: Found, thresholds: tuple[float, float], limits: Limits, name: str = ""
    ) -> None:
        """Compare what two runtimes find in one picture, called `name`, at thresholds of score and IoU."""
        self.expected += len(expected.scores)
        box, score, same = _apart(expected, actual, limits)
        self._measure(box, score, same)
        overlap = box_iou(expected.boxes, actual.boxes)
        paired, back = same.any(dim=1), same.any(dim=0)
        self._measure_strays(expected, actual, box, score, overlap, paired)
        for one, other, iou, found, others_found in (
            (expected, actual, overlap, paired, back),
            (actual, expected, overlap.T, back, paired),
        ):
            if bool(found.all()):
                continue
            explained = _explained(one, other, iou, others_found, thresholds, limits)
            self.exchanged += int((~found & explained).sum())
            strange = ~found & ~explained
            if strange.any():
                self.unexplained_count += int(strange.sum())
                self.unexplained.append(_described(name, one, other, int(strange.int().argmax())))

    def _measure(self, box: Tensor, score: Tensor, same: Tensor) -> None:
        paired = same.any(dim=1)
        if not paired.any():
            return
        nearest = (box + score).masked_fill(~same, torch.inf)[paired].argmin(dim=1, keepdim=True)
        self.boxes += box[paired].gather(1, nearest)[:, 0].tolist()
        self.scores = max(self.scores, float(score[paired].gather(1, nearest).max()))

    def _measure_strays(
        self,
        expected: Found,
        actual: Found,
        box: Tensor,
        score: Tensor,
        overlap: Tensor,
        paired: Tensor,
    ) -> None:
        """Measure how far detections without a partner moved, for messages."""
        alike = overlap.masked_fill(expected.labels[:, None] != actual.labels, 0.0)
        if paired.all() or alike.numel() == 0:
            return
        best, index = alike[~paired].max(dim=1)
        chosen = best > 0.5
        if chosen.any():
            index = index[chosen][:, None]
            self.moved = max(self.moved, float(box[~paired][chosen].gather(1, index).max()))
            self.score_moved = max(self.score_moved, float(score[~paired][chosen].gather(1, index).max()))


def found_in(answer: Mapping[str, Tensor], slots: int | None, index: int = 0) -> Found:
    """Return the detections of one canvas of a batch, on the CPU.

    slots: the most detections that there can be in a canvas, None for any number.
    """
    count = int(answer["counts"][index])
    labels = answer.get("labels", torch.zeros_like(answer["scores"], dtype=torch.int64))
    boxes, scores, labels = (
        value[index, :count].cpu() for value in (answer["boxes"], answer["scores"], labels)
    )
    known = {"boxes", "scores", "counts", "labels"}
    extras = {name: value[index, :count].cpu() for name, value in answer.items() if name not in known}
    return Found(boxes, scores, labels, 0 < count == slots, extras)


def _apart(expected: Found, actual: Found, limits: Limits) -> tuple[Tensor, Tensor, Tensor]:
    """Return the differences of boxes and scores of all pairs, and whether they may be partners, [n, m]."""
    box = (expected.boxes[:, None] - actual.boxes).abs()
    slack = limits.boxes + limits.relative * expected.boxes.abs()[:, None]
    same = (box <= slack).all(dim=2)
    score = (expected.scores[:, None] - actual.scores).abs()
    same &= (score <= limits.scores) & (expected.labels[:, None] == actual.labels)
    for name, limit in limits.extras.items():
        if same.any():
            count, other = len(expected.scores), len(actual.scores)
            wanted = expected.extras[name].double().reshape(count, 1, -1)
            same &= _close(wanted, actual.extras[name].double().reshape(1, other, -1), limit)
    return box.amax(dim=2), score, same


def _close(wanted: Tensor, got: Tensor, limit: float) -> Tensor:
    """Return whether all numbers of the last dimension are close; NaN equals NaN, infinity itself."""
    equal = (wanted == got) | (wanted.isnan() & got.isnan())
    return (equal | ((wanted - got).abs() <= limit)).all(dim=-1)


def _explained(
    found: Found,
    other: Found,
    overlap: Tensor,
    others_paired: Tensor,
    thresholds: tuple[float, float],
    limits: Limits,
) -> Tensor:
    """Return whether rounding explains that each detection, bool [n], is missing on the other side.

    overlap: IoU with those of the other side, [n, m]; others_paired: whether these have partners, bool [m].
    """
    least = float(other.scores.min()) if other.full else thresholds[0]
    at_threshold = found.scores <= least + limits.scores
    sides = (found.boxes[:, 2:] - found.boxes[:, :2]).clamp(min=limits.boxes)
    slack = limits.iou + (limits.boxes / sides).nan_to_num(0).sum(dim=1, keepdim=True)
    rivals = (overlap > thresholds[1] - slack) & (other.scores >= found.scores[:, None] - limits.scores)
    # A rival that both sides have must overlap it by about the threshold, or both sides would drop it.
    rivals &= ~others_paired | (overlap <= thresholds[1] + slack)
    return at_threshold | rivals.any(dim=1)


def _described(name: str, found: Found, other: Found, index: int) -> str:
    box, score = found.boxes[index], float(found.scores[index])
    numbers = ", ".join(f"{side:.6g}" for side in box.tolist())
    text = f"{name}: a detection of score {score:.6g} at [{numbers}] has no counterpart"
    if len(other.scores):
        distance = (other.boxes - box).abs().amax(dim=1)
        nearest = int(distance.argmin())
        text += (
            f"; the nearest is {float(distance[nearest]):.3g} px off and has a score of "
            f"{float(other.scores[nearest]):.6g}"
        )
    return text
