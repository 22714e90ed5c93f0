"""Labelled boxes and detections of an image, as they are scored."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import InputError

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


def _no_classes() -> Indices:
    return np.zeros(0, np.int64)


@dataclass
class ImageLabels:
    """Labelled boxes of one image: boxes float64 [n, 4] (xyxy, canvas pixels), ignore bool [n], classes
    int64 [n]; without classes all boxes are of class 0."""

    boxes: Array
    ignore: Flags
    classes: Indices = field(default_factory=_no_classes)

    def __post_init__(self) -> None:
        self.boxes = _finite("boxes of labels", self.boxes)
        self.classes = self.classes if len(self.classes) else np.zeros(len(self.boxes), np.int64)


@dataclass
class ImageDetections:
    """Found boxes of one image: boxes float64 [n, 4] (xyxy, canvas pixels), scores float64 [n], classes
    int64 [n]; without classes all boxes are of class 0.

    Raises:
        InputError: boxes or scores are not finite.
    """

    boxes: Array
    scores: Array
    classes: Indices = field(default_factory=_no_classes)

    def __post_init__(self) -> None:
        self.boxes = _finite("boxes of detections", self.boxes)
        self.scores = _finite("scores of detections", self.scores)
        self.classes = self.classes if len(self.classes) else np.zeros(len(self.boxes), np.int64)


def _finite(name: str, values: Array) -> Array:
    if not np.isfinite(values).all():
        raise InputError(f"{name} must be finite numbers, got {values[~np.isfinite(values)][0]}")
    return values.astype(np.float64)
