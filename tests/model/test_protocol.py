"""The description of a detector, and what a detector gets of canvases."""

from typing import Any

import pytest
import torch

from lensbox.common.canvas import Canvas
from lensbox.model import DetectorSpec
from lensbox.model.protocol import Normalise


def test_levels_are_normalised_by_channel_or_kept() -> None:
    levels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    kept = Normalise(Canvas(1, 1, channels=3))(levels)
    assert kept.dtype == torch.uint8
    numbers = Normalise(Canvas(1, 1, channels=3, mean=(0.5, 0.2, 0), std=(0.5, 1, 2)))(levels)
    torch.testing.assert_close(numbers.flatten(), torch.tensor([-1, 0, 0.5]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"height": 0}, "height must be greater than or equal to 1, got 0"),
        ({"channels": 4}, "channels must be 1 or 3, got 4"),
        ({"classes": "face"}, 'classes must be a valid tuple, got "face"'),
        ({"classes": ["a", "a"]}, r"classes must have different names, got \[\"a\", \"a\"\]"),
        ({"points": {"p": (5,)}}, r"points\.p must end with 2, for x and y, got \[5\]"),
        ({"values": {"v": (0,)}}, r"values\.v\[0\] must be greater than or equal to 1, got 0"),
        ({"values": {"labels": ()}}, "values must have names other than labels"),
        ({"values": {"a b": ()}}, r"values\.a b.* must match pattern"),
        ({"values": {"p": ()}, "points": {"p": (2,)}}, "values must have other names than points, not p"),
        ({"iou_threshold": float("nan")}, "iou_threshold must be .*, got NaN"),
        ({"orientation": "auto"}, 'orientation must be .exif. or .stored., got "auto"'),
    ],
)
def test_names_the_wrong_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DetectorSpec(**{"height": 8, "width": 8, **fields})
    with pytest.raises(ValueError, match=r"width must be .*, got 0"):
        DetectorSpec(8, 0)
