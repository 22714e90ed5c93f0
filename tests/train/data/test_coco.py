"""Labels in COCO JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lensbox.train.data.labels import DataError, read_labels


def write(folder: Path, **changes: Any) -> Path:
    """Two photographs in `val/`, one of them in a folder below, and their file in `annotations/`."""
    (folder / "val" / "deep").mkdir(parents=True)
    (folder / "annotations").mkdir()
    for name in ("a.png", "deep/b.png"):
        Image.new("RGB", (80, 60)).save(folder / "val" / name)
    content: dict[str, Any] = {
        "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "deep/b.png"}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 5, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 5, "bbox": [10, 20, 30, 15.5], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 1},
        ],
    }
    file = folder / "annotations" / "instances_val.json"
    file.write_text(json.dumps(content | changes))
    return file


@pytest.mark.parametrize("named", ["annotations/instances_val.json", "annotations", "."])
@pytest.mark.parametrize("layout", [None, "coco"])
def test_reads_boxes_classes_and_crowds(tmp_path: Path, named: str, layout: str | None) -> None:
    write(tmp_path)
    images, problems = read_labels([tmp_path / named], layout=layout)
    assert problems == []
    assert [image.name for image in images] == ["a.png", "deep/b.png"]
    assert images[0].boxes.tolist() == [[10, 20, 40, 35.5], [1, 2, 4, 6]]
    assert images[0].classes == ("dog", "cat")
    assert images[0].ignore.tolist() == [False, True]
    assert images[1].boxes.shape == (0, 4)
    assert images[1].read_bytes() == (tmp_path / "val" / "deep" / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"image_id": 8}, "image_id must be the id of an image, got 8"),
        ({"category_id": 0}, "category_id must be the id of a category, got 0"),
        ({"bbox": [1, 2, 3]}, r"bbox must be \[x, y, width, height\], all finite numbers, got \[1, 2, 3\]"),
        ({"bbox": [1, 2, "3", 4]}, "bbox must be"),
        ({"bbox": [True, 2, 3, 4]}, "bbox must be"),
        ({"bbox": [1, 2, float("nan"), 4]}, "bbox must be"),
        ({"image_id": [7]}, r"image_id must be the id of an image, got \[7\]"),
        ({"bbox": [9, 2, -3, 4]}, "bbox: width and height must be above 0"),  # x2 < x1
        ({"bbox": [1, 9, 3, -4]}, "bbox: width and height must be above 0"),  # y2 < y1
        ({"bbox": None}, "got None"),
    ],
)
def test_bad_annotations_are_named_by_id(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    good = {"id": 41, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4]}
    file = write(tmp_path, annotations=[good | row])
    images, (problem,) = read_labels([file])
    assert len(images) == 2
    assert problem.origin == f"{file}: annotation 41"
    with pytest.raises(DataError, match=words):
        read_labels([file], strict=True)


def test_missing_photographs_are_named_by_id(tmp_path: Path) -> None:
    file = write(tmp_path)
    (tmp_path / "val" / "a.png").unlink()
    images, (problem,) = read_labels([file])
    assert [image.name for image in images] == ["deep/b.png"]
    assert str(problem).startswith(f"{file}: image 7: file_name 'a.png' is not beside")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"images": [],\n "annotations": [}', ":2: expected JSON"),
        ("[]", "must hold lists of objects: images, annotations, categories"),
        ('{"images": [1], "annotations": [], "categories": []}', "must hold lists of objects"),
        ('{"images": [{"id": 1}, {"id": 1}], "annotations": [], "categories": []}', "must have an integer"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=words):
        read_labels([tmp_path / "x.json"])
