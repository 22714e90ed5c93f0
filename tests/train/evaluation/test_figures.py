"""Figures of detectors with several classes."""

from typing import Any

import numpy as np
import pytest
from scored_boxes import random_case

from lensbox.train.evaluation.average_precision import BANDS, Evaluation
from lensbox.train.evaluation.coco_precision import coco_precision
from lensbox.train.evaluation.figures import ClassFigures, mean_precision

CLASSES = 3


def test_a_class_is_scored_as_if_it_were_alone() -> None:
    """Classes are random, so one in three of the detections near a box has its class."""
    rng = np.random.default_rng(7)
    labels, found = random_case(7)
    labels = [one._replace(classes=rng.integers(0, CLASSES, len(one.boxes))) for one in labels]
    found = [one._replace(classes=rng.integers(0, CLASSES, len(one.boxes))) for one in found]
    matched = Evaluation(labels, found)

    def of_class(wanted: int, images: list[Any]) -> list[Any]:
        chosen = [type(one)(*(part[one.classes == wanted] for part in one)) for one in images]
        return [one._replace(classes=np.zeros_like(one.classes)) for one in chosen]

    alone = []
    for wanted in range(CLASSES):
        alone_labels, alone_found = of_class(wanted, labels), of_class(wanted, found)
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
