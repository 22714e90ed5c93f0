"""Compute COCO's average precision with pycocotools.

`coco_precision` scores in canvas pixels, as everywhere in evaluation: a box is `small` up to 32² of them,
`large` from 96². The detections with the 100 best scores of an image count. An ignored box is given as a
crowd: a detection of which a large enough share lies in it is neither right nor wrong, however many such
detections there are. `summary` scores against a COCO file in that file's own pixels and ids.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lensbox.train.data.coco import load_json, load_tables
from lensbox.train.data.labels import DataError
from lensbox.train.evaluation.average_precision import Array, ImageDetections, ImageLabels, class_indices
from lensbox.train.evaluation.evaluation_set import EvaluationSet

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

Rows = Sequence[dict[str, Any]]

logger = logging.getLogger(__name__)


def _evaluate(images: Rows, categories: Rows, truth: Rows, found: Rows, most: Sequence[int]) -> Any:
    """Return pycocotools' COCOeval of boxes (`bbox`, `category_id`, `image_id`), accumulated.

    Ids and areas of detections are those that COCO's `loadRes` gives them. most: limits on the detections
    per image.
    """
    from pycocotools.coco import COCO  # type: ignore[import, unused-ignore]
    from pycocotools.cocoeval import COCOeval  # type: ignore[import, unused-ignore]

    data = []
    for rows, own in ((truth, True), (found, False)):
        boxes = []
        # Ids count from 1, for COCOeval takes a match with id 0 for none.
        for id_, row in enumerate(rows, 1):
            made = {"iscrowd": 0, "area": row["bbox"][2] * row["bbox"][3], "id": id_}
            boxes.append({**made, **row} if own else {**row, **made})
        data.append(COCO())
        data[-1].dataset = {"images": images, "categories": categories, "annotations": boxes}
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools reports every stage
        for part in data:
            part.createIndex()
        evaluation = COCOeval(*data, "bbox")
        evaluation.params.maxDets = list(most)
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation


def coco_precision(
    labels: Sequence[ImageLabels], detections: Sequence[ImageDetections], classes: int = 1
) -> list[dict[str, float]]:
    """Return COCO's figures of each class, by the names of `COCO_FIGURES`; NaN where no box is to be found.

    Raises:
        ValueError: labels and detections are not of as many images.
    """
    if len(labels) != len(detections):
        raise ValueError(
            f"labels and detections must be of as many images, got {len(labels)} and {len(detections)}"
        )
    truth = [
        {"image_id": index, **row, "iscrowd": int(ignore)}
        for index, image in enumerate(labels)
        for row, ignore in zip(_boxes(image), image.ignore, strict=True)
    ]
    found = [
        {"image_id": index, **row, "score": float(score)}
        for index, image in enumerate(detections)
        for row, score in zip(_boxes(image), image.scores, strict=True)
    ]
    images, categories = ([{"id": index} for index in range(count)] for count in (len(labels), classes))
    evaluation = _evaluate(images, categories, truth, found, [MAX_DETECTIONS])
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
    """Return the mean of each figure over the classes that have it; NaN if no class has it."""
    means = {}
    for name in by_class[0]:
        values = [figures[name] for figures in by_class if not math.isnan(figures[name])]
        means[name] = sum(values) / len(values) if values else math.nan
    return means


def coco_lines(
    figures: Mapping[str, float], by_class: Mapping[str, Mapping[str, float]] | None = None
) -> list[str]:
    """Return a small table. by_class: the figures of each class by its name."""
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


def _boxes(image: ImageLabels | ImageDetections) -> list[dict[str, Any]]:
    return [
        {"category_id": label, "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for (x1, y1, x2, y2), label in zip(image.boxes.tolist(), class_indices(image).tolist(), strict=True)
    ]


def _chosen(thresholds: Array, iou: float | None) -> npt.NDArray[np.bool_]:
    return np.ones(len(thresholds), np.bool_) if iou is None else np.isclose(thresholds, iou)


def _mean(precision: Array) -> float:
    """Return the mean; NaN for a range of areas without boxes, for which COCOeval has -1."""
    return float("nan") if (precision < 0).any() else float(precision.mean())


def summary(file: Path, results: Rows) -> list[str]:
    """Return the lines that pycocotools prints for detections in the photographs of a COCO file.

    Args:
        results: `image_id`, `category_id`, `bbox` ([x, y, width, height], pixels) and `score` each.

    Raises:
        DataError: the file is no COCO file, or a result names an image or category that it lacks.
    """
    images, annotations, categories, problems = load_tables(file)
    for problem in problems:
        logger.warning("skipped: %s", problem)
    for field, table in (("image_id", images), ("category_id", categories)):
        known = {row["id"] for row in table}
        for index, result in enumerate(results):
            if result[field] not in known:
                raise DataError(f"result {index}: {field} must be an id of {file}, got {result[field]!r}")
    evaluation = _evaluate(images, categories, annotations, results, (1, 10, 100))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        evaluation.summarize()
    return printed.getvalue().splitlines()


def read_results(file: Path) -> list[dict[str, Any]]:
    """Return the detections in a COCO results file. Raise DataError, which names the file and the result."""
    content = load_json(file)
    if not isinstance(content, list):
        raise DataError(f"{file} must hold a list of COCO results, got {type(content).__name__}")
    for index, row in enumerate(content):
        box = row.get("bbox") if isinstance(row, dict) else None
        numbers = [*box, row.get("score")] if isinstance(box, list) and len(box) == 4 else [None]
        if not all(isinstance(value, (int, float)) for value in numbers):
            rule = "must have image_id, category_id, bbox [x, y, width, height] and score"
            raise DataError(f"{file}: result {index} {rule}, got {str(row)[:200]}")
    return [{"image_id": None, "category_id": None, **row} for row in content]


def results_of(found: Sequence[ImageDetections], data: EvaluationSet, file: Path) -> list[dict[str, Any]]:
    """Return detections in the photographs of a COCO file as COCO results.

    Raises:
        DataError: the detector has no classes, and the file has several categories.
    """
    images, _, categories, _ = load_tables(file)
    if not data.classes and len(categories) != 1:
        raise DataError(
            f"{file} must have one category for a detector without classes, got {len(categories)}"
        )
    image_ids = {str(row.get("file_name")): row["id"] for row in images}
    category_ids = {str(row.get("name")): row["id"] for row in categories}
    # A class that the file lacks has no box there, and COCO leaves it out.
    by_label = [category_ids.get(name) for name in data.classes] or list(category_ids.values())
    results = []
    for image, name, place in zip(found, data.names, data.places, strict=True):
        boxes = (image.boxes - place.offset) / place.scale
        for box, score, label in zip(
            boxes.tolist(), image.scores.tolist(), class_indices(image).tolist(), strict=True
        ):
            category = by_label[label]
            if category is not None:
                x1, y1, x2, y2 = box
                result = {"image_id": image_ids[name], "category_id": category, "score": score}
                results.append({**result, "bbox": [x1, y1, x2 - x1, y2 - y1]})
    return results
