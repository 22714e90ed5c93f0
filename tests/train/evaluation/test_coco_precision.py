"""COCO's figures, in canvas pixels and in the pixels of a COCO file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from programs import Lensbox
from pycocotools.coco import COCO  # type: ignore[import, unused-ignore]
from pycocotools.cocoeval import COCOeval  # type: ignore[import, unused-ignore]
from scored_boxes import found, labels

from lensbox.common.errors import ExitCode
from lensbox.train.evaluation.coco_precision import COCO_FIGURES, coco_precision

SMALL, MEDIUM = (0, 0, 20, 20), (100, 100, 140, 140)


def test_by_hand() -> None:
    """Two faces. The first detection has IoU 20 · 15.5 / 400 = 0.775 with the small one, the second is exact.

    Up to IoU 0.75, six of the ten thresholds, all is found. From 0.8 on the first is a false alarm, and
    precision is 1/2 up to recall 1/2: at 51 of COCO's 101 recalls.
    """
    figures = coco_precision([labels(SMALL, MEDIUM)], [found((0, 0, 20, 15.5, 0.9), (*MEDIUM, 0.8))])
    expected = [(6 + 4 * 0.5 * 51 / 101) / 10, 1.0, 1.0, 0.6, 1.0, np.nan]
    assert figures == pytest.approx(dict(zip(COCO_FIGURES, expected, strict=True)), nan_ok=True)


def test_detections_in_ignored_boxes_are_neither_right_nor_wrong() -> None:
    region = (100, 100, 200, 200)
    detections = [found((*MEDIUM, 0.9), (150, 150, 190, 190, 0.8), (*SMALL, 0.5))]
    assert coco_precision([labels(SMALL, region, ignore=(1,))], detections)["AP"] == pytest.approx(1.0)
    # Without the flag the region counts as a missed face and both detections as false alarms: precision 1/3
    # at recall 1/2.
    assert coco_precision([labels(SMALL, region)], detections)["AP"] == pytest.approx(51 / 101 / 3)


def write_coco(file: Path, images: Sequence[int], categories: int, rows: list[dict[str, Any]]) -> Path:
    content = {
        "images": [{"id": image, "file_name": f"{image}.png"} for image in images],
        "categories": [{"id": label, "name": f"c{label}"} for label in range(1, categories + 1)],
        "annotations": rows,
    }
    file.write_text(json.dumps(content))
    return file


def test_prints_the_lines_of_pycocotools(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], lensbox: Lensbox
) -> None:
    """Score two detections near each of 100 boxes, one in five with another category; some are crowds."""
    rng = np.random.default_rng(3)
    rows, results = [], []
    for index in range(100):
        x, y, width, height = rng.uniform([0, 0, 12, 12], [200, 200, 160, 160]).tolist()
        place = {"image_id": index // 5, "category_id": int(rng.integers(1, 4))}
        area = width * height * rng.uniform(0.5, 1)
        rows.append({**place, "id": index, "iscrowd": int(index % 9 == 0), "area": area})
        rows[-1]["bbox"] = [x, y, width, height]
        for score in rng.random(2).tolist():
            bbox = [x + rng.normal(0, 4), y + rng.normal(0, 4), width, height]
            other = {"category_id": int(rng.integers(1, 4))} if rng.random() < 0.2 else {}
            results.append({**place, **other, "bbox": bbox, "score": score, "id": 3, "area": 5.0})
    rows[7]["bbox"][2] = rows[7]["area"] = 0
    file = write_coco(tmp_path / "labels.json", range(20), 3, rows)
    (tmp_path / "found.json").write_text(json.dumps(results))
    truth = COCO(file)
    evaluation = COCOeval(truth, truth.loadRes(str(tmp_path / "found.json")), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    capfd.readouterr()
    evaluation.summarize()
    expected = capfd.readouterr().out.splitlines()
    options = ["--data", file, "--detections", tmp_path / "found.json"]
    printed = lensbox("evaluate", *options)[0].splitlines()
    assert printed == expected
    assert len(printed) == 12
    assert " = 0.000" not in printed[0]
    (tmp_path / "found.json").write_text("[]")
    assert lensbox("evaluate", *options)[0].splitlines()[0].endswith("= 0.000")


def test_ids_areas_and_further_fields_of_annotations_may_be_odd(tmp_path: Path, lensbox: Lensbox) -> None:
    """pycocotools takes a match with the id 0 for none."""
    fields: list[dict[str, Any]] = [{"id": 0, "area": None}, {"id": "a", "ignore": 1}, {"area": 0}]
    squares = [{"image_id": 0, "category_id": 1, "bbox": [60 * place, 30, 40, 50]} for place in range(3)]
    rows = [row | more for row, more in zip(squares, fields, strict=True)]
    file, found = write_coco(tmp_path / "truth.json", [0], 1, rows), tmp_path / "found.json"
    found.write_text(json.dumps([row | {"score": 0.9} for row in squares]))
    lines = lensbox("evaluate", "--data", file, "--detections", found)[0].splitlines()
    assert lines[0].endswith("= 1.000")  # average precision
    assert lines[8].endswith("= 1.000")  # average recall of 100 detections


RESULT = {"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "must hold a list of COCO results, got dict"),
        ([RESULT | {"score": float("nan")}], "score, all finite numbers"),
        ([RESULT | {"score": 10**400}], "score, all finite numbers"),
        ([RESULT | {"bbox": [1, 2, 3]}], "result 0 must have image_id"),
        ([RESULT | {"image_id": 99}], "image_id must be an id of"),
        ([RESULT | {"category_id": None}], "category_id must be an id of"),
    ],
)
def test_bad_results_are_named(tmp_path: Path, lensbox: Lensbox, content: Any, words: str) -> None:
    (tmp_path / "found.json").write_text(json.dumps(content))
    file = write_coco(tmp_path / "labels.json", [0], 1, [])
    options = ["--data", file, "--detections", tmp_path / "found.json"]
    assert words in lensbox("evaluate", *options, code=ExitCode.BAD_INPUT)[1]


def test_a_detector_without_classes_needs_one_category(tmp_path: Path, lensbox: Lensbox) -> None:
    Image.new("L", (512, 300)).save(tmp_path / "4.png")
    row = {"id": 1, "image_id": 4, "category_id": 1, "bbox": [100, 60, 80, 120]}
    file = write_coco(tmp_path / "faces.json", [4], 1, [row])
    assert "(AP) @[ IoU=0.50:0.95" in lensbox("evaluate", "--data", file, "--coco")[0]
    write_coco(file, [4], 3, [row])
    _, said = lensbox("evaluate", "--data", file, "--coco", code=ExitCode.BAD_INPUT)
    assert "must have one category for a detector without classes, got 3" in said
