"""Compare the detections of two runtimes as sets: the one rule of self-tests and exports.

docs/artifact.md, "The self-test", states the rule: each detection needs a partner of the same label on the
other side, within the limits, in any order. Detections without a partner are counted as exchanged if rounding
explains them: they are near the score threshold, or near being suppressed. If all slots of a detector are
used, the lowest score is the threshold; only exports know the number of slots.

Moving the edges of a box of w x h pixels by b pixels changes an IoU by about b / w + b / h, so the limit of
the IoU grows by that much.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.runtime.file.self_test import EXCHANGED_PART


class Found(NamedTuple):
    """The detections in one picture, on the CPU.

    boxes: float32 [n, 4]. scores: float32 [n]. labels: int64 [n], zeros for a detector without classes.
    full: whether all slots are used. extras: further outputs by name, [n, ...].
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    full: bool
    extras: Mapping[str, Tensor]


class Limits(NamedTuple):
    """The largest differences between partners.

    boxes: in pixels. scores, iou: absolute. extras: absolute, by name; extras without a limit are not
    compared. relative: fraction of a coordinate, added to `boxes`.
    """

    boxes: float
    scores: float
    iou: float
    extras: Mapping[str, float]
    relative: float = 0.0


@dataclass
class Difference:
    """The differences of two sets of detections, summed over all pictures.

    expected: number of expected detections. boxes: largest coordinate difference of each pair, in pixels.
    scores: largest difference of all pairs. exchanged, unexplained_count: number of detections without a
    partner, of both sides, that rounding explains and does not explain. unexplained: a sentence for each side
    of a picture with unexplained detections. moved, score_moved: largest differences between an expected
    detection without a partner and the detection of its label that overlaps it most, with an IoU above 0.5.
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
        """Return the number of detections without a partner, of both sides."""
        return self.exchanged + self.unexplained_count

    @property
    def allowed(self) -> int:
        """Return the number of exchanged detections that a self-test allows."""
        return self.expected // EXCHANGED_PART

    def add(
        self, expected: Found, actual: Found, thresholds: tuple[float, float], limits: Limits, name: str
    ) -> None:
        """Compare the detections of two runtimes in a picture. thresholds: of score and IoU."""
        from lensbox.ops import box_iou  # late: `lensbox info` must report an op library that does not load

        self.expected += len(expected.scores)
        box = (expected.boxes[:, None] - actual.boxes).abs().amax(dim=2)
        score = (expected.scores[:, None] - actual.scores).abs()
        rows, columns = _partners(box + score, _match(expected, actual, limits))
        self.boxes += box[rows, columns].tolist()
        self.scores = max([self.scores, *score[rows, columns].tolist()])
        overlap = box_iou(expected.boxes, actual.boxes)
        paired, back = _mask(rows, len(expected.scores)), _mask(columns, len(actual.scores))
        alike = overlap.masked_fill(expected.labels[:, None] != actual.labels, 0.0)
        self._measure_strays(box[~paired], score[~paired], alike[~paired])
        for one, other, iou, apart, found, others_found in (
            (expected, actual, overlap, box, paired, back),
            (actual, expected, overlap.T, box.T, back, paired),
        ):
            if bool(found.all()):
                continue
            explained = _explained(one, other, iou, others_found, thresholds, limits)
            self.exchanged += int((~found & explained).sum())
            strange = ~found & ~explained
            if strange.any():
                self.unexplained_count += int(strange.sum())
                first = int(strange.int().argmax())
                self.unexplained.append(_described(name, one, other, apart, first))

    def _measure_strays(self, box: Tensor, score: Tensor, overlap: Tensor) -> None:
        """Measure how far detections without a partner moved, for messages; all [n, m]."""
        if overlap.numel() == 0:
            return
        best, index = overlap.max(dim=1)
        rows = (best > 0.5).nonzero()[:, 0]
        self.moved = max([self.moved, *box[rows, index[rows]].tolist()])
        self.score_moved = max([self.score_moved, *score[rows, index[rows]].tolist()])


def found_in(answer: Mapping[str, Tensor], slots: int | None, index: int = 0) -> Found:
    """Return the detections of one canvas of a batch, on the CPU. slots: K; None if K varies."""
    count = int(answer["counts"][index])
    labels = answer.get("labels", torch.zeros_like(answer["scores"], dtype=torch.int64))
    boxes, scores, labels = (
        value[index, :count].cpu() for value in (answer["boxes"], answer["scores"], labels)
    )
    known = {"boxes", "scores", "counts", "labels"}
    extras = {name: value[index, :count].cpu() for name, value in answer.items() if name not in known}
    return Found(boxes, scores, labels, 0 < count == slots, extras)


def _match(expected: Found, actual: Found, limits: Limits) -> Tensor:
    """Return which pairs are within the limits, bool [n, m]; False for NaN."""
    box = (expected.boxes[:, None] - actual.boxes).abs()
    same = (box <= limits.boxes + limits.relative * expected.boxes.abs()[:, None]).all(dim=2)
    same &= (expected.scores[:, None] - actual.scores).abs() <= limits.scores
    same &= expected.labels[:, None] == actual.labels
    for name, limit in limits.extras.items():
        if same.any():
            count, other = len(expected.scores), len(actual.scores)
            wanted = expected.extras[name].double().reshape(count, 1, -1)
            same &= _close(wanted, actual.extras[name].double().reshape(1, other, -1), limit)
    return same


def _partners(distance: Tensor, same: Tensor) -> tuple[list[int], list[int]]:
    """Return the indices of the partners on both sides, assigned greedily from the nearest pair on."""
    rows, columns = same.nonzero(as_tuple=True)
    order = distance[rows, columns].argsort(stable=True)
    partners: dict[int, int] = {}
    taken: set[int] = set()
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if row not in partners and column not in taken:
            partners[row] = column
            taken.add(column)
    return list(partners), list(partners.values())


def _mask(indices: list[int], size: int) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool, device="cpu")
    mask[indices] = True
    return mask


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
    """Return whether rounding explains that each detection is missing on the other side, bool [n].

    other: the detections of the other side. overlap: IoU with them, [n, m]. others_paired: whether they have
    partners, bool [m].
    """
    least = float(other.scores.min()) if other.full else thresholds[0]
    at_threshold = found.scores <= least + limits.scores
    sides = (found.boxes[:, 2:] - found.boxes[:, :2]).clamp(min=limits.boxes)
    slack = limits.iou + (limits.boxes / sides).nan_to_num(0).sum(dim=1, keepdim=True)
    rivals = (overlap > thresholds[1] - slack) & (other.scores >= found.scores[:, None] - limits.scores)
    # A rival that both sides have must overlap it by about the threshold, or both sides would drop it.
    rivals &= ~others_paired | (overlap <= thresholds[1] + slack)
    return found.boxes.isfinite().all(dim=1) & (at_threshold | rivals.any(dim=1))


def _described(name: str, found: Found, other: Found, apart: Tensor, index: int) -> str:
    numbers = ", ".join(f"{side:.6g}" for side in found.boxes[index].tolist())
    text = f"{name}: a detection of score {float(found.scores[index]):.6g} at [{numbers}] has no counterpart"
    if len(other.scores):
        nearest = int(apart[index].argmin())
        text += (
            f"; the nearest is {float(apart[index, nearest]):.3g} px off and has a score of "
            f"{float(other.scores[nearest]):.6g}"
        )
    return text
