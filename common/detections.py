"""The detections of an image as JSON has them: of a service, of its clients and of commands."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Detection:
    """One detected object.

    box: x1, y1, x2, y2 in pixels of the upright photograph at full size. score: 0..1. label: class name, None
    if the detector has no classes. extras: further outputs by name, as nested lists; points in pixels of the
    photograph; None for numbers that are not finite.
    """

    box: Box
    score: float
    label: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Detection":
        """Parse the object that all runtimes print. Raise KeyError, TypeError or ValueError if malformed."""
        x1, y1, x2, y2 = (number_of_json(value) for value in document["box"])
        label = document.get("label")
        return cls(
            (x1, y1, x2, y2),
            number_of_json(document["score"]),
            None if label is None else str(label),
            dict(document.get("extras", {})),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "box": [_json_number(value) for value in self.box],
            "score": _json_number(self.score),
            **({} if self.label is None else {"label": self.label}),
            **({"extras": dict(self.extras)} if self.extras else {}),
        }


@dataclass(frozen=True)
class ImageDetections:
    """The detections in one image, best first. width, height: of the upright photograph at full size."""

    width: int
    height: int
    detections: tuple[Detection, ...]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ImageDetections":
        """Parse an answer of /v1/detect. Raise KeyError, TypeError or ValueError if malformed."""
        detections = tuple(Detection.from_json(detection) for detection in document["detections"])
        return cls(int(document["width"]), int(document["height"]), detections)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        detections = [detection.to_json() for detection in self.detections]
        return {"width": self.width, "height": self.height, "detections": detections}


def number_of_json(value: Any) -> float:
    """Return a number; NaN for null, which JSON has for numbers that are not finite."""
    return math.nan if value is None else float(value)


def _json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None
