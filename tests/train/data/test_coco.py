"""Labels in COCO JSON files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask  # type: ignore[import, unused-ignore]

from lensbox.train.data.labels import DataError, read_labels

ROW = {"id": 41, "image_id": 7, "category_id": 5, "bbox": [10, 20, 30, 15.5]}


def write(folder: Path, photographs: str, file: str = "labels.json", **changes: Any) -> Path:
    """Write photographs in folders, and a COCO file of `a.png`."""
    for path in photographs.split():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 60)).save(folder / path)
    content: dict[str, Any] = {
        "images": [{"id": 7, "file_name": "a.png"}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 5, "name": "dog"}],
        "annotations": [ROW, {"image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 1}],
    }
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps(content | changes))
    return folder / file


@pytest.mark.parametrize(
    ("file", "photographs", "expected"),
    [
        ("labels.json", "a.png", "a.png"),
        ("annotations/instances_train2017.json", "train2014/a.png train2017/a.png", "train2017/a.png"),
        ("annotations/val.json", "images/train/a.png images/val/a.png", "images/val/a.png"),
        ("valid/_annotations.coco.json", "train/a.png valid/a.png", "valid/a.png"),
        ("annotations/faces.json", "images/a.png", "images/a.png"),
    ],
)
def test_photographs_are_looked_for_by_the_name_of_the_file(
    tmp_path: Path, file: str, photographs: str, expected: str
) -> None:
    (image,), problems = read_labels([write(tmp_path, photographs, file)])
    assert (image.path, image.name, image.coco_id) == (tmp_path / expected, "a.png", 7)
    assert problems == []
    assert image.boxes.tolist() == [[10, 20, 40, 35.5], [1, 2, 4, 6]]
    assert image.classes == ("dog", "cat")
    assert image.ignore.tolist() == [False, True]  # the second one is a crowd


def test_a_photograph_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"image 7: file_name 'a\.png' is not beside labels\.json"):
        read_labels([write(tmp_path, "b.png")])


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"image_id": 8}, "image_id must be the id of an image, got 8"),
        ({"category_id": 0}, "category_id must be the id of a category, got 0"),
        ({"bbox": None}, "bbox must be .*, got None"),
        ({"bbox": None, "segmentation": [[1, 2, 3, 4]]}, "polygons must be lists"),
        ({"bbox": None, "segmentation": {"size": [0, 9], "counts": []}}, "must have size"),
        ({"bbox": None, "segmentation": {"size": [2, 2], "counts": [3, 9]}}, "fill the size"),
        ({"bbox": None, "segmentation": {"size": [2, 2], "counts": [4]}}, "must cover pixels"),
        ({"bbox": None, "segmentation": {"size": [2, 2], "counts": "4"}}, "must cover pixels"),
        ({"bbox": None, "segmentation": {"size": [2, 2], "counts": "PPPPo"}}, "COCO's encoding, got 'PPPPo'"),
        ({"bbox": None, "segmentation": {"size": [2, 2], "counts": "PPPPPPP0"}}, "in COCO's encoding"),
        ({"bbox": [1, 2, float("nan"), 4]}, "bbox must be"),
        ({"iscrowd": "0"}, "iscrowd must be 0 or 1, got '0'"),
        ({"area": -1}, "area must be a number of at least 0, got -1"),
    ],
)
def test_bad_annotations_are_named_by_id(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    file = write(tmp_path, "a.png", annotations=[ROW | change])
    (image,), (problem,) = read_labels([file])
    assert len(image.boxes) == 0
    assert problem.startswith(f"{file}: annotation 41: ")
    with pytest.raises(DataError, match=rule):
        read_labels([file], strict=True)


def test_annotations_without_a_box_have_that_of_their_segmentation(tmp_path: Path) -> None:
    pixels = np.zeros((60, 80), np.uint8, order="F")
    pixels[5:9, 20:31] = pixels[30:33, 25] = 1
    flat = pixels.flatten(order="F")
    runs = np.diff([0, *(np.flatnonzero(np.diff(flat)) + 1), flat.size]).tolist()
    for segmentation, expected in (
        ([[10.5, 20, 40, 22, 71, 40], [1, 2, 5, 2, 5, 7]], [1, 2, 71, 40]),
        ({"size": [60, 80], "counts": mask.encode(pixels)["counts"].decode()}, [20, 5, 31, 33]),
        ({"size": [60, 80], "counts": runs}, [20, 5, 31, 33]),
    ):
        row = ROW | {"bbox": None, "segmentation": segmentation}
        (image,), _ = read_labels([write(tmp_path, "a.png", annotations=[row])])
        assert image.boxes.tolist() == [expected]
