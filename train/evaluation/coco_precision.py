"""COCO's average precision, by pycocotools, which its figures are defined by.

Lengths are canvas pixels, as everywhere in evaluation: a box is `small` up to 32² of them, `large` from 96².
The detections with the 100 best scores of an image count. An ignored box is given as a crowd: a detection of
which a large enough share lies in it is neither right nor wrong, however many such detections there are.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.train.average_precision import Array, ImageDetections, ImageLabels

MAX_DETECTIONS = 100
# Name -> (IoU threshold, or None for the mean over 0.5, 0.55, … 0.95; range of areas).
COCO_FIGURES: dict[str, tuple[float | None, str]] = {
    "AP": (None, "all"),
    "AP50": (0.5, "all"),
    "AP75": (0.75, "all"),
    "AP small": (None, "small"),
    "AP medium": (None, "medium"),
    "AP large": (None, "large"),
}


class CocoMissingError(LensboxError, ImportError):
    """pycocotools is not installed."""

    exit_code = ExitCode.UNUSABLE


def coco_precision(
    labels: Sequence[ImageLabels], detections: Sequence[ImageDetections], classes: int = 1
) -> list[dict[str, float]]:
    """Returns COCO's figures of each class, by the names of `COCO_FIGURES`; NaN where no box is to be found.

    Raises:
        CocoMissingError: pycocotools is not installed.
        ValueError: labels and detections are not of as many images.
    """
    if len(labels) != len(detections):
        raise ValueError(
            f"labels and detections must be of as many images, got {len(labels)} and {len(detections)}"
        )
    try:
        from pycocotools.coco import COCO  # type: ignore[import, unused-ignore]
        from pycocotools.cocoeval import COCOeval  # type: ignore[import, unused-ignore]
    except ImportError as error:
        raise CocoMissingError(
            f"COCO's figures need pycocotools (pip install 'lensbox[train]'): {error}"
        ) from error

    truth, found = COCO(), COCO()
    truth.dataset = _dataset([_truth_rows(image) for image in labels], classes)
    found.dataset = _dataset([_found_rows(image) for image in detections], classes)
    with contextlib.redirect_stdout(io.StringIO()):  # it reports every stage
        truth.createIndex()
        found.createIndex()
        evaluation = COCOeval(truth, found, "bbox")
        evaluation.params.maxDets = [MAX_DETECTIONS]
        evaluation.evaluate()
        evaluation.accumulate()
    # [IoU thresholds, recall thresholds, classes, ranges of areas, limits on detections]
    precision: Array = evaluation.eval["precision"][..., 0]
    thresholds: Array = evaluation.params.iouThrs
    areas: list[str] = evaluation.params.areaRngLbl
    return [
        {
            name: _mean(precision[_chosen(thresholds, iou), :, label, areas.index(area)])
            for name, (iou, area) in COCO_FIGURES.items()
        }
        for label in range(classes)
    ]


def mean_precision(by_class: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure the mean over the classes that have it; NaN where none has."""
    means = {}
    for name in by_class[0]:
        values = [figures[name] for figures in by_class if not math.isnan(figures[name])]
        means[name] = sum(values) / len(values) if values else math.nan
    return means


def coco_lines(
    figures: Mapping[str, float], by_class: Mapping[str, Mapping[str, float]] | None = None
) -> list[str]:
    """A small table for people; by_class: the figures of each class by its name."""
    by_class = by_class or {}
    rows = {f"mean of {len(by_class)} classes" if by_class else "": figures, **by_class}
    return [
        f"COCO, the {MAX_DETECTIONS} best detections an image, areas in canvas pixels",
        "  ".join(f"{name:>9}" for name in figures),
        *(
            f"{'  '.join(f'{value:9.4f}' for value in row.values())}  {name}".rstrip()
            for name, row in rows.items()
        ),
    ]


def _dataset(images: list[list[dict[str, Any]]], classes: int) -> dict[str, Any]:
    rows = [{"image_id": index, **row} for index, image in enumerate(images) for row in image]
    return {
        "images": [{"id": index} for index in range(len(images))],
        "categories": [{"id": label} for label in range(classes)],
        # Ids count from 1, for COCOeval takes a match with id 0 for none.
        "annotations": [{"id": number, **row} for number, row in enumerate(rows, start=1)],
    }


def _truth_rows(image: ImageLabels) -> list[dict[str, Any]]:
    return [{**row, "iscrowd": int(ignore)} for row, ignore in zip(_boxes(image), image.ignore, strict=True)]


def _found_rows(image: ImageDetections) -> list[dict[str, Any]]:
    return [
        {**row, "iscrowd": 0, "score": float(score)}
        for row, score in zip(_boxes(image), image.scores, strict=True)
    ]


def _boxes(image: ImageLabels | ImageDetections) -> list[dict[str, Any]]:
    return [
        {"category_id": label, "bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
        for (x1, y1, x2, y2), label in zip(image.boxes.tolist(), image.class_indices.tolist(), strict=True)
    ]


def _chosen(thresholds: Array, iou: float | None) -> npt.NDArray[np.bool_]:
    return np.ones(len(thresholds), np.bool_) if iou is None else np.isclose(thresholds, iou)


def _mean(precision: Array) -> float:
    """-1 stands for a range of areas without boxes."""
    return float("nan") if (precision < 0).any() else float(precision.mean())
