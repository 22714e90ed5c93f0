"""The comparison of detections as sets."""

import math

import pytest
import torch

from lensbox.bench.detections import require_same_detections
from lensbox.bench.runner import WrongAnswerError
from lensbox.runtime.detection_sets import Found, Limits

Row = tuple[float, float, float, float, float]
FACE: Row = (10.0, 10.0, 50.0, 60.0, 0.9)
OTHER: Row = (100.0, 100.0, 140.0, 150.0, 0.9)
AT_THRESHOLD: Row = (200.0, 10.0, 220.0, 30.0, 0.5001)


def found(*rows: Row) -> Found:
    """Return detections with these boxes and scores."""
    values = torch.tensor(rows).view(-1, 5)
    return Found(values[:, :4], values[:, 4], torch.zeros(len(rows), dtype=torch.int64), False, {})


def compare(actual: Found, expected: Found) -> None:
    require_same_detections(actual, expected, (0.5, 0.5), Limits(0.01, 0.001, 0.01, {}))


def test_order_and_rounding_make_no_difference() -> None:
    compare(found(FACE, OTHER), found(OTHER, FACE))
    moved = tuple(value + 0.0005 for value in FACE)
    compare(found(moved), found(FACE))  # type: ignore[arg-type]
    many = [(20.0 * index, 10.0, 20.0 * index + 15, 30.0, 0.8) for index in range(9)]
    compare(found(*many), found(*many))
    compare(found(), found())


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        ([], "expected 1 faces, got 0"),
        ([FACE, OTHER], r"expected 1 faces, got 2; .* has no counterpart"),
        ([(10.0, 30.0, 50.0, 80.0, 0.9)], r"the nearest is 20 px off"),
        ([(10.0, 10.1, 50.0, 60.0, 0.9)], "2 faces came or went by rounding, at most 0 of 1 may"),
        ([(10.0, 10.0, 50.0, 60.0, 0.8)], r"of 1 may|has a score of 0\.8"),
        ([(math.nan, 10.0, 50.0, 60.0, 0.9)], "has no counterpart"),
        ([FACE, AT_THRESHOLD], "1 faces came or went by rounding, at most 0 of 1 may"),
    ],
)
def test_rejects_other_detections(actual: list[Row], message: str) -> None:
    with pytest.raises(WrongAnswerError, match=message):
        compare(found(*actual), found(FACE))
