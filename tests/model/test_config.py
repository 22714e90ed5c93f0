"""Sizes of the detector: names, JSON, and what is refused."""

import dataclasses
import json
from typing import Any

import pytest

from lensbox.model import DetectorConfig


@pytest.mark.parametrize("name", ["small", "base", "large"])
def test_json_gives_the_same_config_back(name: str) -> None:
    config = DetectorConfig.named(name)
    assert DetectorConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stem_width", 0, "stem_width must be a positive integer, got 0"),
        ("pyramid_width", 8.0, "pyramid_width must be a positive integer, got 8.0"),
        ("stem_width", True, "stem_width must be a positive integer, got True"),
        ("widths", (8, 8, 8), r"widths must hold 4 values, one per stride \(4, 8, 16, 32\), got \(8, 8, 8\)"),
        ("widths", (8, 8, 8, -1), r"widths must hold positive integers, got \(8, 8, 8, -1\)"),
        ("depths", (0, 1, 1, -1), "depths must hold integers of at least 0"),
        ("depthwise_kernels", (3, 3, 4, 5), "depthwise_kernels must hold odd positive integers"),
        ("dense", (True, False, 1, False), "dense must hold booleans"),
        ("dense_heads", "yes!", "dense_heads must hold 4 values"),
    ],
)
def test_bad_fields_are_named_with_their_value(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(DetectorConfig(), **{field: value})


def test_json_with_other_fields_is_refused() -> None:
    values = json.loads(DetectorConfig().to_json())
    for changed in ({**values, "extra": 1}, {k: v for k, v in values.items() if k != "widths"}, [1]):
        with pytest.raises(ValueError, match="must have the fields"):
            DetectorConfig.from_json(json.dumps(changed))
    with pytest.raises(ValueError, match="config is not JSON"):
        DetectorConfig.from_json("{")
