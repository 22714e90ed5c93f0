"""What a service answers, as Python's types."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Detection:
    """One thing in an image.

    box: x1, y1, x2, y2 in pixels of the upright photograph at full size. score: 0..1. label: the name of the
    class, None where the detector has no classes. extras: its further outputs by name, nested as their shapes
    say, points in pixels of the photograph; None in them stands for what is not a finite number.
    """

    box: Box
    score: float
    label: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Detection":
        """Of the object that all runtimes print. Raises KeyError, TypeError, ValueError for another one."""
        x1, y1, x2, y2 = (_number(value) for value in document["box"])
        label = document.get("label")
        return cls(
            (x1, y1, x2, y2),
            _number(document["score"]),
            None if label is None else str(label),
            dict(document.get("extras", {})),
        )

    def to_json(self) -> dict[str, Any]:
        """The object that it was made of."""
        return {
            "box": [_json_number(value) for value in self.box],
            "score": _json_number(self.score),
            **({} if self.label is None else {"label": self.label}),
            **({"extras": dict(self.extras)} if self.extras else {}),
        }


@dataclass(frozen=True)
class ImageDetections:
    """What was found in one image, best first; width, height: of the upright photograph at full size."""

    width: int
    height: int
    detections: tuple[Detection, ...]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ImageDetections":
        """Of an answer of /v1/detect. Raises KeyError, TypeError, ValueError for anything else."""
        found = tuple(Detection.from_json(detection) for detection in document["detections"])
        return cls(int(document["width"]), int(document["height"]), found)

    def to_json(self) -> dict[str, Any]:
        """The answer that it was made of."""
        detections = [detection.to_json() for detection in self.detections]
        return {"width": self.width, "height": self.height, "detections": detections}


@dataclass(frozen=True)
class LossAnswer:
    """The loss of boxes.

    loss: the mean of 1 - GIoU over the slots whose target is not empty, weighted where there are weights.
    slots: how many they are. per_image: of each image alone, and gradient: d loss / d predictions, nested as
    they are; both None unless asked for. A number that is not finite is NaN.
    """

    loss: float
    slots: int
    per_image: list[float] | None = None
    gradient: list[Any] | None = None

    @classmethod
    def from_json(cls, answer: Any) -> "LossAnswer":
        """Raises KeyError, TypeError or ValueError for what no service answers."""
        per_image, gradient = answer.get("per_image"), answer.get("gradient")
        return cls(
            _number(answer["loss"]),
            int(answer["slots"]),
            None if per_image is None else [_number(value) for value in per_image],
            None if gradient is None else _numbers(gradient),
        )


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _numbers(values: list[Any]) -> list[Any]:
    return [_numbers(value) if isinstance(value, list) else _number(value) for value in values]


def _json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None
