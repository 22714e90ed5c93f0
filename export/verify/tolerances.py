"""The table of allowances between the detections of a file and of its detector."""

import math
from typing import NamedTuple

from lensbox.runtime.detect.detection_sets import Found, Limits
from lensbox.runtime.file.self_test import IOU_TOLERANCES
from lensbox.runtime.file.self_test import TOLERANCES as SELF_TEST


class Allowance(NamedTuple):
    """Differences explained by rounding, against the detector in PyTorch on the CPU in float32.

    boxes: canvas pixels. relative: additional part of a coordinate, as sides are exponentials up to 4,700 px.
    scores, iou: absolute. values: part of the largest value of an output; infinite: not compared. loss: part
    of the loss. exchanged: share of detections that may appear or vanish, because scores or overlaps are
    within the tolerance of a threshold or of each other.
    """

    boxes: float
    relative: float
    scores: float
    iou: float
    values: float
    loss: float
    exchanged: float

    def limits(self, found: Found) -> Limits:
        """Return the limits for one picture. found: the detector's detections in the picture."""
        extras = {
            name: self.values * float(value.double().nan_to_num(0, 0, 0).abs().max())
            if value.numel()
            else 0.0
            for name, value in found.extras.items()
        }
        return Limits(self.boxes, self.scores, self.iou, extras, self.relative)


# For float32, by device.
TOLERANCES = {
    "cpu": Allowance(0.01, 1e-4, SELF_TEST.cpu.scores, IOU_TOLERANCES["cpu"], 1e-3, 1e-5, 0.01),
    "cuda": Allowance(0.05, 1e-4, SELF_TEST.cuda.scores, IOU_TOLERANCES["cuda"], 2e-2, 1e-5, 0.01),
}


def tolerance_of(dtype: str, device: str, boxes: float) -> Allowance:
    """Return the tolerance for a file. boxes: the value of `--tolerance`, for reduced precision."""
    if dtype == "float32":
        return TOLERANCES[device]
    return Allowance(boxes, 0, SELF_TEST.cuda.scores, 0.1, math.inf, 1e-5, 0.05)
