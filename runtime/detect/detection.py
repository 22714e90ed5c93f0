"""The detections of one photograph: from the outputs for a canvas to JSON, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import TypeVar  # comes with pydantic and torch; Python has defaults from 3.13 on

from lensbox.common.detections import numbers_of_json

Array = TypeVar("Array", default=Tensor)


@dataclass(slots=True, eq=False)
class Detections(Generic[Array]):
    """The detections of one photograph, best first, on the CPU.

    boxes: float32 [n, 4], xyxy in pixels of the original image. scores: float32 [n], 0..1. labels: int64 [n],
    indices into the artifact's `classes`; None for a detector without classes. extras: further outputs by
    name, [n, ...]; points in pixels of the original image. width, height: size of the upright photograph in
    pixels; 0 if unknown.

    Values are tensors. A service has `Detections[NDArray[Any]]`, views of a batch: a call of torch takes
    longer, and releases the GIL, for which other threads compete.
    """

    boxes: Array
    scores: Array
    labels: Array | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)
    width: int = 0
    height: int = 0

    def to_json(self, classes: Sequence[str] = ()) -> dict[str, Any]:
        """Return the answer of /v1/detect, `lensbox detect` and `lensbox_runner`, for `json.dumps`.

        `width`, `height`, and `detections`: one object for each, in their order. `box` is [x1, y1, x2, y2] in
        pixels of the photograph and `score` a number. `label` is the name of the class if there are `classes`
        (the artifact's). `extras` has the further outputs by name, nested by shape. Numbers that are not
        finite become null.
        """
        columns: dict[str, list[Any]] = {"box": _to_json(self.boxes), "score": _to_json(self.scores)}
        if (labels := cast(Any, self.labels)) is not None:
            columns["label"] = [classes[label] for label in labels.tolist()]
        if self.extras:
            extras = {name: _to_json(values) for name, values in self.extras.items()}
            rows = zip(*extras.values(), strict=True)
            columns["extras"] = [dict(zip(extras, row, strict=True)) for row in rows]
        detections = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {"width": self.width, "height": self.height, "detections": detections}


def _to_json(values: Any) -> list[Any]:
    """Return lists nested by shape; numbers that are not finite become null."""
    array: NDArray[Any] = values.numpy() if isinstance(values, Tensor) else values
    is_finite = np.isfinite(array)
    if 0 in is_finite.tobytes():  # numpy's own `all` takes longer for a few numbers
        array = array.astype(object)
        array[~is_finite] = None
    numbers: list[Any] = array.tolist()
    return numbers


def detections_of_json(answer: Mapping[str, Any], classes: Sequence[str] = ()) -> Detections:
    """Return the detections of an answer in JSON: see `Detections.to_json`."""
    rows = answer["detections"]
    boxes, scores = (torch.tensor([numbers_of_json(one[key]) for one in rows]) for key in ("box", "score"))
    labels = torch.tensor([classes.index(one["label"]) for one in rows]).long() if classes else None
    extras = {
        name: torch.tensor([numbers_of_json(one["extras"][name]) for one in rows])
        for name in (rows[0].get("extras", ()) if rows else ())
    }
    size = answer.get("width", 0), answer.get("height", 0)
    return Detections(boxes.float().reshape(-1, 4), scores.float(), labels, extras, *size)


def detections_in(outputs: Mapping[str, Tensor], index: int = 0) -> Detections:
    """Return the detections of one canvas of a batch, in pixels of the canvas, on the CPU."""
    count = int(outputs["counts"][index])
    found = {name: value[index, :count].cpu() for name, value in outputs.items() if name != "counts"}
    return Detections(found.pop("boxes"), found.pop("scores"), found.pop("labels", None), found)


def as_tensors(found: Detections[NDArray[Any]]) -> Detections:
    """Return copies as tensors: views would keep the whole batch in memory."""
    return Detections(
        torch.from_numpy(found.boxes.copy()),
        torch.from_numpy(found.scores.copy()),
        None if found.labels is None else torch.from_numpy(found.labels.copy()),
        {name: torch.from_numpy(values.copy()) for name, values in found.extras.items()},
        found.width,
        found.height,
    )
