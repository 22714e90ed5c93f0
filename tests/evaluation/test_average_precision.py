from typing import Any

import numpy as np
import pytest
from scored_boxes import found, labels, matched, random_case

from lensbox.evaluation.average_precision import BANDS, Curve

BOX, OTHER = (0, 0, 10, 10), (50, 50, 60, 60)


@pytest.mark.parametrize(
    ("truth", "detections", "expected"),
    [
        ([BOX], [(*BOX, 0.9)], 1.0),
        ([BOX], [], 0.0),
        ([], [(*BOX, 0.9)], np.nan),
        ([BOX, OTHER], [(*BOX, 0.9), (80, 80, 90, 90, 0.8), (*OTHER, 0.7)], 0.5 + 0.5 * 2 / 3),
        ([BOX], [(0, 0, 10, 20, 0.9)], 1.0),  # IoU 1/2 is a hit
        ([BOX], [(0, 0, 10, 20.1, 0.9)], 0.0),
    ],
)
def test_average_precision_by_hand(truth: Any, detections: Any, expected: float) -> None:
    curve = matched([labels(*truth)], [found(*detections)]).curve()
    assert curve.average_precision() == pytest.approx(expected, nan_ok=True)


# Average precision of `random_case(seed)` by band, computed with the reference implementation that scores
# the held-back events (its loops follow WIDER FACE's rule literally). The odd seed gives equal scores.
REFERENCE = {
    0: (0.5396918683726274, 0.6857505258535006, 0.38113765763222285, 0.4125, 0.2575757575757575),
    1: (0.46808806851109086, 0.6585787296994194, 0.44197443181818186, 0.3366846738695478, 0.3585264408793821),
}


@pytest.mark.parametrize("seed", REFERENCE)
def test_agrees_with_the_reference(seed: int) -> None:
    table = matched(*random_case(seed)).table()
    np.testing.assert_allclose([table[band] for band in BANDS], REFERENCE[seed], rtol=0, atol=1e-9)


def test_threshold_of_best_f1_maximises_f1() -> None:
    curve = Curve(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, True, False, True]), 4)
    threshold, f1 = curve.best_threshold()  # F1 by cut: 2/5, 4/6, 4/7, 6/8
    assert f1 == 0.75
    # The detection of score 0.6 counts, also where scores are float32: those above the threshold do.
    assert np.nextafter(np.float32(0.6), np.float32(0)) == threshold < 0.6


def test_no_threshold_parts_equal_scores() -> None:
    """The hit comes first, but whatever lets it pass lets three false alarms pass too: F1 2/5, not 1."""
    detections = found((*BOX, 0.5), *((x, 50, x + 10, 60, 0.5) for x in (0, 20, 40)))
    curve = matched([labels(BOX)], [detections]).curve()
    threshold, f1 = curve.best_threshold()
    assert f1 == pytest.approx(2 / 5)
    assert (curve.scores > threshold).sum() == 4
