"""Average precision of boxes (all-point interpolation), by bands of box height.

A box is scored in the band of its labelled height. Boxes of other bands and ignored boxes are no misses, and
a detection that hits one is no false alarm (WIDER FACE's rule, Yang et al. 2016, arXiv:1511.06523). A
detection that hits nothing is a false alarm of each band that its height fits. For this, the low limit of the
band is multiplied by 0.7 and the high limit by 1.4. pycocotools has neither rule: its average precision by
height is one to four points higher.

With several classes, a detection matches only labels of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
# IoU from which a detection hits a box.
MATCH_IOU = 0.5
# Average precision counts detections with at least this score.
SCORE_THRESHOLD = 0.02
LOW_MARGIN, HIGH_MARGIN = 0.7, 1.4


class ImageLabels(NamedTuple):
    """Labelled boxes of one image: boxes float64 [n, 4] (xyxy, canvas pixels), ignore bool [n], classes
    int64 [n], 0 for a detector without classes."""

    boxes: Array
    ignore: Flags
    classes: Indices


class ImageDetections(NamedTuple):
    """Found boxes of one image: boxes float64 [n, 4] (xyxy, canvas pixels), scores float64 [n], classes
    int64 [n], 0 for a detector without classes; all finite."""

    boxes: Array
    scores: Array
    classes: Indices


class Curve(NamedTuple):
    """Detections of a band by falling score: scores float64 [n]; hits bool [n], true positives; total, the
    number of labelled boxes of the band."""

    scores: Array
    hits: Flags
    total: int

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


class Evaluation:
    """Compare detections with labels once, then score any band quickly.

    Raises:
        ValueError: labels and detections are not of as many images.
    """

    def __init__(self, labels: Sequence[ImageLabels], detections: Sequence[ImageDetections]) -> None:
        # Per image: labels, detections by falling score, and IoU [n, m], 0 where the classes differ.
        self._images: list[tuple[ImageLabels, ImageDetections, Array]] = []
        for truth, found in zip(labels, detections, strict=True):
            order = np.argsort(-found.scores, kind="stable")
            ranked = ImageDetections(found.boxes[order], found.scores[order], found.classes[order])
            iou = box_iou(torch.from_numpy(ranked.boxes), torch.from_numpy(truth.boxes)).numpy()
            self._images.append((truth, ranked, iou * (ranked.classes[:, None] == truth.classes)))

    def curve(self, low: float, high: float, wanted: int | None = None) -> Curve:
        """Return the ranked detections of the band of heights [low, high), of all classes or of one."""
        scores, hits, total = [np.zeros(0)], [np.zeros(0, bool)], 0
        for truth, found, iou in self._images:
            height, found_height = (boxes[:, 3] - boxes[:, 1] for boxes in (truth.boxes, found.boxes))
            in_truth, in_found = (wanted is None or each.classes == wanted for each in (truth, found))
            care = (height >= low) & (height < high) & ~truth.ignore & in_truth
            hit = _match(iou, care)
            fits = (found_height >= low * LOW_MARGIN) & (found_height <= high * HIGH_MARGIN)
            false_alarm = fits & ~(iou[:, ~care] >= MATCH_IOU).any(1) & in_found
            counted = hit | false_alarm
            total += int(care.sum())
            scores.append(found.scores[counted])
            hits.append(hit[counted])
        # Images come first to last, so the stable order breaks ties as the reference does.
        order = np.argsort(-np.concatenate(scores), kind="stable")
        return Curve(np.concatenate(scores)[order], np.concatenate(hits)[order], total)

    def table(self, wanted: int | None = None) -> dict[str, float]:
        """Return the average precision by band, of one class or of all boxes as if they had one class."""
        return {name: self.curve(*limits, wanted).average_precision() for name, limits in BANDS.items()}


def _match(iou: Array, care: Flags) -> Flags:
    """Return which detections, by falling score, take a label that counts: each the best one still free."""
    free = np.where(care, iou, 0.0)
    hit = np.zeros(len(iou), np.bool_)
    for rank in np.flatnonzero((free >= MATCH_IOU).any(1)):
        label = free[rank].argmax()
        if free[rank, label] >= MATCH_IOU:
            hit[rank] = True
            free[:, label] = 0.0
    return hit


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
    score = curve.scores[best]
    nearest = np.float32(score)
    return float(nearest if nearest < score else np.nextafter(nearest, np.float32(-np.inf))), float(f1[best])
