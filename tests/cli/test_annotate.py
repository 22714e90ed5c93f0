"""Detections drawn on pictures."""

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageColor

from lensbox.cli import annotate as module
from lensbox.cli.annotate import annotate

COLORS, OUTLINE = [*map(ImageColor.getrgb, module.COLORS)], ImageColor.getrgb(module.OUTLINE)


def test_a_box_is_framed_in_the_color_of_its_class() -> None:
    gray = Image.new("L", (200, 100), 128)
    found = [
        {"box": [120.2, 30.0, 180.0, 80.0], "score": 0.9, "label": "blue"},
        {"box": [20.0, 30.0, 80.0, 80.0], "score": 0.4, "label": "red"},
    ]
    drawn = np.asarray(annotate(gray, found, classes=("red", "blue")))
    assert drawn.shape == (100, 200, 3)
    # One pixel of color just inside the box, the outline beside it, and nothing in the middle.
    for x, color in ((20, COLORS[0]), (120, COLORS[1])):
        assert tuple(drawn[60, x]) == color
        assert tuple(drawn[60, x - 1]) == tuple(drawn[60, x + 1]) == OUTLINE
        assert tuple(drawn[60, x - 2]) == tuple(drawn[60, x + 20]) == (128, 128, 128)
    assert tuple(drawn[79, 150]) == COLORS[1]
    assert np.asarray(gray).max() == 128  # a copy was drawn on


def test_the_tag_is_above_or_inside_the_box() -> None:
    picture = Image.new("RGB", (200, 100))
    for y, inside in ((40.0, False), (3.0, True)):
        drawn = np.asarray(annotate(picture, [{"box": [20.0, y, 120.0, 90.0], "score": 0.873}]))
        above, below = drawn[: int(y) - 1, 25:60], drawn[int(y) + 3 : int(y) + 10, 25:35]
        assert bool((above == COLORS[0]).all(-1).any()) is not inside
        assert bool((below == COLORS[0]).all(-1).any()) is inside


def test_points_are_discs() -> None:
    found = [{"box": [10, 40, 90, 90], "score": 0.5, "extras": {"eyes": [[[40, 60], [70, 60]]], "age": 31.5}}]
    drawn = np.asarray(annotate(Image.new("RGB", (100, 100)), found, points=("eyes",)))
    assert tuple(drawn[60, 40]) == tuple(drawn[60, 70]) == COLORS[0]
    assert not drawn[60, 55].any()


@pytest.mark.parametrize("pair", ["ü/ö", "ł/ś", "кот/тон", "猫/犬", "🐱/🐶"])
def test_names_of_all_scripts_differ(pair: str) -> None:
    one, other = (
        annotate(Image.new("RGB", (640, 480)), [{"box": [9, 99, 400, 400], "score": 0.9, "label": name}])
        for name in pair.split("/")
    )
    assert (np.asarray(one) != np.asarray(other)).any()


def test_extreme_numbers_do_not_fail() -> None:
    picture = Image.new("RGB", (64, 64))
    found: list[dict[str, Any]] = [
        {"box": [-1e30, -1e30, 1e30, 1e30], "score": 2.0, "label": "x" * 1000},
        {"box": [None, 0, 1, 1], "score": 0.5},
        {"box": [50, 50, 10, 10], "score": None, "extras": {"eyes": [[None, 1], [1e300, 4]]}},
        {"box": [5, 5, 5, 5], "score": 0},
    ]
    assert annotate(picture, found, points=("eyes",)).size == (64, 64)
    assert np.asarray(annotate(picture, found[1:2])).max() == 0
    assert annotate(Image.new("RGBA", (1, 1)), found).mode == "RGB"
