import numpy as np
import pytest
from scored_boxes import found, labels

from lensbox.train.evaluation.coco_precision import COCO_FIGURES, coco_lines, coco_precision

SMALL = (0, 0, 20, 20)
MEDIUM = (100, 100, 140, 140)


def test_by_hand() -> None:
    """Two faces. The first detection has IoU 20 · 15.5 / 400 = 0.775 with the small one, the second is exact.

    Up to IoU 0.75, six of the ten thresholds, all is found. From 0.8 on the first is a false alarm, and
    precision is 1/2 up to recall 1/2: at 51 of COCO's 101 recalls.
    """
    (figures,) = coco_precision([labels(SMALL, MEDIUM)], [found((0, 0, 20, 15.5, 0.9), (*MEDIUM, 0.8))])
    assert list(figures) == list(COCO_FIGURES)
    assert figures["AP"] == pytest.approx((6 + 4 * 0.5 * 51 / 101) / 10)
    assert figures["AP50"] == figures["AP75"] == 1.0
    assert figures["AP small"] == pytest.approx(0.6)
    assert figures["AP medium"] == pytest.approx(1.0)
    assert np.isnan(figures["AP large"])
    assert coco_lines(figures)[2].split() == ["0.7010", "1.0000", "1.0000", "0.6000", "1.0000", "nan"]


def test_detections_in_ignored_boxes_are_neither_right_nor_wrong() -> None:
    region = (100, 100, 200, 200)
    inside = [(*MEDIUM, 0.9), (150, 150, 190, 190, 0.8)]
    detections = [found(*inside, (*SMALL, 0.5))]
    assert coco_precision([labels(SMALL, region, ignore=(1,))], detections)[0]["AP"] == pytest.approx(1.0)
    # As a face to find, the region is missed and both are false alarms: precision 1/3 at recall 1/2.
    assert coco_precision([labels(SMALL, region)], detections)[0]["AP"] == pytest.approx(51 / 101 / 3)


def test_images_without_faces_or_detections() -> None:
    assert coco_precision([labels(SMALL), labels()], [found(), found((*SMALL, 0.9))])[0]["AP"] == 0.0
    assert coco_precision([labels(SMALL)], [found()])[0]["AP"] == 0.0
    assert all(np.isnan(value) for value in coco_precision([labels()], [found((*SMALL, 0.9))])[0].values())


def test_other_numbers_of_images_are_refused() -> None:
    with pytest.raises(ValueError, match="got 1 and 0"):
        coco_precision([labels()], [])
