"""Compare the answers of peers with the float64 reference, before they are timed."""

import torch
from torch import Tensor

from lensbox.bench.ops.inputs import LossBatch, NmsBatch, PairwiseBatch
from lensbox.bench.ops.peers import Function, Peer, loss_and_gradient
from lensbox.bench.ops.reference import giou_reference, loss_reference, nms_reference
from lensbox.bench.runner import WrongAnswerError

VALUE_TOLERANCE = 1e-4  # float32 sums of up to millions of terms
# A gradient is rounded to the dtype of the predictions: 8 bits for bfloat16.
GRADIENT_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def check_loss(function: Function, batch: LossBatch, with_gradient: bool, weighted: bool = False) -> None:
    """Compare the value and, if asked for, the gradient. Raise WrongAnswerError."""
    weight = batch.weight if weighted else None
    expected_loss, expected_gradient = loss_reference(batch.pred, batch.target, weight)
    if not with_gradient:
        loss = function(batch, batch.pred.clone())
        assert isinstance(loss, Tensor)
        _require_close("loss", loss, expected_loss, VALUE_TOLERANCE)
    else:
        pred = batch.pred.clone().requires_grad_()
        loss, gradient = loss_and_gradient(function, batch, pred)
        _require_close("loss", loss, expected_loss, VALUE_TOLERANCE)
        if gradient.dtype != pred.dtype:
            raise WrongAnswerError(f"the gradient is {gradient.dtype}, the predictions are {pred.dtype}")
        _require_close("gradient", gradient, expected_gradient, GRADIENT_TOLERANCE[pred.dtype])


def check_pairwise(function: Function, batch: PairwiseBatch) -> None:
    """Compare the GIoU of all pairs. Raise WrongAnswerError."""
    expected = giou_reference(batch.boxes1[:, None], batch.boxes2[None])
    _require_close("pairwise GIoU", function(batch), expected, VALUE_TOLERANCE)


def check_nms(peer: Peer, function: Function, batch: NmsBatch) -> None:
    """Compare the boxes that are kept. Raise WrongAnswerError."""
    assert peer.kept is not None
    kept = peer.kept(batch, function(batch))
    expected = nms_reference(batch.boxes, batch.scores, batch.iou_threshold)
    differing = int((kept != expected).sum())
    if differing > 0:
        raise WrongAnswerError(f"{differing} of {kept.numel()} boxes are kept or dropped wrongly")


def _require_close(name: str, value: Tensor, expected: Tensor, tolerance: float) -> None:
    """Compare ‖value - expected‖ with ‖expected‖. NaN never passes."""
    if value.shape != expected.shape:
        raise WrongAnswerError(f"the {name} has shape {list(value.shape)}, not {list(expected.shape)}")
    scale = max(float(expected.norm()), torch.finfo(torch.float32).tiny)
    error = float((value.detach().double() - expected).norm()) / scale
    if not error <= tolerance:
        raise WrongAnswerError(f"the {name} is off by {error:.2g} of its size, {tolerance:.2g} is allowed")
