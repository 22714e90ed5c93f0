"""What a service tells of its model and of its limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Of a request. max_images: those of one. max_body_bytes, max_json_bytes: its size, the latter of
    /v1/loss. max_pixels: width times height of an image. max_boxes: of predictions, and of targets."""

    max_images: int
    max_body_bytes: int
    max_json_bytes: int
    max_pixels: int
    max_boxes: int


@dataclass(frozen=True)
class Model:
    """What runs in a service.

    classes: the names that labels have; empty where the detector has none. score_threshold, iou_threshold:
    the artifact's, which count unless a request says others. version: of the service. device: where it
    computes.
    """

    name: str
    classes: tuple[str, ...]
    score_threshold: float
    iou_threshold: float
    version: str
    device: str
    limits: Limits

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Model":
        """Of what GET /v1/model tells. Raises KeyError, TypeError, ValueError for anything else."""
        defaults, service = document["defaults"], document["service"]
        limits = {name: int(service["limits"][name]) for name in Limits.__dataclass_fields__}
        return cls(
            str(document["name"]),
            tuple(document.get("classes", ())),
            float(defaults["score_threshold"]),
            float(defaults["iou_threshold"]),
            str(service["version"]),
            str(service["device"]),
            Limits(**limits),
        )
