"""Fields of a `DetectorSpec` and their bounds."""

from typing import Any

import pytest

from lensbox.model import DetectorSpec


def test_extras_are_points_and_values() -> None:
    specification = DetectorSpec(8, 8, points={"keypoints": [5, 2]}, values={"age": (), "embedding": (128,)})
    assert specification.extras == {"keypoints": (5, 2), "age": (), "embedding": (128,)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"height": 0}, "height must be an integer from 1 to 16384, got 0"),
        ({"width": 16385}, "width must be an integer from 1 to 16384, got 16385"),
        ({"width": 320.0}, r"width must be an integer from 1 to 16384, got 320\.0"),
        ({"channels": 4}, r"channels must be 1 \(gray\) or 3 \(RGB\), got 4"),
        ({"fill": 256}, "fill must be an integer from 0 to 255, got 256"),
        ({"name": ""}, "name must be a text of 1 to 200 characters, got ''"),
        ({"classes": "face"}, "classes must be a sequence of at most 10000 names, got 'face'"),
        ({"classes": ["a", 7]}, r"classes\[1\] must be a text of 1 to 200 characters, got 7"),
        ({"classes": ["a", "a"]}, r"classes must have different names, got \['a', 'a'\]"),
        ({"points": {"p": (5,)}}, r"points\['p'\] must end with 2, for x and y, got \(5,\)"),
        ({"points": {"p": ()}}, r"points\['p'\] must end with 2"),
        ({"values": {"v": (0,)}}, r"values\['v'\] must be a shape of positive integers, got \(0,\)"),
        ({"values": {"v": (2**17,)}}, r"values\['v'\] must hold at most 65536 numbers"),
        ({"values": {"v": (1,) * 9}}, r"values\['v'\] must have at most 8 dimensions"),
        ({"values": {"labels": ()}}, "the names of values must be identifiers other than boxes, .*'labels'"),
        ({"values": {"a b": ()}}, "the names of values must be identifiers .*, got 'a b'"),
        ({"values": {"p": ()}, "points": {"p": (2,)}}, r"in points or in values, got \['p'\] in both"),
        ({"score_threshold": 1.5}, r"score_threshold must be a number between 0 and 1, got 1\.5"),
        ({"iou_threshold": float("nan")}, "iou_threshold must be a number between 0 and 1, got nan"),
        ({"orientation": "auto"}, 'orientation must be "exif" or "stored", got \'auto\''),
        ({"jpeg_oversampling": -1}, "jpeg_oversampling must be an integer from 0 to 1000, got -1"),
    ],
)
def test_names_the_wrong_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DetectorSpec(**{"height": 8, "width": 8, **fields})
