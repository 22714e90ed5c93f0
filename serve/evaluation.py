"""How well what was found fits what is there: of each image, of all, and by score threshold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lensbox.runtime.box_loss import BoxPairs
from lensbox.serve.detecting import Found
from lensbox.train.average_precision import (
    COCO_IOUS,
    MATCH_IOU,
    Curve,
    Evaluation,
    ImageDetections,
    ImageLabels,
    threshold_of_best_f1,
)

THRESHOLDS = tuple(tenth / 10 for tenth in range(1, 10))


@dataclass(frozen=True)
class Figures:
    """images: of each, counts at the threshold and which boxes were missed. total: of all of them, as JSON
    has it. hits: the detections above the threshold that hit, with their boxes, as a loss takes them."""

    images: list[dict[str, Any]]
    total: dict[str, Any]
    hits: BoxPairs


def figures(
    found: Sequence[Found],
    labels: Sequence[ImageLabels],
    classes: Sequence[str],
    threshold: float,
    match_iou: float = MATCH_IOU,
) -> Figures:
    """Those of detections with scores from `SCORE_THRESHOLD` up, and the boxes of the same images.

    threshold: score above which detections count in the counts. match_iou: IoU from which one hits a box.
    """
    detections = [_detections(one) for one in found]
    matched = Evaluation(labels, detections, min(match_iou, *COCO_IOUS))
    curve = matched.curve(0.0, math.inf, match_iou=match_iou)
    best, best_f1 = threshold_of_best_f1(curve)
    total: dict[str, Any] = {
        "match_iou": match_iou,
        **_counts(curve, threshold),
        "thresholds": [_counts(curve, at) for at in THRESHOLDS],
        "best_f1": best_f1,
        "recommended_threshold": _number(best),
    }
    precisions = _precisions(matched, curve)
    if classes:
        by_class = _by_class(matched, classes, threshold, match_iou)
        total["classes"] = by_class
        known = [one for one in by_class.values() if one["boxes"]]
        precisions = {name: _mean([one[name] for one in known]) for name in precisions}
    total |= precisions if len(found) > 1 else dict.fromkeys(precisions)

    above = curve.hits & (curve.scores > threshold)
    hits = [np.flatnonzero(above & (curve.image == index)) for index in range(len(found))]
    images = [_image(curve, labels[index], index, hits[index], threshold) for index in range(len(found))]
    return Figures(images, total, _pairs(curve, detections, labels, hits))


def _detections(found: Found) -> ImageDetections:
    one = found.detections
    labels = None if one.labels is None else one.labels.numpy()
    return ImageDetections(one.boxes.double().numpy(), one.scores.double().numpy(), labels)


def _counts(curve: Curve, threshold: float) -> dict[str, Any]:
    """What detections with higher scores than `threshold` get right; null is a share of nothing."""
    count = int((curve.scores > threshold).sum())
    hits = int(curve.hits[:count].sum())
    return {
        "score_threshold": threshold,
        "hits": hits,
        "false_alarms": count - hits,
        "misses": curve.total - hits,
        "precision": hits / count if count else None,
        "recall": hits / curve.total if curve.total else None,
    }


def _precisions(matched: Evaluation, curve: Curve, wanted: int | None = None) -> dict[str, float | None]:
    """Average precision of a curve, and COCO's; null is that of no boxes."""
    return {
        "average_precision": _number(curve.average_precision()),
        "average_precision_50_95": _number(matched.coco_average_precision(wanted)),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _by_class(
    matched: Evaluation, classes: Sequence[str], threshold: float, match_iou: float
) -> dict[str, dict[str, Any]]:
    """Of each class that is among the boxes or the detections."""
    there: set[int] = set()
    for found, image in zip(matched.detections, matched.labels, strict=True):
        for labels in (found.classes, image.classes):
            there |= set([] if labels is None else labels.tolist())
    curves = {label: matched.curve(0.0, math.inf, label, match_iou) for label in sorted(there)}
    return {
        classes[label]: {
            "boxes": curve.total,
            **_counts(curve, threshold),
            **_precisions(matched, curve, label),
        }
        for label, curve in curves.items()
    }


def _image(
    curve: Curve, labels: ImageLabels, index: int, hits: "np.ndarray[Any, Any]", threshold: float
) -> dict[str, Any]:
    wanted = set(np.flatnonzero(~labels.ignore).tolist())
    missed = sorted(wanted - set(curve.label[hits].tolist()))
    count = int(((curve.image == index) & (curve.scores > threshold)).sum())
    return {
        "hits": len(hits),
        "false_alarms": count - len(hits),
        "misses": len(missed),
        "missed": missed,
    }


def _pairs(
    curve: Curve,
    detections: Sequence[ImageDetections],
    labels: Sequence[ImageLabels],
    hits: Sequence["np.ndarray[Any, Any]"],
) -> BoxPairs:
    boxes = [image.boxes[curve.detection[of]] for image, of in zip(detections, hits, strict=True)]
    targets = [image.boxes[curve.label[of]] for image, of in zip(labels, hits, strict=True)]
    predictions, wanted = (
        torch.from_numpy(np.concatenate([np.zeros([0, 4]), *rows])) for rows in (boxes, targets)
    )
    return BoxPairs(predictions, wanted, tuple(map(len, hits)))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
