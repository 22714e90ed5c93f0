"""Reduced precision: its arithmetic on a GPU or imitated, and the measured changes of detections."""

import dataclasses
import statistics
from typing import Any

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.export.verify.comparer import Comparer
from lensbox.export.verify.reference import CallMode, Reference, one_thread
from lensbox.runtime.detect.detection import detections_in
from lensbox.runtime.file.metadata import Precision
from lensbox.runtime.formats.detect_only import Run

TF32_MANTISSA_BITS = 10  # float32 has 23, float16 10
BFLOAT16_MANTISSA_BITS = 7

# The positions of the factors. In inference mode, torch dispatches conv2d and similar functions; otherwise
# torch converts them to convolution first.
_OPERANDS = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "linear", "matmul", "mm", "bmm"), (0, 1)),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm"), (1, 2)),
}


def operand_rounding(mantissa_bits: int = TF32_MANTISSA_BITS) -> CallMode:
    """Round the float32 factors of products and sum in float32, as tensor cores do with TF32.

    mantissa_bits: number of bits to keep. One bit less doubles the rounding errors.
    """

    def rounded(function: Any, args: Any, kwargs: Any) -> Any:
        arguments = list(args)
        if function.namespace == "aten":
            for position in _OPERANDS.get(function.overloadpacket.__name__, ()):
                if arguments[position].dtype == torch.float32:
                    arguments[position] = round_mantissa(arguments[position], mantissa_bits)
        return function(*arguments, **kwargs)

    return CallMode(rounded)


def round_mantissa(x: Tensor, bits: int = TF32_MANTISSA_BITS) -> Tensor:
    """Round each finite float32 to `bits` bits of mantissa; ties round away from 0."""
    dropped = 23 - bits
    mask = (1 << dropped) - 1
    return ((x.view(torch.int32) + (1 << (dropped - 1))) & ~mask).view(torch.float32)


def measure_precision(detect: Run, reference: Reference, dtype: str, device: str, boxes: float) -> Precision:
    """Return the changes of detections in the reference's pictures by a reduced precision.

    detect: takes canvases on the CPU. boxes: largest allowed change of a box, in canvas pixels. Raise
    ArtifactError beyond the tolerance.
    """
    count, thresholds = reference.pictures, reference.thresholds
    comparer = Comparer(reference, dtype, device, boxes)
    with one_thread():
        found = [detections_in(detect(canvas[None], *thresholds)) for canvas in reference.canvases[:count]]
        change = comparer.difference(reference.found(thresholds)[:count], found, thresholds)
    precision = Precision(
        dtype=dtype,  # type: ignore[arg-type]  # (not float32)
        device=device,
        pictures=count,
        detections=len(change.boxes),
        median_box_change=statistics.median(change.boxes or [0.0]),
        max_box_change=max(change.boxes, default=0.0),
        max_score_change=change.scores,
    )
    if faults := comparer.faults(change, thresholds):
        worst = dataclasses.replace(
            precision,
            max_box_change=max(precision.max_box_change, change.moved),
            max_score_change=max(precision.max_score_change, change.score_moved),
        )
        raise ArtifactError(
            f"the detector cannot be exported: {describe_change(worst)}; at most {boxes:g} px (--tolerance) "
            f"and {comparer.tolerance.scores:g} are allowed: {'; '.join(faults)}"
        )
    return precision


def describe_change(precision: Precision) -> str:
    """Return the measured changes as one sentence without a full stop."""
    return (
        f"{precision.dtype} moves boxes by up to {precision.max_box_change:.3g} px of the canvas (median "
        f"{precision.median_box_change:.2g}) and scores by up to {precision.max_score_change:.2g}, over "
        f"{precision.detections} detections in {precision.pictures} pictures on {precision.device}"
    )
