"""Figures of detectors with several classes."""

from typing import Any

import numpy as np
import pytest
from scored_boxes import matched, random_case

from lensbox.evaluation.figures import figures_of

CLASSES = 3


def test_a_class_is_scored_as_if_it_were_alone() -> None:
    """Classes are random, so one in three of the detections near a box has its class."""
    rng = np.random.default_rng(7)
    labels, found = random_case(7)
    labels = [one._replace(classes=rng.integers(0, CLASSES, len(one.boxes))) for one in labels]
    found = [one._replace(classes=rng.integers(0, CLASSES, len(one.boxes))) for one in found]
    matches = matched(labels, found, CLASSES)

    def of_class(wanted: int, images: list[Any]) -> list[Any]:
        chosen = [type(one)(*(part[one.classes == wanted] for part in one)) for one in images]
        return [one._replace(classes=np.zeros_like(one.classes)) for one in chosen]

    alone = []
    for wanted in range(CLASSES):
        one = figures_of(matched(of_class(wanted, labels), of_class(wanted, found)), ())
        assert matches.table(wanted) == pytest.approx(one.average_precision, nan_ok=True)
        alone.append(one)
    figures = figures_of(matches, ("a", "b", "c"))
    assert figures.coco["AP50"] == pytest.approx(np.mean([each.coco["AP50"] for each in alone]))
    assert figures.coco["AP small"] == pytest.approx(np.nanmean([each.coco["AP small"] for each in alone]))
    means = np.nanmean([[*each.average_precision.values()] for each in alone], 0)
    assert [*figures.average_precision.values()] == pytest.approx(means)


def test_means_leave_out_classes_without_boxes() -> None:
    labels, found = random_case(3)
    one, two = (figures_of(matched(labels, found, count), "ab"[:count]) for count in (1, 2))
    assert two.classes["b"]["boxes"] == 0
    assert two.average_precision == pytest.approx(one.average_precision)
    assert two.coco == pytest.approx(one.coco, nan_ok=True)
    assert two.to_json()["classes"]["b"]["average_precision"]["all>=8"] is None


def test_confusions_count_classes_misses_and_false_alarms() -> None:
    """Two boxes of class 0, one found as class 1; one found with a low score; one detection of nothing."""
    (labels,), (found,) = random_case(0)[0][:1], random_case(0)[1][:1]
    boxes = np.array([[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [60, 0, 70, 10]], float)
    areas = np.full(4, 100.0)
    labels = labels._replace(boxes=boxes, ignore=np.array([0, 0, 0, 1], bool), areas=areas)
    labels = labels._replace(classes=np.array([0, 0, 1, 0]))
    places = np.concatenate([boxes, boxes[:1] + 200])
    scores, classes = np.array([0.9, 0.8, 0.1, 0.9, 0.7]), np.array([0, 1, 1, 1, 1])
    matches = matched([labels], [found._replace(boxes=places, scores=scores, classes=classes)], 2)
    assert matches.confusion(0.5).tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 0]]
    assert matches.confusion(0.05).tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
