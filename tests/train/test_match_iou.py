"""Hits at other IoUs than 0.5, and COCO's mean over ten of them."""

import numpy as np
import pytest
from scored_boxes import found, labels

from lensbox.train.average_precision import COCO_IOUS, Evaluation, ImageDetections, ImageLabels
from lensbox.train.evaluation.coco_precision import coco_precision

SMALL = (0, 0, 20, 20)
LARGE = (100, 100, 140, 140)


def hits(matched: Evaluation, match_iou: float) -> list[bool]:
    return [bool(hit) for hit in matched.curve(0, np.inf, match_iou=match_iou).hits]


def test_a_detection_hits_from_its_iou_on() -> None:
    """20 · 15 / 400 = 0.75, and 1."""
    matched = Evaluation([labels(SMALL, LARGE)], [found((0, 0, 20, 15, 0.9), (*LARGE, 0.8))], 0.1)
    assert hits(matched, 0.1) == hits(matched, 0.75) == [True, True]
    assert hits(matched, 0.7500001) == hits(matched, 1.0) == [False, True]
    assert matched.curve(0, np.inf, match_iou=0.8).average_precision() == pytest.approx(0.5 * 0.5)


def test_a_higher_iou_may_leave_a_box_to_another_detection() -> None:
    """The better detection takes the box from IoU 0.75 down; above, the second one does."""
    matched = Evaluation([labels(SMALL)], [found((0, 0, 20, 15, 0.9), (0, 0, 20, 19, 0.8))])
    assert hits(matched, 0.75) == [True, False]
    assert hits(matched, 0.9) == [False, True]


def test_an_ignored_box_frees_no_detection_that_does_not_fit_it() -> None:
    matched = Evaluation([labels(SMALL, LARGE, ignore=(0,))], [found((0, 0, 20, 15, 0.9), (*LARGE, 0.8))])
    assert hits(matched, 0.75) == [True]  # of the other one, which alone counts
    assert hits(matched, 0.8) == [False, True]


def test_coco_by_hand() -> None:
    """The first detection has IoU 20 · 15.5 / 400 = 0.775, the second is exact.

    Up to 0.75, six of the ten IoUs, all is found. From 0.8 on the first is a false alarm, and precision is
    1/2 up to recall 1/2: at 51 of 101 recalls.
    """
    matched = Evaluation([labels(SMALL, LARGE)], [found((0, 0, 20, 15.5, 0.9), (*LARGE, 0.8))])
    assert matched.coco_average_precision() == pytest.approx((6 + 4 * 0.5 * 51 / 101) / 10)
    assert np.isnan(Evaluation([labels()], [found((*SMALL, 0.9))]).coco_average_precision())
    assert Evaluation([labels(SMALL)], [found()]).coco_average_precision() == 0


@pytest.mark.parametrize("seed", range(4))
def test_coco_is_that_of_pycocotools(seed: int) -> None:
    """Of one class and of each of three, without ignored boxes, for which its rule is another."""
    rng = np.random.default_rng(seed)
    truth, detections = [], []
    for _ in range(20):
        count = int(rng.integers(0, 9))
        corner, size = rng.uniform(0, 200, (count, 2)), rng.uniform(12, 60, (count, 2))
        boxes = np.concatenate([corner, corner + size], 1)
        classes = rng.integers(0, 3, count)
        truth.append(ImageLabels(boxes, np.zeros(count, bool), classes))
        near = boxes.repeat(3, 0) + rng.normal(0, 3, (3 * count, 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 10)
        guessed = np.where(rng.random(3 * count) < 0.2, rng.integers(0, 3, 3 * count), classes.repeat(3))
        detections.append(ImageDetections(near, rng.permutation(3 * count) / 100 + 0.1, guessed))
    matched = Evaluation(truth, detections)
    expected = coco_precision(truth, detections, 3)
    ours = [matched.coco_average_precision(label) for label in range(3)]
    assert ours == pytest.approx([figures["AP"] for figures in expected], abs=1e-9)
    assert len(set(ours)) == 3
    at_75 = [matched.curve(0, np.inf, label, 0.75).coco_average_precision() for label in range(3)]
    assert at_75 == pytest.approx([figures["AP75"] for figures in expected], abs=1e-9)


def test_ious_are_cocos() -> None:
    expected = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    assert list(COCO_IOUS) == pytest.approx(expected)


def test_what_was_not_compared_is_refused() -> None:
    matched = Evaluation([labels(SMALL)], [found()])
    for match_iou in (0.4, float("nan")):
        with pytest.raises(ValueError, match=r"match_iou must be at least least_iou, 0\.5, got"):
            matched.curve(0, np.inf, match_iou=match_iou)
