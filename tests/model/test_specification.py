"""Fields of a `DetectorSpec` and their bounds."""

from typing import Any

import pytest

from lensbox.model import DetectorSpec


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
