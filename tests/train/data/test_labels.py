"""Rows of labels, checked alike in every layout, and what all readers share."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lensbox.train.data.labels import (
    DataError,
    Row,
    read_labels,
    read_rows,
    shared_photographs,
    spellings,
)

NAN = float("nan")


def write(folder: Path, layout: str, *boxes: tuple[float, float, float, float], name: str = "a.png") -> Path:
    """Write a photograph of 200 x 100 pixels and a label file with boxes (x, y, width, height) of dogs."""
    (folder / "images").mkdir()
    Image.new("RGB", (200, 100)).save(folder / "images" / "a.png")
    if layout == "coco":
        annotations = [{"image_id": 7, "category_id": 3, "bbox": list(box)} for box in boxes]
        images, categories = [{"id": 7, "file_name": name}], [{"id": 3, "name": "dog"}]
        content = {"images": images, "categories": categories, "annotations": annotations}
        (folder / "labels.json").write_text(json.dumps(content))
    elif layout == "yolo":
        (folder / "data.yaml").write_text(f"train: {name if name != 'a.png' else 'images'}\nnames: [dog]\n")
        shares = [((x + w / 2) / 200, (y + h / 2) / 100, w / 200, h / 100) for x, y, w, h in boxes]
        lines = [f"0 {x} {y} {w} {h}" for x, y, w, h in shares]
        (folder / "labels").mkdir()
        (folder / "labels" / "a.txt").write_text("\n".join(lines))
    else:
        lines = [f"{x} {y} {w} {h} 0 0 0 0 0 0 dog" for x, y, w, h in boxes]
        (folder / "x_bbx_gt.txt").write_text("\n".join([name, str(len(boxes)), *lines]))
    return folder


@pytest.mark.parametrize("layout", ["wider", "coco", "yolo"])
def test_every_layout_gives_the_same_boxes(tmp_path: Path, layout: str) -> None:
    folder = write(tmp_path, layout, (10, 20, 30, 40), (5, 5, 50, 50))
    (image,), problems = read_labels([folder])
    assert problems == []
    assert image.name == "a.png"
    np.testing.assert_allclose(image.boxes, [[10, 20, 40, 60], [5, 5, 55, 55]], atol=1e-4)
    assert image.classes == ("dog", "dog")
    assert image.ignore.tolist() == [False, False]
    assert image.read_bytes() == (folder / "images" / "a.png").read_bytes()


@pytest.mark.parametrize("layout", ["wider", "coco", "yolo"])
def test_a_bad_row_is_reported_with_its_place_or_stops_a_strict_reader(tmp_path: Path, layout: str) -> None:
    folder = write(tmp_path, layout, (10, 20, 30, 40), (10, 20, 0, 5))
    place = {"wider": "x_bbx_gt.txt:4", "coco": "labels.json: annotation None", "yolo": "labels/a.txt:2"}
    (image,), (problem,) = read_labels([folder])
    assert len(image.boxes) == 1
    assert problem.startswith(f"{folder}/{place[layout]}: ")
    with pytest.raises(DataError, match="width and height must be above 0"):
        read_labels([folder], strict=True)


@pytest.mark.parametrize("layout", ["wider", "coco"])
def test_a_missing_photograph_is_reported(tmp_path: Path, layout: str) -> None:
    folder = write(tmp_path, layout, (10, 20, 30, 40), name="gone.png")
    with pytest.raises(DataError, match=r"at least one labelled image .*gone\.png"):
        read_labels([folder])


@pytest.mark.parametrize("layout", ["wider", "coco", "yolo"])
def test_data_without_a_box_to_find_cause_a_warning(
    tmp_path: Path, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    read_labels([write(tmp_path, layout)])
    assert "all 1 photographs are background" in caplog.text


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ((9, 2, -3, 4), "width and height must be above 0"),  # x2 < x1
        ((1, 9, 3, -4), "width and height must be above 0"),  # y2 < y1
        ((1, 2, 0, 4), "width and height must be above 0"),
        ((1, 2, NAN, 4), "width and height must be above 0"),
        ((2e6, 2, 3, 4), "all within 1000000 pixels"),
        ((1, 2, 3, 4.0), "same box and class as first; box skipped"),
        ((), "width and height"),
    ],
)
def test_rows_that_are_no_new_boxes_are_skipped(row: tuple[float, ...], rule: str) -> None:
    def parse(values: tuple[float, ...]) -> Row:
        if not values:
            raise ValueError("width and height must be given")
        return Row(*values)  # type: ignore[arg-type]

    problems: list[str] = []
    boxes = read_rows([("first", (1, 2, 3, 4)), ("second", row)], parse, problems)
    assert boxes.boxes.tolist() == [[1, 2, 4, 6]]
    (problem,) = problems
    assert problem.startswith("second: ")
    assert rule in problem


@pytest.mark.parametrize(
    ("name", "last"),
    [("val\\a.png", "val/a.png"), ("./a.png", "a.png"), ("/data/a.png", "a.png"), ("C:\\b\\a.png", "a.png")],
)
def test_paths_of_other_machines_have_local_spellings(name: str, last: str) -> None:
    assert spellings(name)[0] == name
    assert spellings(name)[-1] == last


def test_photographs_with_the_same_name_and_boxes_are_shared(tmp_path: Path) -> None:
    images, _ = read_labels([write(tmp_path, "wider", (10, 20, 30, 40))])
    assert shared_photographs(images, images) == ["a.png"]
    (tmp_path / "x_bbx_gt.txt").write_text("a.png\n1\n10 20 30 41\n")
    assert shared_photographs(read_labels([tmp_path])[0], images) == []


NAMES = "names: {0: cat, 1: dog}\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent", None, "labels that exist, got"),
        ("text.tar", "not a tar file", "uncompressed tar"),
        ("empty.tar", "\0" * 10240, "must hold"),
        ("x.json", '{"images": [],\n "annotations": [}', ":2: expected JSON"),
        ("x.json", "[]", "must hold lists of objects: images, categories, annotations"),
        (
            "x.json",
            '{"images": [{"id": 1}, {"id": 1}], "annotations": [], "categories": []}',
            "must have an int",
        ),
        (
            "x.json",
            '{"images": [], "annotations": [], "categories": [{"id": [1]}]}',
            "categories must have an",
        ),
        ("data.yaml", "train: [", "must be YAML"),
        ("data.yaml", "train: images", "names must list the classes, got None"),
        ("data.yaml", NAMES, "train must name a folder of images, got None"),
        ("data.yaml", f"train: absent\n{NAMES}", "train must name a folder that exists, got 'absent'"),
        ("data.yaml", f"train: images\n{NAMES}kpt_shape: 5", "kpt_shape must be"),
    ],
)
def test_files_that_hold_no_labels_are_refused(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        read_labels([tmp_path / name])
