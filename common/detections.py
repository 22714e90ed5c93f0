"""The detections of an image as JSON has them: of a service, of its clients and of commands."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter


def numbers_of_json(value: Any) -> Any:
    """Return a number or nested lists of numbers; NaN for null, which stands for numbers not finite."""
    if isinstance(value, list):
        return list(map(numbers_of_json, value))
    return math.nan if value is None else value


Number = Annotated[float, BeforeValidator(numbers_of_json)]


@dataclass(frozen=True)
class Detection:
    """One detected object.

    box: x1, y1, x2, y2 in pixels of the upright photograph at full size. score: 0..1. label: class name, None
    if the detector has no classes. extras: further outputs by name, as nested lists; points in pixels of the
    photograph; None for numbers that are not finite.
    """

    box: tuple[Number, Number, Number, Number]
    score: Number
    label: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageDetections:
    """The detections in one image, best first. width, height: of the upright photograph at full size."""

    width: int
    height: int
    detections: tuple[Detection, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the answer of /v1/detect, as `json.loads` reads it."""
        document: dict[str, Any] = json.loads(READ_DETECTIONS.dump_json(self, exclude_defaults=True))
        return document


READ_DETECTIONS = TypeAdapter(ImageDetections)
"""Reads an answer of /v1/detect. Raise ValueError if it is malformed."""
