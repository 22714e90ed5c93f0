"""Configs of the face detector: errors."""

import dataclasses
from typing import Any

import pytest

from lensbox.model import DetectorConfig


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stem_width", 0, "stem_width must be greater than or equal to 1, got 0"),
        ("widths", (8, 8, 8), r"it lacks the entry 'widths\[3\]'"),
        ("widths", (8, 8, 8, -1), r"widths\[3\] must be greater than or equal to 1, got -1"),
        ("depthwise_kernels", (3, 3, 4, 5), r"depthwise_kernels\[2\] must be odd, got 4"),
    ],
)
def test_bad_fields_are_named_with_their_value(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(DetectorConfig(), **{field: value})
