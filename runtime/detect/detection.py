"""The detections of an image, as tensors and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Detections:
    """The detections of one image, best first, on the CPU.

    boxes: float32 [n, 4], xyxy in pixels of the original image. scores: float32 [n], 0..1. labels: int64 [n],
    indices into the artifact's `classes`; None for a detector without classes. extras: further outputs by
    name, [n, ...]; points in pixels of the original image. width, height: size of the upright photograph in
    pixels; 0 if unknown.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    width: int = 0
    height: int = 0


class DetectionArrays(NamedTuple):
    """The detections of one image as arrays of numpy, with the fields of `Detections`.

    The arrays share the memory of their batch. A service uses them because a call of torch takes longer, and
    releases the GIL, for which other threads compete.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None
    extras: Mapping[str, NDArray[Any]] = {}
    width: int = 0
    height: int = 0

    def copied(self) -> Detections:
        """Return copies as tensors: views would keep the whole batch in memory."""
        return Detections(
            torch.from_numpy(self.boxes.copy()),
            torch.from_numpy(self.scores.copy()),
            None if self.labels is None else torch.from_numpy(self.labels.copy()),
            {name: torch.from_numpy(values.copy()) for name, values in self.extras.items()},
            self.width,
            self.height,
        )


def detections_to_json(found: Detections | DetectionArrays, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return one object per detection, in their order, for `json.dumps`.

    `box` is [x1, y1, x2, y2] in pixels of the photograph and `score` a number. `label` is the name of the
    class if there are `classes` (the artifact's). `extras` has the further outputs by name, nested by shape.
    Numbers that are not finite become null.
    """
    columns: dict[str, list[Any]] = {
        "box": numbers_to_json(found.boxes),
        "score": numbers_to_json(found.scores),
    }
    if found.labels is not None:
        columns["label"] = [classes[label] for label in found.labels.tolist()]
    if found.extras:
        extras = {name: numbers_to_json(values) for name, values in found.extras.items()}
        rows = zip(*extras.values(), strict=True)
        columns["extras"] = [dict(zip(extras, row, strict=True)) for row in rows]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def numbers_to_json(values: Tensor | NDArray[Any]) -> list[Any]:
    """Return lists nested by shape; numbers that are not finite become null."""
    array = values.numpy() if isinstance(values, Tensor) else values
    is_finite = np.isfinite(array)
    if 0 in is_finite.tobytes():  # numpy's own `all` takes longer for a few numbers
        array = array.astype(object)
        array[~is_finite] = None
    numbers: list[Any] = array.tolist()
    return numbers
