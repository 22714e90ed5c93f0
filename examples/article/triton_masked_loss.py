"""The Triton kernels of the fused masked GIoU loss. Importing this needs triton.

Forward: each program sums the losses of block slots; a second launch of one program adds the sums up in order
and divides. Predictions of padding are not read. Backward: one launch, which writes every slot's gradient.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

FORWARD_BLOCK = 1024
BACKWARD_BLOCK = 512
FINISH_BLOCK = 1024


@triton.jit
def _load_boxes(boxes, slot, mask):
    """Return the coordinates of the boxes at `slot` [block], as float32; zeros where `mask` is not set.

    A box is loaded whole: its four coordinates lie side by side in one thread.
    """
    block: tl.constexpr = slot.shape[0]
    corner = tl.arange(0, 4)
    box = tl.load(boxes + slot[:, None] * 4 + corner[None, :], mask=mask[:, None], other=0).to(tl.float32)
    # [block, (low, high), (x, y)]
    x, y = tl.split(tl.reshape(box, [block, 2, 2]))
    x1, x2 = tl.split(x)
    y1, y2 = tl.split(y)
    return x1, y1, x2, y2


@triton.jit
def _forward_kernel(pred, target, partials, slots, eps, block: tl.constexpr):
    slot = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    bx1, by1, bx2, by2 = _load_boxes(target, slot, slot < slots)
    valid = by2 != 0
    ax1, ay1, ax2, ay2 = _load_boxes(pred, slot, valid)
    width = tl.maximum(tl.minimum(ax2, bx2) - tl.maximum(ax1, bx1), 0.0)
    height = tl.maximum(tl.minimum(ay2, by2) - tl.maximum(ay1, by1), 0.0)
    inter = width * height
    area_a = tl.maximum(ax2 - ax1, 0.0) * tl.maximum(ay2 - ay1, 0.0)
    area_b = tl.maximum(bx2 - bx1, 0.0) * tl.maximum(by2 - by1, 0.0)
    union = area_a + area_b - inter
    hull_width = tl.maximum(tl.maximum(ax2, bx2) - tl.minimum(ax1, bx1), 0.0)
    hull_height = tl.maximum(tl.maximum(ay2, by2) - tl.minimum(ay1, by1), 0.0)
    hull = hull_width * hull_height
    giou = inter / tl.maximum(union, eps) - (hull - union) / tl.maximum(hull, eps)
    tl.store(partials + 2 * tl.program_id(0), tl.sum(tl.where(valid, 1.0 - giou, 0.0), axis=0))
    tl.store(partials + 2 * tl.program_id(0) + 1, tl.sum(valid.to(tl.float32), axis=0))


@triton.jit
def _finish_kernel(partials, loss, normalizer, programs, block: tl.constexpr):
    total = tl.zeros([block], tl.float32)
    count = tl.zeros([block], tl.float32)
    for first in range(0, programs, block):
        program = first + tl.arange(0, block)
        total += tl.load(partials + 2 * program, mask=program < programs, other=0.0)
        count += tl.load(partials + 2 * program + 1, mask=program < programs, other=0.0)
    divisor = tl.maximum(tl.sum(count, axis=0), 1.0)
    tl.store(loss, tl.sum(total, axis=0) / divisor)
    tl.store(normalizer, divisor)


@triton.jit
def _step(difference):
    """Return 1 above 0, 1/2 at 0 and 0 below: the gradient of a maximum as PyTorch splits it."""
    return tl.where(difference > 0, 1.0, tl.where(difference == 0, 0.5, 0.0))


@triton.jit
def _backward_kernel(grad, pred, target, normalizer, grad_pred, slots, eps, block: tl.constexpr):
    slot = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = slot < slots
    bx1, by1, bx2, by2 = _load_boxes(target, slot, inside)
    valid = by2 != 0
    ax1, ay1, ax2, ay2 = _load_boxes(pred, slot, valid)
    width, height = tl.minimum(ax2, bx2) - tl.maximum(ax1, bx1), tl.minimum(ay2, by2) - tl.maximum(ay1, by1)
    own_width, own_height = ax2 - ax1, ay2 - ay1
    hull_width = tl.maximum(ax2, bx2) - tl.minimum(ax1, bx1)
    hull_height = tl.maximum(ay2, by2) - tl.minimum(ay1, by1)
    inter = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
    area_b = tl.maximum(bx2 - bx1, 0.0) * tl.maximum(by2 - by1, 0.0)
    union = tl.maximum(own_width, 0.0) * tl.maximum(own_height, 0.0) + area_b - inter
    hull = tl.maximum(hull_width, 0.0) * tl.maximum(hull_height, 0.0)

    # giou = I/U + U/C - 1 with U = A + B - I. Derivatives by I, A and C; a clamped denominator is constant.
    by_union = 1.0 / tl.maximum(hull, eps)
    iou_by_union = tl.where(union >= eps, inter / (tl.maximum(union, eps) * tl.maximum(union, eps)), 0.0)
    by_inter = 1.0 / tl.maximum(union, eps) + iou_by_union - by_union
    by_area = by_union - iou_by_union
    by_hull = tl.where(hull >= eps, -union * by_union * by_union, -by_union)

    # Each area is width times height; where one is negative the area is 0 and stays so.
    inter_x = by_inter * tl.where(width >= 0, tl.maximum(height, 0.0), 0.0)
    inter_y = by_inter * tl.where(height >= 0, tl.maximum(width, 0.0), 0.0)
    area_x = by_area * tl.where(own_width >= 0, tl.maximum(own_height, 0.0), 0.0)
    area_y = by_area * tl.where(own_height >= 0, tl.maximum(own_width, 0.0), 0.0)
    hull_x = by_hull * tl.maximum(hull_height, 0.0)
    hull_y = by_hull * tl.maximum(hull_width, 0.0)
    factor = tl.where(valid, -tl.load(grad).to(tl.float32) / tl.load(normalizer), 0.0)
    grad_x1 = -factor * (inter_x * _step(ax1 - bx1) + area_x + hull_x * _step(bx1 - ax1))
    grad_y1 = -factor * (inter_y * _step(ay1 - by1) + area_y + hull_y * _step(by1 - ay1))
    grad_x2 = factor * (inter_x * _step(bx2 - ax2) + area_x + hull_x * _step(ax2 - bx2))
    grad_y2 = factor * (inter_y * _step(by2 - ay2) + area_y + hull_y * _step(ay2 - by2))
    gradient = tl.join(tl.join(grad_x1, grad_x2), tl.join(grad_y1, grad_y2))  # [block, (low, high), (x, y)]
    at = grad_pred + slot[:, None] * 4 + tl.arange(0, 4)[None, :]
    value = tl.reshape(gradient, [block, 4]).to(grad_pred.dtype.element_ty)
    tl.store(at, value, mask=inside[:, None])


class _MaskedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pred: Tensor, target: Tensor, eps: float) -> Tensor:
        slots = pred.numel() // 4
        programs = triton.cdiv(slots, FORWARD_BLOCK)
        partials = torch.empty(programs, 2, device=pred.device)
        loss = torch.empty((), device=pred.device)
        normalizer = torch.empty((), device=pred.device)
        _forward_kernel[(programs,)](pred, target, partials, slots, eps, block=FORWARD_BLOCK)
        _finish_kernel[(1,)](partials, loss, normalizer, programs, block=FINISH_BLOCK)
        ctx.save_for_backward(pred, target, normalizer)
        ctx.eps = eps
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        pred, target, normalizer = ctx.saved_tensors
        grad_pred = torch.empty_like(pred)
        slots = pred.numel() // 4
        programs = triton.cdiv(slots, BACKWARD_BLOCK)
        _backward_kernel[(programs,)](
            grads[0], pred, target, normalizer, grad_pred, slots, ctx.eps, block=BACKWARD_BLOCK
        )
        return grad_pred, None, None


def masked_loss(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the mean of 1 - GIoU over the slots whose target's y2 is not 0.

    pred, target: contiguous `[..., 4]`, on one GPU.
    """
    if not (pred.is_contiguous() and target.is_contiguous()):
        raise ValueError("pred and target must be contiguous")
    loss: Tensor = _MaskedLoss.apply(pred, target, eps)  # type: ignore[no-untyped-call]
    return loss
