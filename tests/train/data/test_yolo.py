"""Labels in YOLO's layout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lensbox.train.data.labels import DataError, read_labels

NAMES = "names: {0: cat, 1: dog}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs of 200 x 100 pixels: one of `train` and one of five of `val` have two boxes."""
    for split, count in (("train", 1), ("val", 5)):
        for part in ("images", "labels"):
            (tmp_path / split / part).mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (200, 100)).save(tmp_path / split / "images" / f"{index}.png")
        (tmp_path / split / "labels" / "0.txt").write_text(
            "1 0.5 0.5 0.1 0.2\n\n0 0.1 0.2 0.3 0.2 0.3 0.6 0.1 0.6\n"
        )
    (tmp_path / "data.yaml").write_text(f"train: ../train/images\nval: val/images\n{NAMES}")
    return tmp_path


@pytest.mark.parametrize("named", [".", "data.yaml"])
@pytest.mark.parametrize("layout", [None, "yolo"])
def test_reads_boxes_polygons_and_classes(folder: Path, named: str, layout: str | None) -> None:
    (image,), problems = read_labels([folder / named], layout=layout)
    assert problems == []
    assert image.name == "0.png"
    np.testing.assert_allclose(image.boxes, [[90, 40, 110, 60], [20, 20, 60, 60]], atol=1e-4)
    assert image.classes == ("dog", "cat")
    assert not image.ignore.any()


@pytest.mark.parametrize("labelled", [0, 1, 2, 5])
def test_photographs_without_a_label_file_are_counted(
    folder: Path, caplog: pytest.LogCaptureFixture, labelled: int
) -> None:
    labels = folder / "val" / "labels"
    (labels / "0.txt").unlink()
    for index in range(labelled):
        (labels / f"{index}.txt").write_text("0 0.5 0.5 0.1 0.2")
    said = f"{5 - labelled} of 5 photographs have no label file, such as {labels / f'{labelled}.txt'}"
    if labelled:
        images, problems = read_labels([folder], split="val")
        assert [len(image.boxes) for image in images] == [1] * labelled + [0] * (5 - labelled)
        assert problems == []
        assert (said in caplog.text) == (labelled < 2.5)
        return
    labels.rename(folder / "val" / "Labels")
    with pytest.raises(DataError, match=said):
        read_labels([folder], split="val")


def test_warns_of_data_without_boxes(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "train" / "labels" / "0.txt").write_text("")
    assert len(read_labels([folder])[0]) == 1
    assert "all 1 photographs are background" in caplog.text


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ("[no, yes]", ("yes", "no")),  # YAML 1.1 reads these as False and True
        ("[1, 2.50]", ("2.50", "1")),
        ("{'0': on, '1': null}", ("null", "on")),
    ],
)
def test_names_are_text_as_written(folder: Path, names: str, classes: tuple[str, ...]) -> None:
    (folder / "data.yaml").write_text(f"train: train/images\nnames: {names}\n")
    assert read_labels([folder])[0][0].classes == classes


@pytest.mark.parametrize(
    ("yaml", "line"),
    [
        ("path: .\ntrain: train.txt", "./train/images/0.png"),
        ("train: train.txt", ".\\train\\images\\0.png\r"),
        ("train: train.txt", "C:\\data\\train\\images\\0.png"),
        ("train: train.txt", "/data/train/images/0.png"),
        ("path: C:\\data\ntrain: .\\train\\images", ""),
    ],
)
def test_images_may_be_a_text_file_and_paths_of_other_machines(folder: Path, yaml: str, line: str) -> None:
    (folder / "train.txt").write_text(f"{line}\n")
    (folder / "data.yaml").write_text(f"{yaml}\nnames: [cat, dog]\n")
    (image,), problems = read_labels([folder])
    assert image.classes == ("dog", "cat")
    assert problems == []


BOX = "0 0.5 0.5 0.2 0.4"
MARKS = "0.46 0.42 0.54 0.42 0.5 0.5"
POLYGON = "0.1 0.2 0.3 0.2 0.3 0.6"


@pytest.mark.parametrize(
    ("kpt_shape", "rows", "boxes"),
    [
        ("[3, 2]", [f"{BOX} {MARKS}"], [[80, 30, 120, 70]]),
        ("[2, 3]", [f"{BOX} {MARKS}"], [[80, 30, 120, 70]]),
        ("[1, 2]", [f"{BOX} -1 -1", BOX.replace("0.4", "0.2")], [[80, 30, 120, 70], [80, 40, 120, 60]]),
        ("[0, 0]", [f"{BOX} {MARKS}"], [[40, 40, 108, 50]]),
        # Without kpt_shape: rows of other lengths, or that are no boxes in the picture, are polygons.
        (None, [f"0 {POLYGON}"], [[20, 20, 60, 60]]),
        (None, [f"{BOX} {MARKS}", f"{BOX} {MARKS} 0.9 0.9"], [[40, 40, 108, 50]]),
        (None, [f"{BOX} {MARKS}"], None),
        (None, [f"{BOX} -1 -1 0.5 0.5"], None),
        (None, [f"{BOX} 0.46 0.42 1 0.54 0.42 0 0.5 0.5 1 0 0 0"], None),  # landmarks of three numbers
        (
            None,
            [BOX, f"{BOX} {MARKS}", f"{BOX} {MARKS.replace('0.46', '0.47')}", f"0 {POLYGON} 0 0 0 0"],
            None,
        ),
    ],
)
def test_kpt_shape_decides_between_landmarks_and_polygons(
    folder: Path, kpt_shape: str | None, rows: list[str], boxes: list[list[float]] | None
) -> None:
    labels, data = folder / "train" / "labels" / "0.txt", folder / "data.yaml"
    labels.write_text("\n".join(rows))
    data.write_text(f"train: train/images\n{NAMES}" + (f"kpt_shape: {kpt_shape}\n" if kpt_shape else ""))
    if boxes is not None:
        (image,), problems = read_labels([folder])
        np.testing.assert_allclose(image.boxes[: len(boxes)], boxes, atol=1e-4)
        assert problems == []
        return
    with pytest.raises(DataError, match="may be a box with landmarks or a polygon") as caught:
        read_labels([folder])
    first = next(line for line, row in enumerate(rows, 1) if len(row.split()) > 5)
    assert str(caught.value).startswith(f"{labels}:{first}: ")
    assert str(data) in str(caught.value)


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
        ("0 .5 .5 .10 .1", "same box and class as"),
    ],
)
def test_bad_rows_are_named_by_line(folder: Path, row: str, words: str) -> None:
    labels = folder / "train" / "labels" / "0.txt"
    labels.write_text(f"0 0.5 0.5 0.1 0.1\n{row}\n")
    (image,), (problem,) = read_labels([folder])
    assert len(image.boxes) == 1
    assert problem.origin == f"{labels}:2"
    assert words in problem.message


@pytest.mark.parametrize(("orientation", "box"), [("exif", [45, 80, 55, 120]), ("stored", [90, 40, 110, 60])])
def test_shares_are_of_the_upright_photograph_unless_said(
    folder: Path, orientation: Any, box: list[float]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (200, 100)).save(folder / "train" / "images" / "0.png", exif=exif)
    (image,), _ = read_labels([folder], orientation=orientation)
    np.testing.assert_allclose(image.boxes[0], box, atol=1e-4)
    assert image.orientation == orientation


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
        ("names: face", "names must list the classes, got 'face'"),
        (NAMES, "train must name a folder of images, got None"),
        (f"train: absent\n{NAMES}", "train must name a folder that exists, got 'absent'"),
        (f"train: train/images\n{NAMES}kpt_shape: [5, 4]", "kpt_shape must be"),
        (f"train: train/images\n{NAMES}kpt_shape: 5", "kpt_shape must be"),
    ],
)
def test_other_descriptions_are_refused(folder: Path, text: str, words: str) -> None:
    (folder / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=words):
        read_labels([folder])
