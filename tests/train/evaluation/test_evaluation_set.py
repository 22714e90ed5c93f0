"""Labelled photographs on the canvas of a detector."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lensbox.common.errors import InputError
from lensbox.runtime import Canvas
from lensbox.train.data.labels import read_labels
from lensbox.train.evaluation.evaluation_set import load_evaluation_set


def write_photographs(folder: Path, rows: list[str]) -> Path:
    """One photograph of 40 x 20 pixels, red left and blue right, with these rows."""
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20, 0] = pixels[:, 20:, 2] = 255
    (folder / "images").mkdir()
    Image.fromarray(pixels).save(folder / "images" / "a.png")
    (folder / "things_bbx_gt.txt").write_text("\n".join(["a.png", str(len(rows)), *rows]) + "\n")
    return folder


def test_canvases_and_labels_are_those_of_the_detector(tmp_path: Path) -> None:
    rows = [f"{x} 2 10 10 0 0 0 0 0 0 {name}" for x, name in ((0, "red"), (20, "blue"), (5, "green"))]
    images, _ = read_labels([write_photographs(tmp_path, [*rows, "1 1 4 4"])])
    data = load_evaluation_set(images, canvas=Canvas(60, 80, 3, 9), classes=("blue", "red"))
    assert data.canvases.shape == (1, 3, 60, 80)
    assert data.canvases[0, :, 0, 0].tolist() == [9, 9, 9]  # 40 x 20 becomes 80 x 40: 10 rows of padding
    assert data.canvases[0, :, 30, 10].tolist() == [255, 0, 0]
    assert data.labels[0].boxes.tolist() == [[0, 14, 20, 34], [40, 14, 60, 34]]
    assert data.labels[0].classes.tolist() == [1, 0]
    place = tmp_path / "things_bbx_gt.txt:1"
    assert data.problems == [
        f"{place}: 1 boxes of class {name!r}, which the detector lacks" for name in ("green", "")
    ]


def test_without_classes_all_boxes_count(tmp_path: Path) -> None:
    images, _ = read_labels([write_photographs(tmp_path, ["0 2 10 10 0 0 0 0 0 0 red", "20 2 10 10"])])
    data = load_evaluation_set(images)
    assert data.canvases.shape == (1, 1, 256, 256)
    assert len(data.labels[0].boxes) == 2
    assert data.problems == []
    with pytest.raises(InputError, match="boxes of the detector's classes, c0, c1, got none"):
        load_evaluation_set(images, canvas=Canvas(60, 80, 3), classes=["c0", "c1"])
