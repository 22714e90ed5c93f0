"""Evaluation of detectors with several classes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scored_boxes import random_case

from lensbox.common.errors import InputError
from lensbox.runtime import Canvas
from lensbox.train.data.labels import read_labels
from lensbox.train.evaluation.average_precision import BANDS, Evaluation
from lensbox.train.evaluation.boxes import ImageDetections, ImageLabels
from lensbox.train.evaluation.coco_precision import coco_precision
from lensbox.train.evaluation.evaluate import ClassFigures, detect_all, mean_precision
from lensbox.train.evaluation.evaluation_set import load_evaluation_set

CLASSES = 3


def test_a_class_is_scored_as_if_it_were_alone() -> None:
    """Classes are random, so one in three of the detections near a box has its class."""
    rng = np.random.default_rng(7)
    labels, found = random_case(7)
    labels = [replace(one, classes=rng.integers(0, CLASSES, len(one.boxes))) for one in labels]
    found = [replace(one, classes=rng.integers(0, CLASSES, len(one.boxes))) for one in found]
    matched = Evaluation(labels, found)

    def of_class(wanted: int, images: list[Any], *parts: str) -> list[Any]:
        return [type(one)(*(getattr(one, part)[one.classes == wanted] for part in parts)) for one in images]

    alone = []
    for wanted in range(CLASSES):
        alone_labels = of_class(wanted, labels, "boxes", "ignore")
        alone_found = of_class(wanted, found, "boxes", "scores")
        expected = Evaluation(alone_labels, alone_found).table()
        assert matched.table(wanted) == pytest.approx(expected, nan_ok=True)
        alone.append(coco_precision(alone_labels, alone_found))
    figures = coco_precision(labels, found, CLASSES)
    assert figures["AP50"] == pytest.approx(np.mean([each["AP50"] for each in alone]))
    assert figures["AP small"] == pytest.approx(np.nanmean([each["AP small"] for each in alone]))


def test_means_leave_out_classes_without_boxes() -> None:
    nan = float("nan")
    classes = [ClassFigures({**dict.fromkeys(BANDS, nan), "all>=8": value}, 1) for value in (0.5, nan, 0.1)]
    means = mean_precision({str(number): figures for number, figures in enumerate(classes)})
    assert means == pytest.approx({**dict.fromkeys(BANDS, nan), "all>=8": 0.3}, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("boxes", np.full((1, 4), np.nan), "finite numbers [n, 4], got nan"),
        ("boxes", np.full((1, 4), -np.inf), "finite numbers [n, 4], got -inf"),
        ("boxes", [[0, 0, 1, 1]], "finite numbers [n, 4], got [[0, 0, 1, 1]]"),
        ("boxes", np.ones((1, 5)), "finite numbers [n, 4], got shape [1, 5]"),
        ("scores", np.array([np.nan]), "finite numbers [n], got nan"),
        ("scores", np.array([True]), "finite numbers [n], got array([ True])"),
        ("scores", [0.9], "finite numbers [n], got [0.9]"),
        ("scores", np.ones(2), "numbers, as many as 1 boxes"),
        ("classes", np.ones(1), "integers, as many as 1 boxes"),
        ("classes", np.ones(2, int), "integers, as many as 1 boxes"),
        ("ignore", np.zeros(1), "true or false, as many as 1 boxes"),
        ("ignore", np.zeros(2, bool), "true or false, as many as 1 boxes"),
    ],
)
def test_boxes_scores_and_classes_must_be_finite_numbers(name: str, value: Any, rule: str) -> None:
    parts = {"boxes": np.ones((1, 4)), "scores": np.ones(1), "ignore": np.zeros(1, bool)} | {name: value}
    scores, ignore = parts.pop("scores"), parts.pop("ignore")
    if name != "ignore":
        with pytest.raises(InputError, match=re.escape(f"{name} of detections must be {rule}")):
            ImageDetections(scores=scores, **parts)
    if name != "scores":
        with pytest.raises(InputError, match=re.escape(f"{name} of labels must be {rule}")):
            ImageLabels(ignore=ignore, **parts)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("scores", torch.ones(1, 1, dtype=torch.bool), "a floating-point tensor, got torch.bool"),
        ("scores", [[1.0]], "a floating-point tensor, got list"),
        ("scores", torch.full((1, 1), torch.inf), "finite numbers [n], got inf"),
        ("boxes", torch.ones(1, 1, 4).long(), "a floating-point tensor, got torch.int64"),
        ("boxes", torch.full((1, 1, 4), torch.nan), "finite numbers [n, 4], got nan"),
    ],
)
def test_a_detector_must_find_finite_numbers(name: str, value: Any, rule: str) -> None:
    """Training's own evaluation and `lensbox evaluate` ask detectors through `detect_all`."""
    outputs = {"boxes": torch.ones(1, 1, 4), "scores": torch.ones(1, 1), "counts": torch.ones(1).long()}
    with pytest.raises(InputError, match=re.escape(f"{name} of detections must be {rule}")):
        detect_all(lambda *_: outputs | {name: value}, torch.zeros(1, 1, 8, 8, dtype=torch.uint8), "cpu")


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
    assert [problem.message for problem in data.problems] == [
        "1 boxes of class 'green', which the detector lacks",
        "1 boxes of class '', which the detector lacks",
    ]


def test_without_classes_all_boxes_count(tmp_path: Path) -> None:
    images, _ = read_labels([write_photographs(tmp_path, ["0 2 10 10 0 0 0 0 0 0 red", "20 2 10 10"])])
    data = load_evaluation_set(images)
    assert data.canvases.shape == (1, 1, 256, 256)
    assert len(data.labels[0].boxes) == 2
    assert data.problems == []
    with pytest.raises(InputError, match="boxes of the detector's classes, c0, c1, got none"):
        load_evaluation_set(images, canvas=Canvas(60, 80, 3), classes=["c0", "c1"])


@pytest.mark.parametrize("without", ["labels", "detections"])
def test_boxes_without_classes_are_of_class_0(without: str) -> None:
    boxes, classes = np.array([[0.0, 0, 20, 20], [50, 50, 70, 70]]), {"classes": np.array([0, 1])}
    labels = ImageLabels(boxes, np.zeros(2, bool), **({} if without == "labels" else classes))
    found = ImageDetections(boxes, np.array([0.9, 0.8]), **({} if without == "detections" else classes))
    matched = Evaluation([labels], [found])
    # The second box is of class 1 on one side and of class 0 on the other: no hit, whichever side that is.
    assert matched.curve(*BANDS["all>=8"]).average_precision() == pytest.approx(0.5, abs=1e-3)
    of_zero = matched.curve(*BANDS["all>=8"], 0).average_precision()
    assert of_zero == pytest.approx(0.5 if without == "labels" else 1.0, abs=1e-3)
