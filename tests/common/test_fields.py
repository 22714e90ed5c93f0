"""Sentences about wrong fields."""

import re
from typing import Any

import pytest
from pydantic.dataclasses import dataclass

from lensbox.common.fields import STRICT, Channels, Classes, Shape, plain_errors


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
