"""Options of a call of a detector (device, thresholds, tiles), and detections as JSON."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, TypeAdapter


def check_device(device: str) -> None:
    """Raise ValueError unless a device is "auto", "cpu", "cuda" or "cuda:N"."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", device):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}")


def check_thresholds(**thresholds: float | None) -> None:
    """Raise ValueError unless each threshold is between 0 and 1, or None."""
    for name, value in thresholds.items():
        if value is not None and not 0 <= value <= 1:  # true for NaN, too
            raise ValueError(f"{name} must be between 0 and 1, got {value:g}")


@dataclass(frozen=True)
class TileSpec:
    """A specification of tiles.

    size: longer side of a tile in pixels of the photograph; None for the longer side of the canvas, so that
    no pixel is scaled. overlap: of neighbouring tiles, as a fraction of a tile's side; each object up to this
    size lies whole in some tile. whole: detect in the whole photograph, too. Raise ValueError for a size
    below 1 and for an overlap outside of 0 <= overlap < 1.
    """

    size: int | None = None
    overlap: float = 0.25
    whole: bool = True

    def __post_init__(self) -> None:
        if self.size is not None and (type(self.size) is not int or self.size < 1):
            raise ValueError(f"tiles must have a size of at least 1 pixel, got {self.size!r}")
        if not 0 <= self.overlap < 1:
            raise ValueError(
                f"tiles must have an overlap of at least 0 and less than 1, got {self.overlap!r}"
            )


Tiles = TileSpec | Literal["auto"]


def tile_spec(tiles: Tiles | str) -> TileSpec:
    """Return tiles as a TileSpec. Accept "auto", "SIZE" and "SIZE,OVERLAP". Raise ValueError."""
    if isinstance(tiles, TileSpec):
        return tiles
    if tiles == "auto":
        return TileSpec()
    if not (match := re.fullmatch(r"(\d{1,400})(?:,(\d+(?:\.\d+)?))?", tiles, re.ASCII)):
        raise ValueError(f"tiles must be auto, SIZE or SIZE,OVERLAP, got {tiles!r}")
    size, overlap = match.groups()
    return TileSpec(int(size)) if overlap is None else TileSpec(int(size), float(overlap))


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
