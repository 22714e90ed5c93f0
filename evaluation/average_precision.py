"""Match detections with labels once, then score the matches by COCO's rule and by bands of box height.

COCO's rule follows pycocotools: ten IoU thresholds, the 100 best detections of a photograph and class, and
101 recalls. Ignored boxes are crowds: a detection that lies in one is neither right nor wrong.

By height, with all-point interpolation at IoU 0.5, a box is scored in the band of its labelled height. Boxes
of other bands and ignored boxes are no misses, and a detection that hits one is no false alarm (WIDER FACE's
rule, Yang et al. 2016, arXiv:1511.06523). A detection that hits nothing is a false alarm of each band that
its height fits: the low limit of the band is multiplied by 0.7 and the high limit by 1.4. pycocotools has
neither rule: its average precision by height is one to four points higher.

With several classes, a detection matches only labels of its class.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from lensbox.ops import box_iou

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

# Height in canvas pixels, lower limit included.
BANDS: dict[str, tuple[float, float]] = {
    "all>=8": (8, 1e9),
    "large>=32": (32, 1e9),
    "medium16-32": (16, 32),
    "small8-16": (8, 16),
    "tiny4-8": (4, 8),
}
MATCH_IOU = 0.5  # from which a detection hits a box
LOW_MARGIN, HIGH_MARGIN = 0.7, 1.4
# COCO's: IoU thresholds, recalls, limits of the area in pixels of the photograph, most detections.
IOUS, RECALLS = np.linspace(0.5, 0.95, 10), np.linspace(0, 1, 101)
AREAS = {"all": (0, 1e10), "small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, 1e10)}
MOST = (1, 10, 100)
HIT, IGNORED = 1, -1


class Labels(NamedTuple):
    """Labelled boxes of one photograph: boxes float64 [n, 4] (xyxy, pixels of the photograph), ignore bool
    [n], classes int64 [n], 0 for a detector without classes, areas float64 [n] in pixels."""

    boxes: Array
    ignore: Flags
    classes: Indices
    areas: Array


class Predictions(NamedTuple):
    """Found boxes of one photograph: boxes float64 [n, 4] (xyxy, pixels of the photograph), scores float64
    [n], classes int64 [n], 0 for a detector without classes; all finite."""

    boxes: Array
    scores: Array
    classes: Indices


class Curve:
    """Precision and recall over the detections that count, by falling score.

    scores: float64 [n]. hits: bool [n], true positives. total: number of labelled boxes. `envelope` is the
    highest precision at this recall or a higher one.
    """

    def __init__(self, scores: Array, hits: Flags, total: int) -> None:
        self.scores, self.total, found = scores, total, hits.cumsum()
        self.recall: Array = found / max(total, 1)
        self.precision: Array = found / np.arange(1, len(hits) + 1)
        self.envelope: Array = np.maximum.accumulate(self.precision[::-1])[::-1]

    @property
    def f1(self) -> Array:
        return 2 * self.precision * self.recall / np.maximum(self.precision + self.recall, 1e-9)

    def average_precision(self) -> float:
        """Return the area under the envelope; NaN without labelled boxes."""
        steps = np.diff(self.recall, prepend=0.0) * self.envelope
        return float(steps.sum()) if self.total else float("nan")

    def best_threshold(self) -> tuple[float, float]:
        """Return the largest float32 threshold with the best F1, and that F1: higher scores count.

        Return (NaN, 0) without detections or labels.
        """
        if not self.total or not len(self.scores):
            return float("nan"), 0.0
        f1 = self.f1
        f1[:-1][self.scores[:-1] == self.scores[1:]] = 0.0  # no threshold parts detections of equal scores
        best = int(f1.argmax())
        nearest = np.float32(self.scores[best])
        below = nearest if nearest < self.scores[best] else np.nextafter(nearest, np.float32(-np.inf))
        return float(below), float(f1[best])


class Matched(NamedTuple):
    """A photograph, its detections by falling score, and what they match.

    rank: int64 [n], place of a detection in its class. hits: int64 [n], the class of the label that it hits
    by place alone; -1 background, -2 an ignored one. takers: float64 [m], the score of the detection that
    hits a label by place alone; -inf without one. codes: int8 [rows, n], see `Matches`.
    """

    labels: Labels
    found: Predictions
    rank: Indices
    hits: Indices
    takers: Array
    codes: npt.NDArray[np.int8]


class Matches:
    """The matches of the detections in many photographs, of which each is added and scored alone.

    classes: their number. Rows of codes are the bands, then COCO's areas times IoU thresholds.
    """

    def __init__(self, classes: int = 1) -> None:
        self.classes = classes
        self.totals = np.zeros([len(BANDS) + len(AREAS) * len(IOUS), classes], np.int64)
        self.images: list[Matched] = []

    def add(self, labels: Labels, found: Predictions, scale: float = 1.0) -> None:
        """Add a photograph. scale: of heights, from the photograph to the canvas."""
        order = np.argsort(-found.scores, kind="stable")
        found = Predictions(found.boxes[order], found.scores[order], found.classes[order])
        rank = np.zeros(len(order), np.int64)
        for label in set(found.classes.tolist()):
            rank[found.classes == label] = np.arange((found.classes == label).sum())
        iou = box_iou(torch.from_numpy(found.boxes), torch.from_numpy(labels.boxes)).numpy()
        is_same, crowds = found.classes[:, None] == labels.classes, labels.ignore[None]
        area, counted = np.prod(found.boxes[:, 2:] - found.boxes[:, :2], 1), rank < MOST[-1]

        low, high = np.array([*BANDS.values()]).T[:, :, None]
        height, found_height = (scale * (boxes[:, 3] - boxes[:, 1]) for boxes in (labels.boxes, found.boxes))
        least, most = np.repeat([*AREAS.values()], len(IOUS), 0).T[:, :, None]
        # Labels that a row ignores, and detections that it ignores unless they match: of bands, of areas.
        other = crowds | (height < low) | (height >= high)
        out = crowds | (labels.areas < least) | (labels.areas > most)
        not_of_band = (found_height < low * LOW_MARGIN) | (found_height > high * HIGH_MARGIN)
        beyond = (area < least) | (area > most) | ~counted
        # In the columns of ignored labels, the share of each detection that lies in the label.
        corners, others = found.boxes[:, None], labels.boxes[labels.ignore]
        sides = np.minimum(corners[..., 2:], others[:, 2:]) - np.maximum(corners[..., :2], others[:, :2])
        shares = iou.copy()
        shares[:, labels.ignore] = sides.clip(0).prod(2) / np.maximum(area, 1e-300)[:, None]

        of_bands = match(iou * is_same, np.full(len(low), MATCH_IOU), other, other)
        reusable, ious = np.broadcast_to(crowds, out.shape), np.tile(IOUS, len(AREAS))
        taken = np.concatenate([of_bands, match(shares * is_same * counted[:, None], ious, out, reusable)])
        (place,) = match(iou, np.array([MATCH_IOU]), crowds, crowds)
        ignored, unfit = np.concatenate([other, out]), np.concatenate([not_of_band, beyond])
        of_label = np.take_along_axis(np.pad(ignored, [(0, 0), (0, 1)]), taken, 1)  # -1 is the added column
        codes = np.where(np.where(taken < 0, unfit, of_label), IGNORED, taken >= 0).astype(np.int8)
        self.totals += [np.bincount(labels.classes[~row], minlength=self.classes) for row in ignored]
        hits = np.append(np.where(labels.ignore, -2, labels.classes), -1)[place]
        takers = np.full(len(labels.boxes) + 1, -np.inf)
        np.maximum.at(takers, place, found.scores)
        self.images.append(Matched(labels, found, rank, hits, takers[:-1], codes))

    @cached_property
    def _joined(self) -> list[Any]:
        parts = [(one.found.scores, one.found.classes, one.rank, one.hits, one.codes) for one in self.images]
        return [np.concatenate(column, -1) for column in zip(*parts, strict=True)]

    @cached_property
    def _by_class(self) -> list[Indices]:
        classes = self._joined[1]
        order = np.argsort(classes, kind="stable")
        return np.split(order, np.searchsorted(classes[order], np.arange(1, self.classes)))

    def curve(self, row: int = 0, label: int | None = None, most: int | None = None) -> Curve:
        """Return the curve of a row, of one class or of all; most: best detections of a photograph."""
        scores, _, ranks, _, codes = self._joined
        of_class = slice(None) if label is None else self._by_class[label]
        scores, ranks, codes = scores[of_class], ranks[of_class], codes[row][of_class]
        counted = (codes != IGNORED) & (True if most is None else ranks < most)
        # Photographs come first to last, so the stable order breaks ties as pycocotools does.
        order = np.argsort(-scores[counted], kind="stable")
        total = int(self.totals[row].sum() if label is None else self.totals[row, label])
        return Curve(scores[counted][order], (codes[counted] == HIT)[order], total)

    def table(self, label: int | None = None) -> dict[str, float]:
        """Return the average precision by band, of one class or of all boxes as if they had one class."""
        return {name: self.curve(row, label).average_precision() for row, name in enumerate(BANDS)}

    def coco(self) -> tuple[Array, Array]:
        """Return pycocotools' arrays: precision [T, R, K, A, M], recall [T, K, A, M]; NaN without boxes."""
        shape = len(IOUS), self.classes, len(AREAS), len(MOST)
        precision = np.full([shape[0], len(RECALLS), *shape[1:]], np.nan)
        recall = np.full(shape, np.nan)
        for t, k, a, m in np.ndindex(*shape):
            curve = self.curve(len(BANDS) + a * len(IOUS) + t, k, MOST[m])
            if curve.total:
                place = np.searchsorted(curve.recall, RECALLS)
                precision[t, :, k, a, m] = np.append(curve.envelope, 0.0)[place]
                recall[t, k, a, m] = curve.recall.max(initial=0.0)
        return precision, recall

    def confusion(self, threshold: float) -> Indices:
        """Return how many boxes of class row were found as class column; the last ones are background."""
        scores, found, _, hits, _ = self._joined
        table = np.zeros([self.classes + 1] * 2, np.int64)
        counted = (scores > threshold) & (hits != -2)
        np.add.at(table, (hits[counted], found[counted]), 1)
        for one in self.images:
            misses = one.labels.classes[(one.takers <= threshold) & ~one.labels.ignore]
            table[:, -1] += np.bincount(misses, minlength=len(table))
        return table


def match(iou: Array, thresholds: Array, ignored: Flags, reusable: Flags) -> Indices:
    """Return [R, n]: the index of the label that each detection takes in each row of rules, -1 for none.

    Each takes the best label that is still free, the last of equals; ignored ones only if no other is left.
    iou: [n, m], detections by falling score. thresholds: [R], least IoU. ignored, reusable: [R, m], labels
    that do not count, and those that many detections may take.
    """
    free = np.ones_like(ignored)
    taken = np.full([len(thresholds), len(iou)], -1, np.int64)
    for rank in np.flatnonzero((iou >= thresholds.min()).any(1)):
        able = free & (iou[rank] >= thresholds[:, None])
        wanted = able & ~ignored
        able = np.where(wanted.any(1, keepdims=True), wanted, able)
        best = len(iou[rank]) - 1 - np.where(able, iou[rank], -1.0)[:, ::-1].argmax(1)
        rows = np.flatnonzero(able.any(1))
        taken[rows, rank] = best[rows]
        free[rows, best[rows]] = reusable[rows, best[rows]]
    return taken
