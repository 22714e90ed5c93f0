"""Sentences about wrong fields."""

import re
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic.dataclasses import dataclass

from lensbox.common.canvas import Canvas
from lensbox.common.fields import STRICT, Channels, Classes, Shape, first_reason, plain_errors
from lensbox.model import DetectorSpec


@plain_errors
@dataclass(config={**STRICT, "extra": "forbid"})
class Fields:
    channels: Channels
    classes: Classes = ()
    shape: Shape = ()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "it lacks the entry 'channels'"),
        ({"channels": 2}, "channels must be 1 or 3, got 2"),
        ({"channels": 1, "colour": 1}, "'colour' is not a field"),
        ({"channels": 1, "classes": ["a", "a"]}, 'classes must have different names, got ["a", "a"]'),
        ({"channels": 1, "shape": [256, 257]}, "shape must have a product of at most 65536, got [256, 257]"),
        ({"channels": 1, "shape": ["x" * 99]}, f'shape[0] must be a valid integer, got "{"x" * 59}...'),
    ],
)
def test_a_sentence_names_field_rule_and_value(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Fields(**fields)


def test_a_specification_has_a_canvas() -> None:
    canvas = Canvas.of(DetectorSpec(48, 64, order="bgr", fit="crop"))
    assert canvas == Canvas(48, 64, channels=3, order="bgr", fit="crop")
    assert canvas.canvas_shape == (3, 48, 64)
    assert canvas.as_tuple == (48, 64, 3, 0, "crop", "bilinear", "bgr")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mean": (0.5,)}, "mean must be numbers, one for each channel, or none, got [0.5]"),
        ({"mean": (0, 0, 0)}, "std must be numbers, as many as mean, got []"),
        ({"mean": (0, 0, 0), "std": (1, 1, 0)}, "std[2] must be greater than or equal to 0.000001, got 0"),
        ({"fit": "pad"}, "fit must be 'letterbox', 'stretch' or 'crop', got \"pad\""),
    ],
)
def test_names_the_wrong_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Canvas(8, 8, channels=3, **fields)
    assert first_reason(caught.value) == message
