"""Python functions of the box ops. Each function calls one op and adds names, types and documentation.

Boxes are xyxy in pixels. They may be float64, float32, float16, bfloat16, uint8, int16, int32 or int64, in
any mix and with any strides. Arithmetic is float32, or float64 if a tensor of boxes or weights is. GIoU
follows Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019. An inverted side (x2 < x1)
counts as empty; every finite input gives finite values and finite gradients. Second derivatives are not
offered.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class PaddedDetections(NamedTuple):
    """The result of `padded_nms`: K slots an image, best first; unused slots hold zeros and index -1."""

    boxes: Tensor
    scores: Tensor
    indices: Tensor
    counts: Tensor


def giou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the generalized IoU of corresponding boxes.

    Args:
        boxes1, boxes2: `[..., 4]`, broadcast against each other.
        eps: smallest denominator, in square pixels.

    Returns:
        `[...]`, between -1 and 1, in the floating-point dtype that both promote to (float32 for integers).

    Raise RuntimeError for shapes that do not match and for tensors on two devices, TypeError for a dtype that
    is not listed above, ValueError for eps out of range.
    """
    out: Tensor = torch.ops.lensbox.giou(boxes1, boxes2, eps)
    return out


def pairwise_giou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the generalized IoU of every box of `boxes1` with every box of `boxes2`.

    Args:
        boxes1: `[..., N, 4]`.
        boxes2: `[..., M, 4]`; leading dimensions broadcast.
        eps: smallest denominator, in square pixels.

    Returns:
        `[..., N, M]`, dtype as for `giou`. Errors as for `giou`.
    """
    out: Tensor = torch.ops.lensbox.pairwise_giou(boxes1, boxes2, eps)
    return out


def masked_giou_loss(
    pred: Tensor, target: Tensor, weight: Tensor | None = None, eps: float = 1e-7, check: bool = False
) -> Tensor:
    """Return the mean of 1 - GIoU over the valid slots: `sum(w * (1 - giou)) / max(sum(w), 1)`.

    Without `weight`, a slot whose target has y2 == 0 is padding (w = 0) and each other slot has w = 1.
    Predictions in slots of weight 0 may hold anything, even NaN (only the gradient of the weight reads them).
    Without a valid slot the loss and all gradients are 0. The op does not wait for the GPU.

    Targets padded with -1 count as boxes, and targets in cx, cy, w, h are read as x1, y1, x2, y2: the loss
    looks plausible and is wrong. `check=True` refuses such targets. Pad with zeros, or pass `weight`.

    To minimise the loss is to maximise the mean GIoU, which is `1 - loss` wherever there is a valid slot.

    Args:
        pred: `[..., 4]`, floating-point.
        target: `[..., 4]`, the shape of `pred`.
        weight: `[...]`, non-negative; floating-point, integer or bool.
        eps: smallest denominator, in square pixels.
        check: raise ValueError unless every target that counts is finite with x1 < x2 and y1 < y2. Only for
            eager code. The check waits for the GPU, so use it in the first steps and in tests.

    The gradient of the weights has a kink where their sum is 1: above 1 it is the gradient of the weighted
    mean, at 1 and below the gradient of the plain sum. Weights of a softmax sum to 1 up to rounding and fall
    on either side. Detach them, or scale them by 2 or more.

    Returns:
        A scalar: float64 if pred, target or weight is, otherwise float32. Differentiable in pred, and in
        target and weight where they are floating-point. Errors as for `giou`.
    """
    loss: Tensor = torch.ops.lensbox.masked_giou_loss(pred, target, weight, eps)
    if not torch.jit.is_scripting() and check:  # type: ignore[attr-defined]
        _check_targets(target, target[..., 3] != 0 if weight is None else weight != 0)
    return loss


def masked_giou_loss_and_grad(
    pred: Tensor, target: Tensor, weight: Tensor | None = None, eps: float = 1e-7
) -> tuple[Tensor, Tensor]:
    """Return `masked_giou_loss` and its gradient in `pred`, without autograd, for hand-written steps.

    On the GPU this is one launch; autograd needs three launches and time on the host:

        loss, grad = masked_giou_loss_and_grad(boxes.detach(), target)
        boxes.backward(grad)

    Args: as for `masked_giou_loss`.

    Returns:
        The loss, and the gradient in the shape and dtype of `pred`, contiguous. Neither is differentiable.
        Errors as for `giou`.
    """
    loss, grad = torch.ops.lensbox.masked_giou_loss_and_grad(pred, target, weight, eps)
    return loss, grad


def jagged_giou_loss(
    pred: Tensor, targets: Tensor, offsets: Tensor, eps: float = 1e-7, check: bool = False
) -> Tensor:
    """Return `masked_giou_loss` for targets without padding, as `PackedTargets` holds them.

    Image b has the targets `offsets[b]` to `offsets[b + 1]`; its first one belongs to `pred[b, 0]`, the next
    to `pred[b, 1]`, and so on. The loss is the mean of 1 - GIoU over all N pairs, 0 where there are none.

    Offsets must start at 0, never fall, end at N and give no image more than M targets. Other
    offsets are an error on the CPU. On the GPU they make the loss NaN, because a check would have to wait.

    Args:
        pred: `[B, M, 4]`, floating-point.
        targets: `[N, 4]`, of any dtype for boxes.
        offsets: `[B + 1]` int64 or int32, on the device of the boxes.
        eps: smallest denominator, in square pixels.
        check: raise ValueError for targets that are no boxes, as `masked_giou_loss` does.

    Returns:
        A scalar: float64 where pred or targets is, otherwise float32. Differentiable in pred, and in targets
        where they are floating-point. Errors as for `giou`.
    """
    loss: Tensor = torch.ops.lensbox.jagged_giou_loss(pred, targets, offsets, eps)
    if not torch.jit.is_scripting() and check:  # type: ignore[attr-defined]
        _check_targets(targets, torch.ones_like(targets[..., 0], dtype=torch.bool))
    return loss


def padded_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    score_threshold: float,
    max_candidates: int,
    max_detections: int,
    categories: Tensor | None = None,
) -> PaddedDetections:
    """Apply greedy non-maximum suppression to a batch, with fixed output shapes and no wait for the GPU.

    In each image, the boxes with score > score_threshold are ordered by score descending, then index
    ascending; the first `max_candidates` are candidates. A candidate is dropped when a better kept one
    overlaps it with intersection > iou_threshold * union. The first `max_detections` kept are the result.
    CPU and CUDA keep the same boxes.

    Args:
        boxes: `[B, N, 4]`, floating-point.
        scores: `[B, N]`, floating-point; NaN never passes.
        iou_threshold: between 0 and 1.
        score_threshold: any number; -inf lets every score above it pass.
        max_candidates, max_detections: at least 1. An image may have at most 131,072 candidates, the smaller
            of N and max_candidates.
        categories: `[B, N]` int64; boxes of different categories do not suppress each other.

    Returns:
        boxes `[B, max_detections, 4]` and scores `[B, max_detections]` in the dtypes of the inputs, indices
        `[B, max_detections]` int64 into N (-1 where unused), counts `[B]` int32.

    Raise RuntimeError, TypeError or ValueError for an argument out of its rule, which the message names.
    """
    return PaddedDetections(
        *torch.ops.lensbox.padded_nms(
            boxes, scores, iou_threshold, score_threshold, max_candidates, max_detections, categories
        )
    )


def _check_targets(targets: Tensor, counts: Tensor) -> None:
    """Raise ValueError unless the targets `[..., 4]` that count `[...]` are boxes; name the first bad one."""
    is_box = torch.isfinite(targets).all(-1) & (targets[..., :2] < targets[..., 2:]).all(-1)
    wrong = (counts & ~is_box).nonzero()
    if len(wrong) > 0:
        index = wrong[0].tolist()
        raise ValueError(
            "targets must be finite boxes x1, y1, x2, y2 with x1 < x2 and y1 < y2, or padding with y2 == 0, "
            f"got {targets[tuple(index)].tolist()} at {index}. Replace padding of -1 by zeros, and convert "
            "boxes in cx, cy, w, h"
        )


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, leaf: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        context.save_for_backward(gradient)
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = context.saved_tensors
        return gradient * outer[0], None, None


def with_gradient(leaf: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """Return a scalar value whose gradient in `leaf` is the given one, of the shape of `leaf`."""
    known: Tensor = _Known.apply(leaf, value, gradient)  # type: ignore[no-untyped-call]
    return known
