"""COCO's average precision, by pycocotools.

`coco_precision` scores in canvas pixels, as everywhere in evaluation: a box is `small` up to 32² of them,
`large` from 96². An ignored box is given as a crowd: a detection of which a large enough share lies in it is
neither right nor wrong, however many such detections there are. `summary` scores against a COCO file in that
file's own pixels and ids.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from lensbox.train.data.coco import Rows, load_json, load_tables
from lensbox.train.data.labels import DataError, is_number, report_problems
from lensbox.train.evaluation.average_precision import ImageDetections, ImageLabels
from lensbox.train.evaluation.evaluation_set import EvaluationSet

# The first six of pycocotools' figures; the mean over IoU 0.5, 0.55, … 0.95 unless the name has a threshold.
COCO_FIGURES = ("AP", "AP50", "AP75", "AP small", "AP medium", "AP large")


def _score(
    images: Iterable[int], categories: Iterable[int], truth: Rows, found: Rows
) -> tuple[list[float], list[str]]:
    """Return pycocotools' figures, and the lines that it prints.

    Args:
        images, categories: ids.
        truth: `image_id`, `category_id`, `bbox`, `area` and `iscrowd` each. found: `score` in place of the
            last two, which `loadRes` adds.
    """
    from pycocotools.coco import COCO  # type: ignore[import, unused-ignore]
    from pycocotools.cocoeval import COCOeval  # type: ignore[import, unused-ignore]

    # pycocotools reports every stage, and at last the figures.
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        known = COCO()
        known.dataset = {
            "images": [{"id": id_} for id_ in images],
            "categories": [{"id": id_} for id_ in categories],
            # Ids count from 1, for COCOeval takes a match with id 0 for none.
            "annotations": [{**row, "id": id_} for id_, row in enumerate(truth, 1)],
        }
        known.createIndex()
        evaluation = COCOeval(known, known.loadRes(found) if found else COCO(), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    figures = evaluation.stats.tolist()
    return figures, printed.getvalue().splitlines()[-len(figures) :]


def coco_precision(
    labels: Sequence[ImageLabels], detections: Sequence[ImageDetections], classes: int = 1
) -> dict[str, float]:
    """Return COCO's figures by the names of `COCO_FIGURES`, the means over the classes; NaN without boxes."""
    truth = [
        {"image_id": index, **row, "area": math.prod(row["bbox"][2:]), "iscrowd": int(ignore)}
        for index, image in enumerate(labels)
        for row, ignore in zip(_boxes(image), image.ignore, strict=True)
    ]
    found = [
        {"image_id": index, **row, "score": score}
        for index, image in enumerate(detections)
        for row, score in zip(_boxes(image), image.scores.tolist(), strict=True)
    ]
    figures, _ = _score(range(len(labels)), range(classes), truth, found)
    named = dict(zip(COCO_FIGURES, figures, strict=False))
    return {name: math.nan if value < 0 else value for name, value in named.items()}


def _boxes(image: ImageLabels | ImageDetections) -> Rows:
    return [
        {"category_id": label, "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for (x1, y1, x2, y2), label in zip(image.boxes.tolist(), image.classes.tolist(), strict=True)
    ]


def summary(file: Path, results: Rows) -> list[str]:
    """Return the lines that pycocotools prints for detections in the photographs of a COCO file.

    Args:
        results: `image_id`, `category_id`, `bbox` ([x, y, width, height], pixels) and `score` each.

    Raises:
        DataError: the file is no COCO file, or an annotation or an id of a result is wrong.
    """
    tables = load_tables(file)
    report_problems(tables.problems, strict=True)
    ids = {"image_id": tables.images, "category_id": tables.categories}
    for name, known in ids.items():
        for index, row in enumerate(results):
            if not is_number(row.get(name)) or row[name] not in known:
                raise DataError(f"result {index}: {name} must be an id of {file}, got {row.get(name)!r}")
    truth = []
    for row in tables.annotations:
        # Of the fields in the file, only these reach pycocotools: ids may begin at 0, repeat or be missing.
        kept = {name: row[name] for name in (*ids, "bbox", "iscrowd")}
        area = row.get("area")
        truth.append({**kept, "area": float(math.prod(row["bbox"][2:]) if area is None else area)})
    found = [{name: row[name] for name in (*ids, "bbox", "score")} for row in results]
    return _score(tables.images, tables.categories, truth, found)[1]


def read_results(file: Path) -> Rows:
    """Return the detections in a COCO results file. Raise DataError, which names the file and the result."""
    content = load_json(file)
    if not isinstance(content, list):
        raise DataError(f"{file} must hold a list of COCO results, got {type(content).__name__}")
    for index, row in enumerate(content):
        box = row.get("bbox") if isinstance(row, dict) else None
        if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, [*box, row.get("score")])):
            raise DataError(
                f"{file}: result {index} must have image_id, category_id, bbox [x, y, width, height] and "
                f"score, all finite numbers, got {str(row)[:200]}"
            )
        row |= {"bbox": list(map(float, box)), "score": float(row["score"])}
    return content


def results_of(found: Sequence[ImageDetections], data: EvaluationSet, file: Path) -> Rows:
    """Return detections in the photographs of a COCO file as COCO results.

    Raises:
        DataError: the detector has no classes, and the file has several categories.
    """
    categories = load_tables(file).categories
    if not data.classes and len(categories) != 1:
        raise DataError(
            f"{file} must have one category for a detector without classes, got {len(categories)}"
        )
    category_ids = {str(row.get("name")): id_ for id_, row in categories.items()}
    # A class that the file lacks has no box there, and COCO leaves it out.
    by_label = [category_ids.get(name) for name in data.classes] or list(categories)
    results = []
    for image, file_, geometry in zip(found, data.files, data.geometry.numpy(), strict=True):
        scale, offset = (np.tile(geometry[start : start + 2], 2) for start in (0, 2))
        restored = ImageDetections((image.boxes - offset) / scale, image.scores, image.classes)
        for row, score in zip(_boxes(restored), image.scores.tolist(), strict=True):
            row |= {"image_id": file_.coco_id, "category_id": by_label[row["category_id"]]}
            if row["category_id"] is not None:
                results.append({**row, "score": score})
    return results
