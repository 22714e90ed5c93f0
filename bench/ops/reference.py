"""References in float64, by the definitions, and the check of peers against them before they are timed."""

from typing import Any

import torch
from torch import Tensor

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.inputs import LossBatch, NmsBatch
from lensbox.bench.ops.peers import Function, loss_and_gradient

VALUE_TOLERANCE = 1e-4  # float32 sums of up to millions of terms
# A gradient is rounded to the dtype of the predictions: 8 bits for bfloat16.
GRADIENT_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def giou_reference(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the GIoU (Rezatofighi et al., CVPR 2019) of xyxy boxes `[..., 4]`, broadcasting, in float64."""
    a, b = boxes1.double(), boxes2.double()
    size_a, size_b = _at_least(a[..., 2:] - a[..., :2], 0), _at_least(b[..., 2:] - b[..., :2], 0)
    overlap = _at_least(torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2]), 0)
    hull = _at_least(torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2]), 0)
    intersection = overlap.prod(-1)
    union = size_a.prod(-1) + size_b.prod(-1) - intersection
    enclosing = hull.prod(-1)
    return intersection / _at_least(union, eps) - (enclosing - union) / _at_least(enclosing, eps)


def _at_least(values: Tensor, least: float) -> Tensor:
    """Clamp `values` from below, with the gradient 1 at the bound, as the kernels have it.

    The gradient of `Tensor.clamp` at its bound is 1 up to torch 2.13 and 0 from torch 2.14 on. Boxes
    that touch are at the bound.
    """
    return torch.where(values < least, least, values)


def loss_reference(pred: Tensor, target: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean of 1 - GIoU over the slots, and its gradient in `pred`, in float64. Without weights, slots count
    whose target's y2 is not 0."""
    pred = pred.detach().double().requires_grad_()
    weight = ((target[..., 3] != 0) if weight is None else weight).double()
    valid = weight != 0
    losses = weight[valid] * (1 - giou_reference(pred[valid], target[valid]))
    loss = losses.sum() / weight.sum().clamp(min=1)
    (gradient,) = torch.autograd.grad(loss, pred)
    return loss.detach(), gradient


def nms_reference(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return what greedy suppression keeps: `[B, N, 4]`, `[B, N]` -> bool `[B, N]`. Scores differ."""
    batch, count = scores.shape
    order = scores.argsort(dim=1, descending=True, stable=True)
    suppressed = torch.zeros(batch, count, dtype=torch.bool, device=boxes.device)  # in the order of scores
    exceeds = torch.stack([_exceeds(b[o].double(), iou_threshold) for b, o in zip(boxes, order, strict=True)])
    for rank in range(count):
        suppressed |= exceeds[:, rank] & ~suppressed[:, rank, None]
    return torch.zeros_like(suppressed).scatter_(1, order, ~suppressed)


def _exceeds(boxes: Tensor, iou_threshold: float) -> Tensor:
    """Return which boxes `[N, 4]`, best first, suppress which later ones: bool `[N, N]`."""
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    intersection = (high - low).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(-1)
    union = area[:, None] + area[None] - intersection
    return (intersection > iou_threshold * union).triu(diagonal=1)


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
