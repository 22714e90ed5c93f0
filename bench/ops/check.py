"""Compare the answers of peers with the float64 reference, before they are timed."""

from typing import Any

import torch
from torch import Tensor

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.inputs import LossBatch, NmsBatch
from lensbox.bench.ops.peers import Function, loss_and_gradient
from lensbox.bench.ops.reference import loss_reference, nms_reference

VALUE_TOLERANCE = 1e-4  # float32 sums of up to millions of terms
# A gradient is rounded to the dtype of the predictions: 8 bits for bfloat16.
GRADIENT_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def check_loss(function: Function, batch: LossBatch, with_gradient: bool, weighted: bool = False) -> None:
    """Compare the value and, if asked for, the gradient. Raise WrongAnswerError."""
    weight = batch.weight if weighted else None
    expected_loss, expected_gradient = loss_reference(batch.pred, batch.target, weight)
    if not with_gradient:
        require_close("loss", function(batch, batch.pred.clone()), expected_loss)
        return
    pred = batch.pred.clone().requires_grad_()
    loss, gradient = loss_and_gradient(function, batch, pred)
    require_close("loss", loss, expected_loss)
    if gradient.dtype != pred.dtype:
        raise WrongAnswerError(f"the gradient is {gradient.dtype}, the predictions are {pred.dtype}")
    require_close("gradient", gradient, expected_gradient, GRADIENT_TOLERANCE[pred.dtype])


def check_nms(function: Function, batch: NmsBatch) -> None:
    """Compare the boxes that are kept. Raise WrongAnswerError."""
    kept = _kept(batch, function(batch))
    expected = nms_reference(batch.boxes, batch.scores, batch.iou_threshold)
    differing = int((kept != expected).sum())
    if differing > 0:
        raise WrongAnswerError(f"{differing} of {kept.numel()} boxes are kept or dropped wrongly")


def require_close(name: str, value: Tensor, expected: Tensor, tolerance: float = VALUE_TOLERANCE) -> None:
    """Compare ‖value - expected‖ with ‖expected‖. NaN never passes."""
    if value.shape != expected.shape:
        raise WrongAnswerError(f"the {name} has shape {list(value.shape)}, not {list(expected.shape)}")
    scale = max(float(expected.norm()), torch.finfo(torch.float32).tiny)
    error = float((value.detach().double() - expected).norm()) / scale
    if not error <= tolerance:
        raise WrongAnswerError(f"the {name} is off by {error:.2g} of its size, {tolerance:.2g} is allowed")


def _kept(batch: NmsBatch, result: Any) -> Tensor:
    """Return the boxes that NMS kept, bool `[B, N]`. result: indices into all boxes, or PaddedDetections."""
    kept = torch.zeros_like(batch.scores, dtype=torch.int32)
    if isinstance(result, Tensor):
        kept.view(-1)[result] = 1
    else:  # unused slots hold index -1: they add nothing to box 0
        kept.scatter_add_(1, result.indices.clamp(min=0), (result.indices >= 0).int())
    return kept > 0
