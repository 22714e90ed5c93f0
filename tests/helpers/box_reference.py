"""Independent references for the box ops: PyTorch in float64, and NumPy for NMS."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

FLOAT_DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGER_DTYPES = [torch.uint8, torch.int16, torch.int32, torch.int64]
BOX_DTYPES = FLOAT_DTYPES + INTEGER_DTYPES


class Rounding(TypedDict):
    rtol: float
    atol: float


# Values of one dtype are compared with float64 arithmetic on the same rounded inputs.
TOLERANCE: dict[torch.dtype, Rounding] = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-12},
    torch.float32: {"rtol": 2e-5, "atol": 2e-6},
    torch.float16: {"rtol": 2e-3, "atol": 1e-3},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 8e-3},
}


def check_op(
    op: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    given: Sequence[Tensor],
    device: torch.device,
    trains: Sequence[int] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Compare an op on a device, and its gradients, with a reference in float64 on the same numbers.

    trains: positions of the tensors that get a gradient, if any; None: all of floating point. The gradient of
    the output is not 1. Return the output and the gradients for a gradient of -2.5.
    """
    wanted = [i for i, t in enumerate(given) if t.is_floating_point()] if trains is None else [*trains]
    exact = [t.detach().double().requires_grad_(i in wanted) for i, t in enumerate(given)]
    inputs = [t.detach().to(device).requires_grad_(i in wanted) for i, t in enumerate(given)]
    expected, out = reference(*exact), op(*inputs)
    assert out.shape == expected.shape
    torch.testing.assert_close(out.detach().cpu().double(), expected.detach(), **TOLERANCE[out.dtype])
    if not wanted:
        return out, []
    upstream = torch.full_like(expected, -2.5) * (torch.rand_like(expected) + 0.5 if expected.dim() else 1)
    upstream = upstream.to(out.dtype)
    theirs = torch.autograd.grad(expected, [exact[i] for i in wanted], upstream.double(), allow_unused=True)
    ours = torch.autograd.grad(out, [inputs[i] for i in wanted], upstream.to(device))
    for i, grad, known in zip(wanted, ours, theirs, strict=True):
        assert (grad.shape, grad.dtype) == (given[i].shape, given[i].dtype)
        assert_close_in_scale(grad, torch.zeros_like(exact[i]) if known is None else known, out.dtype)
    return out.detach(), list(ours)


def assert_close_in_scale(grad: Tensor, expected: Tensor, arithmetic: torch.dtype) -> None:
    """Compare a gradient with float64, relative to the largest number. arithmetic: dtype of the output."""
    if expected.numel() == 0:
        return
    coarse = grad.dtype == torch.float64 and arithmetic != torch.float64
    limits = TOLERANCE[torch.float32 if coarse else grad.dtype]
    error = (grad.cpu().double() - expected).abs().max().item()
    assert error <= (limits["rtol"] + limits["atol"]) * expected.abs().max().item() + 1e-7


def areas_of(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return intersection, union and enclosing area of xyxy boxes `[..., 4]`, broadcasting, in float64."""
    (low1, high1), (low2, high2) = (boxes.double().split(2, -1) for boxes in (boxes1, boxes2))

    def area(low: Tensor, high: Tensor) -> Tensor:
        return _at_least(high - low, 0).prod(-1)

    intersection = area(torch.maximum(low1, low2), torch.minimum(high1, high2))
    union = area(low1, high1) + area(low2, high2) - intersection
    return intersection, union, area(torch.minimum(low1, low2), torch.maximum(high1, high2))


def giou_reference(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the GIoU (Rezatofighi et al., CVPR 2019) of xyxy boxes `[..., 4]`, broadcasting, in float64."""
    intersection, union, hull = areas_of(boxes1, boxes2)
    return intersection / _at_least(union, eps) - (hull - union) / _at_least(hull, eps)


def _at_least(values: Tensor, least: float) -> Tensor:
    """Clamp `values` from below, with the gradient 1 at the bound, as the kernels have it.

    The gradient of `Tensor.clamp` at its bound is 1 up to torch 2.13 and 0 from torch 2.14 on. Boxes
    that touch are at the bound.
    """
    return torch.where(values < least, least, values)


def loss_reference(pred: Tensor, target: Tensor, weight: Tensor | None = None, eps: float = 1e-7) -> Tensor:
    """Return the masked loss in float64. Without weights, padding is left out."""
    if weight is None:
        valid = target[..., 3] != 0
        pred, target, weight = pred[valid], target[valid], torch.ones(int(valid.sum()))
    weight = weight.double()
    return (weight * (1 - giou_reference(pred, target, eps))).sum() / weight.sum().clamp(min=1)


def exact_giou(a: list[float], b: list[float], eps: float) -> float:
    """Return the GIoU of two boxes in rational arithmetic, which cannot overflow."""
    ax1, ay1, ax2, ay2 = map(Fraction, a)
    bx1, by1, bx2, by2 = map(Fraction, b)

    def area(width: Fraction, height: Fraction) -> Fraction:
        return max(width, Fraction(0)) * max(height, Fraction(0))

    inter = area(min(ax2, bx2) - max(ax1, bx1), min(ay2, by2) - max(ay1, by1))
    union = area(ax2 - ax1, ay2 - ay1) + area(bx2 - bx1, by2 - by1) - inter
    hull = area(max(ax2, bx2) - min(ax1, bx1), max(ay2, by2) - min(ay1, by1))
    return float(inter / max(union, Fraction(eps)) - (hull - union) / max(hull, Fraction(eps)))


def nms_reference(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    score_threshold: float,
    max_candidates: int,
    max_detections: int,
    categories: Tensor | None = None,
    whole: bool = False,
) -> list[int]:
    """Return the indices that greedy NMS keeps for one image. whole: compute with integers of any size."""
    rows = np.array(boxes.tolist(), np.float64).reshape(-1, 4)
    if whole:
        rows = np.array([[int(number) for number in row] for row in rows], object).reshape(-1, 4)
    above, below = Fraction(iou_threshold).as_integer_ratio() if whole else (iou_threshold, 1)
    areas = np.maximum(rows[:, 2:] - rows[:, :2], 0).prod(1)
    kinds = np.array(categories.tolist() if categories is not None else [0] * len(rows))
    ranks = scores.tolist()
    order = sorted((i for i in range(len(rows)) if ranks[i] > score_threshold), key=lambda i: (-ranks[i], i))
    left = np.array(order[:max_candidates], np.int64)
    kept: list[int] = []
    while len(left) > 0 and len(kept) < max_detections:
        best, left = left[0], left[1:]
        kept.append(int(best))
        low, high = np.maximum(rows[best, :2], rows[left, :2]), np.minimum(rows[best, 2:], rows[left, 2:])
        inter = np.maximum(high - low, 0).prod(1)
        exceeds = (inter * below > above * (areas[best] + areas[left] - inter)).astype(bool)
        left = left[~exceeds | (kinds[left] != kinds[best])]
    return kept


def random_boxes(*shape: int, dtype: torch.dtype = torch.float32, size: float = 240.0) -> Tensor:
    """Return boxes `[*shape, 4]` inside [0, size] with sides of at least 2."""
    low = torch.rand(*shape, 2, dtype=torch.float64) * (size * 0.75)
    side = 2 + torch.rand(*shape, 2, dtype=torch.float64) * (size * 0.25 - 2)
    return torch.cat([low, low + side], -1).to(dtype)


def extreme_boxes(count: int, dtype: torch.dtype) -> Tensor:
    """Return finite extreme boxes `[count, 4]`: huge, tiny, inverted, empty, mixed."""
    limits = torch.finfo(dtype)
    values = [0.0, -0.0, 1.0, -1.0, 0.1, limits.tiny, -limits.tiny, limits.eps, 1e4, -1e4]
    values += [limits.max, limits.min, limits.max / 2, limits.max**0.5, -(limits.max**0.5), limits.max**0.25]
    table = torch.tensor(values, dtype=dtype)
    return table[torch.randint(len(values), (count, 4))]
