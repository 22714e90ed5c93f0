"""Labelled boxes and detections of an image, checked before they are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
    int64 [n]; without classes all boxes are of class 0.

    Raises:
        InputError: boxes are no finite numbers [n, 4], or flags or classes do not fit them.
    """

    boxes: Array
    ignore: Flags
    classes: Indices = field(default_factory=_no_classes)

    def __post_init__(self) -> None:
        self.boxes = _numbers("boxes of labels", self.boxes, 4)
        _require_fitting("ignore of labels", self.ignore, "b", len(self.boxes))
        self.classes = _checked_classes("classes of labels", self.classes, len(self.boxes))


@dataclass
class ImageDetections:
    """Found boxes of one image: boxes float64 [n, 4] (xyxy, canvas pixels), scores float64 [n], classes
    int64 [n]; without classes all boxes are of class 0.

    Raises:
        InputError: boxes or scores are no finite numbers [n, 4] and [n], or classes do not fit them.
    """

    boxes: Array
    scores: Array
    classes: Indices = field(default_factory=_no_classes)

    def __post_init__(self) -> None:
        self.boxes = _numbers("boxes of detections", self.boxes, 4)
        self.scores = _numbers("scores of detections", self.scores)
        _require_fitting("scores of detections", self.scores, "f", len(self.boxes))
        self.classes = _checked_classes("classes of detections", self.classes, len(self.boxes))


def _numbers(name: str, values: object, *columns: int) -> Array:
    rule = f"{name} must be finite numbers [{', '.join(map(str, ('n', *columns)))}]"
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise InputError(f"{rule}, got {values!r}")
    if values.ndim == 0 or values.shape[1:] != columns:
        raise InputError(f"{rule}, got shape {list(values.shape)}")
    if not np.isfinite(values).all():
        raise InputError(f"{rule}, got {values[~np.isfinite(values)][0]}")
    return values.astype(np.float64)


def _checked_classes(name: str, classes: object, count: int) -> Indices:
    if isinstance(classes, np.ndarray) and not len(classes):
        return np.zeros(count, np.int64)
    return _require_fitting(name, classes, "iu", count).astype(np.int64)


def _require_fitting(name: str, values: object, kinds: str, count: int) -> npt.NDArray[Any]:
    """Raise InputError unless values are an array [count] of these kinds of NumPy's."""
    if isinstance(values, np.ndarray) and values.dtype.kind in kinds and values.shape == (count,):
        return values
    words = {"b": "true or false", "f": "numbers", "iu": "integers"}[kinds]
    raise InputError(f"{name} must be {words}, as many as {count} boxes, got {values!r}")


def require_as_many(labels: Sequence[ImageLabels], detections: Sequence[ImageDetections]) -> None:
    """Raise ValueError unless labels and detections are of as many images."""
    if len(labels) != len(detections):
        raise ValueError(
            f"labels and detections must be of as many images, got {len(labels)} and {len(detections)}"
        )
