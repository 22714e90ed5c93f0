"""Labels in COCO JSON files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask  # type: ignore[import, unused-ignore]

from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import DataError, read_labels

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
    assert (image.path, image.name) == (tmp_path / expected, "a.png")
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
        ({"bbox": None, "segmentation": 5}, "polygons must be lists"),
        ({"bbox": None, "segmentation": [[1, 2, 3, 4, 5, 6], 7]}, "polygons must be lists"),
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


def test_categories_without_annotations_are_left_out_and_a_repeated_name_is_an_error(tmp_path: Path) -> None:
    """Roboflow's root category may have the name of a class."""
    categories = [{"id": 0, "name": "dog"}, {"id": 5, "name": "dog"}]
    account = Account()
    file = write(tmp_path, "a.png", categories=categories, annotations=[ROW])
    (image,), problems = read_labels([file], account=account)
    assert (image.classes, problems) == (("dog",), [])
    assert account.counts["categories without annotations"] == 1
    write(tmp_path, "a.png", categories=categories, annotations=[ROW, ROW | {"category_id": 0}])
    with pytest.raises(DataError, match=r"different names, got 'dog' for the ids \[0, 5\]"):
        read_labels([file])


@pytest.mark.parametrize("size", [(160, 120), (40, 30), (27, 20), (80, 60), (None, 60), (0, 0), ("80", 1)])
def test_boxes_for_another_size_of_the_same_shape_are_scaled(tmp_path: Path, size: Any) -> None:
    account, scale = Account(), size[0] / 80 if isinstance(size[0], int) and size[0] else 1
    box = [20 * scale, 10 * scale, 30 * scale, 20 * scale]
    image = {"id": 7, "file_name": "a.png", "width": size[0], "height": size[1]}
    file = write(tmp_path, "a.png", images=[image], annotations=[ROW | {"bbox": box, "area": 600 * scale**2}])
    (read,), problems = read_labels([file], account=account)
    np.testing.assert_allclose(read.boxes, [[20, 10, 50, 30]], rtol=0.02)
    np.testing.assert_allclose(read.areas, [600], rtol=0.02)
    assert problems == []
    assert account.counts.get("photographs of another size: boxes scaled", 0) == (scale != 1)


@pytest.mark.parametrize("size", [(60, 80), (81, 90), (8, 60)])
def test_labels_for_a_photograph_of_another_shape_are_an_error(tmp_path: Path, size: tuple[int, int]) -> None:
    image = {"id": 7, "file_name": "a.png", "width": size[0], "height": size[1]}
    with pytest.raises(DataError, match=rf"a\.png has 80 x 60 pixels, .* {size[0]} x {size[1]}: the shapes"):
        read_labels([write(tmp_path, "a.png", images=[image])])


def test_ids_may_be_text_and_boxes_outside_or_without_area_are_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"image_id": "b1", "category_id": "5", "bbox": [70, 50, 20, 20]},  # reaches beyond
        {"image_id": "b1", "category_id": 5.0, "bbox": [90, 10, 9, 9], "area": 7},  # lies outside
        {"image_id": "b1", "category_id": 5, "bbox": [9, 10, 0, 9]},
        {"image_id": "b2", "category_id": 5, "bbox": [9, 10, 9, 9]},
    ]
    images = [{"id": "b1", "file_name": "a.png"}, {"id": 2, "file_name": "./a.png"}]
    account = Account()
    (image,), problems = read_labels(
        [write(tmp_path, "a.png", images=images, annotations=rows)], account=account
    )
    assert image.boxes.tolist() == [[70, 50, 90, 70]]  # of the row that has some
    assert account.counts["boxes clipped"] == 1
    assert account.counts["names given twice"] == 1
    assert account.counts["photographs found"] == 2
    assert sum(count for row, count in account.counts.items() if row.startswith("boxes skipped")) == 3
    assert len(problems) == 4
    rows[-1]["image_id"] = 2
    with pytest.raises(DataError, match=r"a\.png is named again, .* with other boxes"):
        read_labels([write(tmp_path, "a.png", images=images, annotations=rows)])


def test_folders_with_several_label_files_name_them(tmp_path: Path) -> None:
    for name in ("annotations/instances_train.json", "annotations/instances_val.json"):
        write(tmp_path, "a.png", name)
    with pytest.raises(DataError, match=r"name one of .*instances_train\.json, .*instances_val\.json"):
        read_labels([tmp_path])
