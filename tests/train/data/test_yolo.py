"""Labels in YOLO's layout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_files import exif
from PIL import Image

from lensbox.train.data.labels import DataError, read_labels

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
def test_photographs_without_a_label_file_are_counted(
    folder: Path, caplog: pytest.LogCaptureFixture, labelled: int
) -> None:
    labels = folder / "val" / "labels"
    (labels / "0.txt").unlink()
    for index in range(labelled):
        (labels / f"{index}.txt").write_text(BOX)
    said = f"{5 - labelled} of 5 photographs have no label file, such as {labels / f'{labelled}.txt'}"
    if labelled:
        images, problems = read_labels([folder], split="val")
        assert [len(image.boxes) for image in images] == [1] * labelled + [0] * (5 - labelled)
        assert problems == []
        assert (said in caplog.text) == (labelled == 2)
        return
    with pytest.raises(DataError, match=said):
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
    assert "bad.jpg: image cannot be read: " in problem
