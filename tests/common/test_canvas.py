"""The canvas: of a specification, and its rules."""

from typing import Any

import pytest
from pydantic import ValidationError

from lensbox.common.canvas import Canvas
from lensbox.common.fields import first_reason
from lensbox.model import DetectorSpec


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
        (
            {"fit": "pad"},
            "fit must be 'letterbox', 'stretch', 'crop', 'ultralytics' or 'ultralytics_shrink', got \"pad\"",
        ),
    ],
)
def test_names_the_wrong_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Canvas(8, 8, channels=3, **fields)
    assert first_reason(caught.value) == message
