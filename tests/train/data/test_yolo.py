"""Labels in YOLO's layout."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lensbox.train.data.labels import DataError, read_labels

NAMES = "names: {0: cat, 1: dog}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "val"):
        for part in ("images", "labels"):
            (tmp_path / split / part).mkdir(parents=True)
        Image.new("RGB", (200, 100)).save(tmp_path / split / "images" / f"{split}.png")
    (tmp_path / "train" / "labels" / "train.txt").write_text(
        "1 0.5 0.5 0.1 0.2\n\n0 0.1 0.2 0.3 0.2 0.3 0.6 0.1 0.6\n"
    )
    (tmp_path / "data.yaml").write_text(f"train: ../train/images\nval: val/images\n{NAMES}")
    return tmp_path


@pytest.mark.parametrize("named", [".", "data.yaml"])
@pytest.mark.parametrize("layout", [None, "yolo"])
def test_reads_boxes_polygons_and_classes(folder: Path, named: str, layout: str | None) -> None:
    (image,), problems = read_labels([folder / named], layout=layout)
    assert problems == []
    assert image.name == "train.png"
    np.testing.assert_allclose(image.boxes, [[90, 40, 110, 60], [20, 20, 60, 60]], atol=1e-4)
    assert image.classes == ("dog", "cat")
    assert not image.ignore.any()


def test_images_without_labels_have_no_boxes(folder: Path) -> None:
    (image,), problems = read_labels([folder], split="val")
    assert problems == []
    assert image.boxes.shape == (0, 4)


def test_names_may_be_a_list_and_images_a_text_file(folder: Path) -> None:
    (folder / "train.txt").write_text("./train/images/train.png\n")
    (folder / "data.yaml").write_text("path: .\ntrain: train.txt\nnames: [cat, dog]\n")
    (image,), _ = read_labels([folder])
    assert image.classes == ("dog", "cat")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1 0.5 0.5 0.1", "a row must be class x y width height, or a class and the corners"),
        ("1 a b c d", "a row must be numbers"),
        ("2 0.5 0.5 0.1 0.1", "the class must be one of the 2 names"),
        ("0.5 0.5 0.5 0.1 0.1", "the class must be one of the 2 names"),
        ("0 100 50 20 20", "coordinates must be shares of the image"),
        ("0 nan 0.5 0.1 0.1", "coordinates must be shares of the image"),
        ("0 0.5 0.5 0 0.1", "width and height must be above 0"),
        ("0 0.5 0.5 0.1 -0.1", "coordinates must be shares of the image"),
    ],
)
def test_bad_rows_are_named_by_line(folder: Path, row: str, words: str) -> None:
    labels = folder / "train" / "labels" / "train.txt"
    labels.write_text(f"0 0.5 0.5 0.1 0.1\n{row}\n")
    (image,), (problem,) = read_labels([folder])
    assert len(image.boxes) == 1
    assert problem.origin == f"{labels}:2"
    assert words in problem.message


def test_photographs_that_cannot_be_read_are_named(folder: Path) -> None:
    (folder / "train" / "images" / "bad.jpg").write_bytes(b"nothing")
    images, (problem,) = read_labels([folder])
    assert len(images) == 1
    assert problem.origin.endswith("bad.jpg")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train: [", "must be YAML"),
        ("3", "must be a mapping"),
        ("train: train/images", "names must list the classes, got None"),
        (NAMES, "train must name a folder of images, got None"),
        (f"train: absent\n{NAMES}", "train must name a folder that exists, got 'absent'"),
    ],
)
def test_other_descriptions_are_refused(folder: Path, text: str, words: str) -> None:
    (folder / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=words):
        read_labels([folder])
