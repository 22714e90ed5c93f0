"""Labels in YOLO's layout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_files import exif
from PIL import Image

from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import DataError, read_labels

NAMES = "names: {0: cat, 1: dog}\n"
BOX = "0 0.5 0.5 0.2 0.4"
MARKS = "0.46 0.42 0.54 0.42 0.5 0.5"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs of 200 x 100 pixels: one of `train` and one of five of `val` have a box."""
    for split, count in (("train", 1), ("val", 5)):
        for part in ("images", "labels"):
            (tmp_path / split / part).mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (200, 100)).save(tmp_path / split / "images" / f"{index}.png")
        (tmp_path / split / "labels" / "0.txt").write_text(f"\n{BOX}\n")
    (tmp_path / "data.yaml").write_text(f"train: ../train/images\nval: val/images\n{NAMES}")
    return tmp_path


@pytest.mark.parametrize("labelled", [0, 2, 3])
def test_photographs_without_a_label_file_are_counted(folder: Path, labelled: int) -> None:
    labels = folder / "val" / "labels"
    (labels / "0.txt").unlink()
    for index in range(labelled):
        (labels / f"{index}.txt").write_text(BOX)
    if labelled:
        account = Account()
        images, problems = read_labels([folder], split="val", account=account)
        assert [len(image.boxes) for image in images] == [1] * labelled + [0] * (5 - labelled)
        assert problems == []
        row = "photographs without a label file"
        assert account.counts[row] == account.counts["photographs without boxes"] == 5 - labelled
        assert f"there is no {labels / f'{labelled}.txt'}" in account.first[row]
        return
    with pytest.raises(DataError, match=f"5 of 5 photographs have no label file, such as {labels}/0"):
        read_labels([folder], split="val")


@pytest.mark.parametrize(("names", "name"), [("[no, yes]", "no"), ("{'0': 1, '1': null}", "1")])
def test_names_are_text_as_written(folder: Path, names: str, name: str) -> None:
    (folder / "data.yaml").write_text(f"train: train/images\nnames: {names}\n")
    assert read_labels([folder / "data.yaml"])[0][0].classes == (name,)


@pytest.mark.parametrize(
    ("yaml", "line"),
    [
        ("path: .\ntrain: train.txt", "./train/images/0.png"),
        ("train: train.txt", ".\\train\\images\\0.png\r"),
        ("train: train.txt", "/home/other/train/images/0.png"),
        ("train: .\\train\\images", ""),
    ],
)
def test_images_may_be_a_text_file_and_paths_of_windows(folder: Path, yaml: str, line: str) -> None:
    (folder / "train.txt").write_text(f"{line}\n")
    (folder / "data.yaml").write_text(f"{yaml}\nnames: [cat, dog]\n")
    (image,), problems = read_labels([folder])
    assert image.classes == ("cat",)
    assert problems == []


@pytest.mark.parametrize(
    ("kpt_shape", "row", "box"),
    [
        ("[3, 2]", f"{BOX} {MARKS}", [80, 30, 120, 70]),
        ("[1, 2]", f"{BOX} -1 -1", [80, 30, 120, 70]),
        ("[0, 0]", f"{BOX} {MARKS}", [40, 40, 108, 50]),
        ("[0, 0]", "0 0.1 0.2 0.3 0.2 0.3 0.6", [20, 20, 60, 60]),
        (None, f"{BOX} {MARKS}", None),
    ],
)
def test_kpt_shape_decides_between_landmarks_and_polygons(
    folder: Path, kpt_shape: str | None, row: str, box: list[float] | None
) -> None:
    (folder / "train" / "labels" / "0.txt").write_text(row)
    more = f"kpt_shape: {kpt_shape}\n" if kpt_shape else ""
    (folder / "data.yaml").write_text(f"train: train/images\n{NAMES}{more}")
    if box is None:
        with pytest.raises(DataError, match=r"0\.txt:1: .*data\.yaml must say .* kpt_shape"):
            read_labels([folder])
        return
    (image,), problems = read_labels([folder])
    np.testing.assert_allclose(image.boxes, [box], atol=1e-4)
    assert problems == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1 0.5 0.5 0.1", "a row must be class x y width height, or a class and the corners"),
        ("1 a b c d", "a row must be numbers"),
        ("2 0.5 0.5 0.1 0.1", "the class must be one of the 2 names"),
        ("0 nan 0.5 0.1 0.1", "coordinates must be shares of the image"),
        ("0 0.5 1.02 0.1 0.1", "coordinates must be shares of the image"),
    ],
)
def test_bad_rows_are_named_by_line(folder: Path, row: str, words: str) -> None:
    labels = folder / "train" / "labels" / "0.txt"
    labels.write_text(f"{BOX}\n{row}\n")
    _, (problem,) = read_labels([folder])
    assert problem.startswith(f"{labels}:2: ")
    assert words in problem


@pytest.mark.parametrize(("orientation", "box"), [("exif", [40, 60, 60, 140]), ("stored", [80, 30, 120, 70])])
def test_shares_are_of_the_upright_photograph_unless_said(
    folder: Path, orientation: Any, box: list[float]
) -> None:
    Image.new("RGB", (200, 100)).save(folder / "train" / "images" / "0.png", exif=exif(6))
    (folder / "train" / "images" / "bad.jpg").write_bytes(b"nothing")
    (image,), (problem,) = read_labels([folder], orientation=orientation)
    np.testing.assert_allclose(image.boxes, [box], atol=1e-4)
    assert image.orientation == orientation
    assert "image bad.jpg cannot be read: " in problem


@pytest.mark.parametrize(
    ("photograph", "labels"),
    [
        ("train/images/b.png", "train/images/b.txt"),
        ("train/images/IMG_1.PNG", "train/labels/img_1.txt"),
        ("train/images/\u00e9.png", "train/labels/e\u0301.txt"),
        ("train/images/b.png", "train/labels/b.png.txt"),
        ("train/images/x/b.png", "train/labels/b.txt"),
    ],
)
def test_label_files_that_belong_to_no_photograph_are_named(
    folder: Path, photograph: str, labels: str
) -> None:
    """Labels of other splits, lists of images and of classes are none."""
    for path in (photograph, labels):
        (folder / path).parent.mkdir(exist_ok=True)
    Image.new("RGB", (20, 10)).save(folder / photograph)
    (folder / labels).write_text(f"{BOX}\n")
    (folder / "train" / "labels" / "classes.txt").write_text("cat\ndog\n")
    (folder / "train" / "images" / "list.txt").write_text("train/images/0.png\n")
    account = Account()
    _, (problem,) = read_labels([folder], account=account)
    assert problem.startswith(f"{folder / labels}: label file without a photograph; ")
    assert account.counts["photographs without a label file"] == 1


def test_boxes_beyond_the_edge_are_clipped_and_counted_and_pixels_are_refused(folder: Path) -> None:
    account = Account()
    (folder / "train" / "labels" / "0.txt").write_bytes(
        b"\xef\xbb\xbf0 0.95 0.5 0.2 0.4\r\n0 95 50 20 40\r\n9 0.5 0.5 0.1 0.1\r\n"
    )
    (image,), problems = read_labels([folder], account=account)
    np.testing.assert_allclose(image.boxes, [[170, 30, 210, 70]])
    assert account.counts["boxes clipped"] == 1
    assert len(problems) == 2


def test_photographs_that_share_a_label_file_and_files_of_other_kinds_are_named(folder: Path) -> None:
    Image.new("RGB", (200, 100)).save(folder / "train" / "images" / "0.TIF", format="TIFF")
    (folder / "train" / "images" / "1.heic").write_bytes(b"")
    account = Account()
    images, problems = read_labels([folder], account=account)
    assert [len(image.boxes) for image in images] == [1, 1]
    assert account.counts["names given twice"] == 1
    assert any("1.heic: left out" in problem for problem in problems)
