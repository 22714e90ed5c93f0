"""Boxes around segmentations, against pycocotools."""

from typing import Any

import numpy as np
import pytest
from pycocotools import mask  # type: ignore[import, unused-ignore]

from lensbox.train.data.segmentation import enclosing_box


@pytest.mark.parametrize("seed", range(20))
def test_runs_have_the_box_of_their_pixels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(2, 60, 2).tolist()
    pixels = np.zeros((height, width), np.uint8, order="F")
    for _ in range(1 + seed % 3):
        y, x = rng.integers(0, height), rng.integers(0, width)
        pixels[y : y + rng.integers(1, 30), x : x + rng.integers(1, 30)] = 1
    y, x = pixels.nonzero()
    expected = [x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1]
    compressed = mask.encode(pixels)["counts"].decode()
    flat = pixels.flatten(order="F")
    changes = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff([0, *([0] if flat[0] else []), *changes, len(flat)]).tolist()
    for counts in (compressed, runs):
        assert enclosing_box({"size": [height, width], "counts": counts}) == expected


def test_polygons_have_the_box_of_their_corners() -> None:
    polygons = [[10.5, 20, 40, 22, 71, 40], [1, 2, 5, 2, 5, 7]]
    assert enclosing_box(polygons) == [1, 2, 70, 38]
    assert enclosing_box(polygons[1]) == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("segmentation", "rule"),
    [
        ([[1, 2, 3, 4]], "polygons must be lists"),
        ([[1, 2, 3, 4, 5, True]], "polygons must be lists"),
        ({"size": [60, -1], "counts": [0]}, "must have size"),
        ({"size": [2, 2], "counts": [1, -1]}, "must have size"),
        ({"size": [2, 2], "counts": "PPPPo"}, "must have size"),  # no end
        ({"size": [2, 2], "counts": [3, 9]}, "fill the size"),
        ({"size": [2, 2], "counts": [4]}, "must cover pixels"),
    ],
)
def test_malformed_segmentations_are_refused(segmentation: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        enclosing_box(segmentation)
