"""Average precision of boxes (all-point interpolation), by bands of box height.

A box is scored in the band of its labelled height. Boxes of other bands and ignored boxes are no misses, and
a detection that hits one is no false alarm (WIDER FACE's rule, Yang et al. 2016, arXiv:1511.06523). A
detection that hits nothing is a false alarm of each band that its height fits. For this, the low limit of the
band is multiplied by 0.7 and the high limit by 1.4.

With several classes, a detection matches only labels of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from lensbox.ops import box_iou

Array = npt.NDArray[np.float64]

# Height in canvas pixels, lower limit included.
BANDS: dict[str, tuple[float, float]] = {
    "all>=8": (8, 1e9),
    "large>=32": (32, 1e9),
    "medium16-32": (16, 32),
    "small8-16": (8, 16),
    "tiny4-8": (4, 8),
}
# IoU from which a detection hits a box.
MATCH_IOU = 0.5
# Average precision counts detections with at least this score.
SCORE_THRESHOLD = 0.02
LOW_MARGIN, HIGH_MARGIN = 0.7, 1.4


@dataclass(frozen=True)
class ImageLabels:
    """Labelled boxes of one image: boxes float64 [n, 4] (xyxy, canvas pixels), ignore bool [n], classes
    int64 [n]; without classes all boxes are of class 0."""

    boxes: Array
    ignore: npt.NDArray[np.bool_]
    classes: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class ImageDetections:
    """Found boxes of one image: boxes float64 [n, 4] (xyxy, canvas pixels), scores float64 [n], classes
    int64 [n]; without classes all boxes are of class 0."""

    boxes: Array
    scores: Array
    classes: npt.NDArray[np.int64] | None = None


def class_indices(image: ImageLabels | ImageDetections) -> npt.NDArray[np.int64]:
    """Return the class of each box, int64 [n]."""
    return np.zeros(len(image.boxes), np.int64) if image.classes is None else image.classes


def _of_class(image: ImageLabels | ImageDetections, wanted: int | None) -> npt.NDArray[np.bool_]:
    """Return bool [n], true for boxes of a class; true for all boxes if `wanted` is None."""
    return np.full(len(image.boxes), True) if wanted is None else class_indices(image) == wanted


@dataclass(frozen=True)
class Curve:
    """Detections of a band by falling score.

    Attributes:
        scores: float64 [n]. hits: bool [n], true positives. total: labelled boxes of the band.
        image, detection: int64 [n], the index of the image and of the detection within it.
        label: int64 [n], the index of the labelled box that it took; -1 for a false alarm.
    """

    scores: Array
    hits: npt.NDArray[np.bool_]
    total: int
    image: npt.NDArray[np.int64]
    detection: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]

    @property
    def recall(self) -> Array:
        return np.asarray(self.hits.cumsum() / max(self.total, 1), np.float64)

    @property
    def precision(self) -> Array:
        return np.asarray(self.hits.cumsum() / np.arange(1, len(self.hits) + 1), np.float64)

    def average_precision(self) -> float:
        """Return the area under the precision-recall curve made monotone; NaN for a band without boxes."""
        if not self.total:
            return float("nan")
        envelope = np.maximum.accumulate(self.precision[::-1])[::-1]
        return float(np.sum(np.diff(np.concatenate([[0.0], self.recall])) * envelope))


def iou_matrix(boxes1: Array, boxes2: Array) -> Array:
    """Return IoU [n, m] of boxes [n, 4] and [m, 4], xyxy."""
    iou: Array = box_iou(torch.from_numpy(boxes1), torch.from_numpy(boxes2)).numpy()
    return iou


class Evaluation:
    """Compare detections with labels once, then score any band quickly.

    Raises:
        ValueError: labels and detections are not of as many images.
    """

    def __init__(self, labels: Sequence[ImageLabels], detections: Sequence[ImageDetections]) -> None:
        if len(labels) != len(detections):
            raise ValueError(
                f"labels and detections must be of as many images, got {len(labels)} and {len(detections)}"
            )
        self.labels = labels
        self.detections = detections
        self._order: list[npt.NDArray[np.int64]] = []
        # Per image: rank of a detection -> labels with IoU >= MATCH_IOU, sorted by IoU, then by index. Few
        # detections have any.
        self._overlaps: list[dict[int, list[int]]] = []
        for truth, found in zip(labels, detections, strict=True):
            order = np.argsort(-found.scores, kind="stable")
            overlaps: dict[int, list[int]] = {}
            if len(truth.boxes) and len(order):
                matrix = iou_matrix(found.boxes[order], truth.boxes)
                matrix = matrix * (class_indices(found)[order][:, None] == class_indices(truth))
                ranks, near = np.nonzero(matrix >= MATCH_IOU)
                ious = matrix[ranks, near]
                best_first = np.lexsort((near, -ious, ranks))
                for rank, label in zip(ranks[best_first].tolist(), near[best_first].tolist(), strict=True):
                    overlaps.setdefault(rank, []).append(label)
            self._order.append(order)
            self._overlaps.append(overlaps)

    def curve(self, low: float, high: float, wanted: int | None = None) -> Curve:
        """Return the ranked detections of the band of heights [low, high), of all classes or of one."""
        scores, images, ranks, labels, total = [], [], [], [], 0
        for index, (truth, found) in enumerate(zip(self.labels, self.detections, strict=True)):
            height = truth.boxes[:, 3] - truth.boxes[:, 1]
            care = (height >= low) & (height < high) & ~truth.ignore & _of_class(truth, wanted)
            total += int(care.sum())
            order = self._order[index]
            overlaps = self._overlaps[index]
            of_class = _of_class(found, wanted)[order]
            # Detections of other classes hit no label of this class.
            overlaps = {rank: pairs for rank, pairs in overlaps.items() if of_class[rank]}
            label, free = self._match(overlaps, care, len(order))
            found_height = (found.boxes[:, 3] - found.boxes[:, 1])[order]
            outside = (found_height < low * LOW_MARGIN) | (found_height > high * HIGH_MARGIN)
            counted = np.flatnonzero(((label >= 0) | ~(free | outside)) & of_class)
            scores.append(found.scores[order[counted]])
            images.append(np.full(len(counted), index, np.int64))
            ranks.append(order[counted])
            labels.append(label[counted])
        # Images come first to last, so the stable order breaks ties as the reference does.
        all_scores = np.concatenate([np.zeros(0), *scores])
        by_score = np.argsort(-all_scores, kind="stable")
        taken, image, detection = (
            np.concatenate([np.zeros(0, np.int64), *parts])[by_score] for parts in (labels, images, ranks)
        )
        return Curve(all_scores[by_score], taken >= 0, total, image, detection, taken)

    @staticmethod
    def _match(
        overlaps: dict[int, list[int]], care: npt.NDArray[np.bool_], count: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Match greedily by falling score.

        Return took [count], the label of the band that each detection took, or -1; and free [count], true for
        detections that hit only labels that do not count: they are neither right nor wrong.
        """
        took, free = np.full(count, -1, np.int64), np.zeros(count, np.bool_)
        is_open = care.tolist()
        counts = list(is_open)
        for rank in sorted(overlaps):
            for label in overlaps[rank]:
                if is_open[label]:
                    took[rank], free[rank] = label, False
                    is_open[label] = False
                    break
                free[rank] |= not counts[label]
        return took, free

    def table(self, wanted: int | None = None) -> dict[str, float]:
        """Return the average precision by band, of one class or of all boxes as if they had one class."""
        return {name: self.curve(*limits, wanted).average_precision() for name, limits in BANDS.items()}


def threshold_of_best_f1(curve: Curve) -> tuple[float, float]:
    """Return the threshold that gives the best F1 (harmonic mean of precision and recall), and that F1.

    Detections with higher scores count. The threshold is the largest float32 number below the lowest score
    that counts. Return (NaN, 0) without detections or labels.
    """
    if not curve.total or not len(curve.scores):
        return float("nan"), 0.0
    precision, recall = curve.precision, curve.recall
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
    # No threshold parts detections of equal scores.
    f1[:-1][curve.scores[:-1] == curve.scores[1:]] = 0.0
    best = int(f1.argmax())
    return _below(curve.scores[best]), float(f1[best])


def _below(score: float) -> float:
    nearest = np.float32(score)
    return float(nearest if nearest < score else np.nextafter(nearest, np.float32(-np.inf)))
