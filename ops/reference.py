"""References for kernels and for their peers in benchmarks: plain PyTorch in float64, by the definitions."""

from fractions import Fraction

import torch
from torch import Tensor


def giou_reference(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """GIoU (Rezatofighi et al., CVPR 2019) of xyxy boxes `[..., 4]`, broadcasting, in float64."""
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


def letterbox_reference(image: Tensor, height: int, width: int, channels: int = 1, fill: int = 0) -> Tensor:
    """The canvas of one image uint8 `[C, H, W]` by the definition: float64 `[channels, height, width]`.

    A pixel of the canvas is the mean of the image under a triangle as wide as two of it, or as two pixels of
    the image where that is enlarged. The op is not equal to the rounded result: as Pillow does, it rounds to
    bytes between the two directions too, half a level more, and its weights have 22 bits after the point.
    """
    scale = min(Fraction(height, image.shape[1]), Fraction(width, image.shape[2]))
    new_height, new_width = (max(1, int(side * scale + Fraction(1, 2))) for side in image.shape[1:])
    pixels = image[:3].double().cpu()
    if channels == 1 and len(pixels) == 3:
        # Whole levels, and the 16-bit coefficients of what is called gray everywhere.
        luma = torch.tensor([19595, 38470, 7471], dtype=torch.float64) / 65536
        pixels = (pixels * luma[:, None, None]).sum(0, keepdim=True).add(0.5).floor()
    down, across = _triangles(image.shape[1], new_height), _triangles(image.shape[2], new_width)
    canvas = torch.full((channels, height, width), fill, dtype=torch.float64)
    top, left = (height - new_height) // 2, (width - new_width) // 2
    canvas[:, top : top + new_height, left : left + new_width] = down @ pixels @ across.T
    return canvas


def _triangles(inputs: int, outputs: int) -> Tensor:
    """The weights `[outputs, inputs]` of the triangles in one direction; each row adds up to 1."""
    scale = inputs / outputs
    centers = (torch.arange(outputs, dtype=torch.float64) + 0.5) * scale
    pixels = torch.arange(inputs, dtype=torch.float64) + 0.5
    heights = (1 - (pixels - centers[:, None]).abs() / max(scale, 1.0)).clamp(min=0)
    return heights / heights.sum(1, keepdim=True)
