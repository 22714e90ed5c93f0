"""The one table of tolerances: how far a file's detections may differ from the detector's."""

from typing import NamedTuple

from lensbox.artifact.self_test import IOU_TOLERANCES
from lensbox.artifact.self_test import TOLERANCES as SELF_TEST
from lensbox.runtime.detection_sets import Found, Limits


class Tolerance(NamedTuple):
    """The differences that rounding explains, against the detector in PyTorch on the CPU in float32.

    boxes: pixels of the canvas; relative: part of a coordinate beside them, as sides are exponentials of up
    to 4,700 px; scores, iou: absolute; values: part of the largest value of an output, infinite where further
    outputs are not compared; loss: part of the loss. exchanged: share of the detections that may come or go,
    since their scores or overlaps are within the tolerance of a threshold or of each other.
    """

    boxes: float
    relative: float
    scores: float
    iou: float
    values: float
    loss: float
    exchanged: float

    def limits(self, found: Found) -> Limits:
        """Return the limits for one picture, in which the detector found these."""
        extras = {
            name: self.values * float(value.double().nan_to_num(0, 0, 0).abs().max())
            if value.numel()
            else 0.0
            for name, value in found.extras.items()
        }
        return Limits(self.boxes, self.scores, self.iou, extras, self.relative)


_INFINITE = float("inf")

# By device for float32, by dtype otherwise; `boxes` of the latter is what `--tolerance` says.
TOLERANCES = {
    "cpu": Tolerance(0.01, 1e-4, SELF_TEST["cpu"].scores, IOU_TOLERANCES["cpu"], 1e-3, 1e-5, 0.01),
    "cuda": Tolerance(0.05, 1e-4, SELF_TEST["cuda"].scores, IOU_TOLERANCES["cuda"], 2e-2, 1e-5, 0.01),
    "tf32": Tolerance(2.0, 0, SELF_TEST["cuda"].scores, 0.1, _INFINITE, 1e-5, 0.05),
    "float16": Tolerance(2.0, 0, SELF_TEST["cuda"].scores, 0.1, _INFINITE, 1e-5, 0.05),
    "bfloat16": Tolerance(2.0, 0, SELF_TEST["cuda"].scores, 0.1, _INFINITE, 1e-5, 0.05),
}


def tolerance_of(dtype: str, device: str, boxes: float) -> Tolerance:
    """Return the row for a file. boxes: the tolerance of `--tolerance`, for other precisions than float32."""
    return TOLERANCES[device] if dtype == "float32" else TOLERANCES[dtype]._replace(boxes=boxes)
