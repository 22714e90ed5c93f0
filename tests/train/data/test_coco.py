"""Labels in COCO JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pycocotools import mask  # type: ignore[import, unused-ignore]

from lensbox.train.data.labels import DataError, read_labels


def write(
    folder: Path, photographs: str, file: str = "annotations/instances_val.json", **changes: Any
) -> Path:
    """Write photographs of 80 x 60 pixels, in folders, and a COCO file of the first two names in it."""
    paths = photographs.split()
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 60)).save(folder / path)
    content: dict[str, Any] = {
        "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "deep/b.png"}][: len(paths)],
        "categories": [{"id": 3, "name": "cat"}, {"id": 5, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 5, "bbox": [10, 20, 30, 15.5], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 1},
        ],
    }
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps(content | changes))
    return folder / file


TWO = "val/a.png val/deep/b.png"
SIZED = [{"id": 7, "file_name": "a.png", "width": 80, "height": 60}]


@pytest.mark.parametrize("named", ["annotations/instances_val.json", "annotations", "."])
@pytest.mark.parametrize("layout", [None, "coco"])
def test_reads_boxes_classes_and_crowds(tmp_path: Path, named: str, layout: str | None) -> None:
    write(tmp_path, TWO)
    images, problems = read_labels([tmp_path / named], layout=layout)
    assert problems == []
    assert [(image.name, image.coco_id) for image in images] == [("a.png", 7), ("deep/b.png", 9)]
    assert images[0].boxes.tolist() == [[10, 20, 40, 35.5], [1, 2, 4, 6]]
    assert images[0].classes == ("dog", "cat")
    assert images[0].ignore.tolist() == [False, True]
    assert images[1].boxes.shape == (0, 4)
    assert images[1].read_bytes() == (tmp_path / "val" / "deep" / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("file", "photographs", "expected"),
    [
        ("annotations/instances_val.json", "train/a.png val/a.png", "val/a.png"),
        ("annotations/instances_train2017.json", "train2014/a.png train2017/a.png", "train2017/a.png"),
        ("annotations/val.json", "images/train/a.png images/val/a.png images/test/a.png", "images/val/a.png"),
        ("annotations/validation.json", "a.png valid/a.png", "valid/a.png"),
        ("instances_val.json", "images/a.png train/a.png val/a.png", "val/a.png"),
        ("valid/_annotations.coco.json", "train/a.png valid/a.png", "valid/a.png"),
        ("annotations/test.json", "train/a.png other/a.png", "other/a.png"),
        ("annotations/instances_val.json", "train/a.png", None),  # the photograph of another split
        ("annotations/faces.json", "train/a.png val/a.png", "must be of one photograph"),
        ("annotations/train.json", "train2014/a.png train2017/a.png", "must be of one photograph"),
        ("annotations/trainval.json", "train/a.png val/a.png", "must be of one photograph"),
    ],
)
def test_the_split_in_the_file_s_name_decides_between_photographs(
    tmp_path: Path, file: str, photographs: str, expected: str | None
) -> None:
    coco = write(tmp_path, photographs, file, images=[{"id": 7, "file_name": "a.png"}])
    if expected is not None and expected.endswith(".png"):
        assert read_labels([coco])[0][0].path == tmp_path / expected
        return
    with pytest.raises(DataError, match=expected or "at least one labelled image") as caught:
        read_labels([coco])
    if expected is not None:
        assert all(str(tmp_path / path) in str(caught.value) for path in photographs.split())


def test_links_to_one_photograph_are_no_two(tmp_path: Path) -> None:
    file = write(tmp_path, "first/a.png", "annotations/x.json")
    (tmp_path / "second").symlink_to(tmp_path / "first")
    assert len(read_labels([file])[0]) == 1


@pytest.mark.parametrize(
    "name", ["val\\a.png", ".\\a.png", "./a.png", "/data/val/a.png", "C:\\data\\val\\a.png", "C:\\a.png"]
)
def test_paths_of_other_machines_are_found(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, "val/a.png", images=[{"id": 7, "file_name": name}])
    (image,), problems = read_labels([file])
    assert image.path == tmp_path / "val" / "a.png"
    assert problems == []


# Rows 20 to 49 of columns 10 to 39, in runs of 0 and 1, column by column.
RUNS = {"size": [60, 80], "counts": [620, *[30, 30] * 29, 30, 4800 - 620 - 59 * 30]}
COMPRESSED = mask.frPyObjects(RUNS, 60, 80)["counts"].decode()
OVAL, SMALL, LARGE = (
    [10.3, 20.6, 39.5, 22.2, 71.7, 40.1, 30.2, 55.5],
    [1, 2, 5, 2, 5, 7],
    [-20, 30, 200, 30, 50, 300],
)


@pytest.mark.parametrize(
    ("segmentation", "polygons"),
    [
        (RUNS, None),
        ({"size": [60, 80], "counts": COMPRESSED}, None),
        ([OVAL], [OVAL]),
        (OVAL, [OVAL]),
        ([OVAL, SMALL], [OVAL, SMALL]),
        ([LARGE], [LARGE]),  # clipped to the photograph
    ],
)
@pytest.mark.parametrize("box", [{}, {"bbox": []}, {"bbox": None}])
def test_a_segmentation_without_a_box_gives_the_box_of_pycocotools(
    tmp_path: Path, segmentation: Any, polygons: Any, box: Any
) -> None:
    row = {"id": 1, "image_id": 7, "category_id": 3, "segmentation": segmentation, **box}
    (image,), problems = read_labels([write(tmp_path, "val/a.png", images=SIZED, annotations=[row])])
    x, y, width, height = 10, 20, 30, 30
    if polygons:
        x, y, width, height = mask.toBbox(mask.merge(mask.frPyObjects(polygons, 60, 80))).tolist()
    assert image.boxes.tolist() == [[x, y, x + width, y + height]]
    assert problems == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"image_id": 8}, "image_id must be the id of an image, got 8"),
        ({"image_id": [7]}, r"image_id must be the id of an image, got \[7\]"),
        ({"category_id": 0}, "category_id must be the id of a category, got 0"),
        ({"bbox": [1, 2, 3]}, r"bbox must be \[x, y, width, height\], all finite numbers, got \[1, 2, 3\]"),
        ({"bbox": [1, 2, "3", 4]}, "bbox must be"),
        ({"bbox": [[1, 2, 3, 4]]}, "bbox must be"),
        ({"bbox": [True, 2, 3, 4]}, "bbox must be"),
        ({"bbox": [1, 2, float("nan"), 4]}, "bbox must be"),
        ({"bbox": [9, 2, -3, 4]}, "bbox: width and height must be above 0"),  # x2 < x1
        ({"bbox": [1, 9, 3, -4]}, "bbox: width and height must be above 0"),  # y2 < y1
        ({"bbox": None}, "got None"),
        ({"bbox": None, "segmentation": []}, "got None"),
        ({"bbox": None, "segmentation": [[1, 2, 3, 4]]}, "polygons must be lists"),
        ({"bbox": None, "segmentation": [[1, 2, 3, 4, 5, True]]}, "polygons must be lists"),
        ({"bbox": None, "segmentation": [[0, 0, 1e300, 0, 5, 5]]}, "polygons must be lists"),
        ({"bbox": None, "segmentation": [[90, 70, 99, 70, 99, 80]]}, "must cover pixels"),
        ({"bbox": None, "segmentation": {"size": [60, 0], "counts": [0]}}, "size must be"),
        ({"bbox": None, "segmentation": {"size": [60, 80], "counts": [1, -1]}}, "counts must be"),
        ({"bbox": None, "segmentation": {"size": [60, 80], "counts": [4800, 9]}}, "counts must be"),
        ({"bbox": None, "segmentation": {"size": [60, 80], "counts": [4800]}}, "must cover pixels"),
        ({"bbox": None, "segmentation": {"size": [60, 80], "counts": "PPPPo"}}, "counts must be"),  # no end
        (
            {"bbox": None, "segmentation": {"size": [2, 2], "counts": COMPRESSED}},
            "must cover",
        ),
    ],
)
def test_bad_annotations_are_named_by_id(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    good = {"id": 41, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4]}
    file = write(tmp_path, "val/a.png", images=SIZED, annotations=[good | row])
    (image,), (problem,) = read_labels([file])
    assert len(image.boxes) == 0
    assert problem.origin == f"{file}: annotation 41"
    with pytest.raises(DataError, match=words):
        read_labels([file], strict=True)


def test_missing_photographs_and_doubled_boxes_are_named_by_id(tmp_path: Path) -> None:
    row = {"id": 1, "image_id": 9, "category_id": 5, "bbox": [10, 20, 30, 15]}
    rows = [row, row | {"id": 2}, row | {"id": 3, "category_id": 3}, row | {"id": 4, "iscrowd": 1}]
    file = write(tmp_path, TWO, annotations=rows)
    (tmp_path / "val" / "a.png").unlink()
    (image,), (missing, doubled) = read_labels([file])
    assert (image.name, len(image.boxes)) == ("deep/b.png", 3)
    assert str(missing).startswith(f"{file}: image 7: file_name 'a.png' is not beside")
    assert str(doubled).startswith(f"{file}: annotation 2: same box and class as {file}: annotation 1")


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
