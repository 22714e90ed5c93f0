"""Score detections against a COCO file with pycocotools, in that file's own pixels and ids."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lensbox.train.average_precision import ImageDetections
from lensbox.train.data.coco import load_json, load_tables
from lensbox.train.data.labels import DataError
from lensbox.train.evaluation.evaluation_set import EvaluationSet

Result = dict[str, Any]

logger = logging.getLogger(__name__)


def summary(file: Path, results: Sequence[Result]) -> list[str]:
    """Return the lines that pycocotools prints for detections in the photographs of a COCO file.

    Args:
        results: `image_id`, `category_id`, `bbox` ([x, y, width, height], pixels) and `score` each.

    Raises:
        DataError: the file is no COCO file, or a result names an image or category that it lacks.
    """
    from pycocotools.coco import COCO  # type: ignore[import, unused-ignore]
    from pycocotools.cocoeval import COCOeval  # type: ignore[import, unused-ignore]

    images, annotations, categories, problems = load_tables(file)
    for problem in problems:
        logger.warning("skipped: %s", problem)
    for field, table in (("image_id", images), ("category_id", categories)):
        known = {row["id"] for row in table}
        for index, result in enumerate(results):
            if result[field] not in known:
                raise DataError(f"result {index}: {field} must be an id of {file}, got {result[field]!r}")
    # As COCO reads a file, and as `loadRes` makes of results.
    boxes = [{"iscrowd": 0, "area": _area(row), "id": id_, **row} for id_, row in enumerate(annotations, 1)]
    detected = [{**row, "iscrowd": 0, "area": _area(row), "id": id_} for id_, row in enumerate(results, 1)]
    truth, found = COCO(), COCO()
    truth.dataset = {"images": images, "categories": categories, "annotations": boxes}
    found.dataset = {"images": images, "categories": categories, "annotations": detected}
    printed = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):  # it reports every stage
        truth.createIndex()
        found.createIndex()
        evaluation = COCOeval(truth, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        with contextlib.redirect_stdout(printed):
            evaluation.summarize()
    return printed.getvalue().splitlines()


def _area(row: Result) -> float:
    width, height = row["bbox"][2:]
    return float(width * height)


def read_results(file: Path) -> list[Result]:
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


def results_of(found: Sequence[ImageDetections], data: EvaluationSet, file: Path) -> list[Result]:
    """Return what was found in the photographs of a COCO file as COCO results.

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
            boxes.tolist(), image.scores.tolist(), image.class_indices.tolist(), strict=True
        ):
            category = by_label[label]
            if category is not None:
                x1, y1, x2, y2 = box
                result = {"image_id": image_ids[name], "category_id": category, "score": score}
                results.append({**result, "bbox": [x1, y1, x2 - x1, y2 - y1]})
    return results
