"""The answers of a service as Python types, and its errors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lensbox.common.errors import ExitCode, LensboxError

SHOWN = 200  # characters of an unexpected answer in a message
# Statuses that concern one image and say nothing about the next.
_OF_ONE_IMAGE = frozenset({400, 408, 413, 415, 500, 504})

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
        x1, y1, x2, y2 = (_number(value) for value in document["box"])
        label = document.get("label")
        return cls(
            (x1, y1, x2, y2),
            _number(document["score"]),
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


@dataclass(frozen=True)
class LossAnswer:
    """The GIoU loss of boxes.

    loss: mean of 1 - GIoU over the predictions with a target. slots: number of these. gradient: d loss / d
    predictions, nested like the predictions; None unless requested. Numbers that are not finite are NaN.
    """

    loss: float
    slots: int
    gradient: list[Any] | None = None

    @classmethod
    def from_json(cls, answer: Any) -> "LossAnswer":
        """Parse an answer of /v1/loss. Raise KeyError, TypeError or ValueError if malformed."""
        gradient = answer.get("gradient")
        return cls(
            _number(answer["loss"]),
            int(answer["slots"]),
            None if gradient is None else _numbers(gradient),
        )


@dataclass(frozen=True)
class Model:
    """The model of a service.

    classes: names of the labels; empty if the detector has none. score_threshold, iou_threshold: defaults of
    the artifact. version: of the service. device: of the model.
    """

    name: str
    classes: tuple[str, ...]
    score_threshold: float
    iou_threshold: float
    version: str
    device: str

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Model":
        """Parse an answer of /v1/model. Raise KeyError, TypeError or ValueError if malformed."""
        defaults, service = document["defaults"], document["service"]
        return cls(
            str(document["name"]),
            tuple(document.get("classes", ())),
            float(defaults["score_threshold"]),
            float(defaults["iou_threshold"]),
            str(service["version"]),
            str(service["device"]),
        )


class ServiceError(LensboxError):
    """The service refused a request, or there was no answer.

    status: HTTP status, None without an answer. code: stable word of the problem document, such as
    "undecodable_image"; "no_answer" without an answer, "unexpected_answer" if it is not a Lensbox service.
    detail: message for people. request_id: ID of the request in the service's log.
    """

    exit_code = ExitCode.UNUSABLE

    def __init__(self, status: int | None, code: str, detail: str, request_id: str | None = None) -> None:
        known = " ".join(str(part) for part in (status, code) if part is not None)
        known += f", request {request_id}" if request_id else ""
        super().__init__(f"{detail} ({known})")
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id

    @property
    def is_of_one_image(self) -> bool:
        """Return whether the error concerns one image only, so that the next may succeed."""
        return self.status in _OF_ONE_IMAGE


def unexpected(answer: object) -> ServiceError:
    """Return the error for an answer that does not come from a Lensbox service."""
    text = (answer if isinstance(answer, str) else repr(answer))[:SHOWN]
    detail = f"the answer does not come from a Lensbox service: {text!r}"
    return ServiceError(200, "unexpected_answer", detail)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _numbers(values: list[Any]) -> list[Any]:
    return [_numbers(value) if isinstance(value, list) else _number(value) for value in values]


def _json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None
