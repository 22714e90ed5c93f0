"""Drop-in equivalents of torchvision.ops functions: the same names, signatures, values and errors.

They differ from torchvision where its functions are undefined: empty, inverted and huge boxes give finite
values, and equal scores keep the box with the smaller index. `nms` and `batched_nms` follow torchvision's
rule for CUDA, on both devices: a box is dropped if its IoU, in float32, is above the threshold, in float32.
On the CPU torchvision compares with a float64 threshold, so for 0.1, 0.2 and other thresholds that float32
rounds up it drops boxes whose IoU equals the threshold.
"""

from collections.abc import Callable

import torch
from torch import Tensor

# Sides are cut here, so that areas and their sums are finite in float32 and in float64.
_LONGEST = {torch.float32: 2.0**63, torch.float64: 2.0**511}

_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined] # not in its __all__


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Return the IoU of every pair: `[..., N, 4]`, `[..., M, 4]` -> `[..., N, M]`; leading dims broadcast.

    Empty boxes overlap nothing (torchvision gives NaN for two of them). Raise RuntimeError for shapes that do
    not match, TypeError for boxes that are no real numbers; so do the functions below.
    """
    intersection, union, _ = _areas_of_pairs(boxes1, boxes2)
    return _ratio(intersection, union)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Return the generalized IoU of every pair: `[..., N, 4]`, `[..., M, 4]` -> `[..., N, M]`."""
    intersection, union, hull = _areas_of_pairs(boxes1, boxes2)
    return _ratio(intersection, union) - _ratio(hull - union, hull)


def generalized_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """Return 1 - GIoU of corresponding boxes: `[..., 4]` twice -> `[...]`, or a scalar when reduced.

    Args:
        boxes1, boxes2: `[..., 4]` of the same shape.
        reduction: "none", "mean" (0 for no boxes) or "sum".
        eps: added to every denominator, in square pixels.

    Raise ValueError for another reduction.
    """
    _check_boxes(boxes1, boxes2, "[..., 4]")
    intersection, union, hull = _areas(boxes1, boxes2)
    loss = 1 - intersection / (union + eps) + (hull - union) / (hull + eps)
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean() if loss.numel() > 0 else 0.0 * loss.sum()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(
        f"Invalid Value for arg 'reduction': '{reduction} \n Supported reduction modes: 'none', 'mean', 'sum'"
    )


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes that greedy suppression keeps: `[N, 4]`, `[N]` -> `[K]` int64.

    The best box comes first. Waits for the GPU, as its output's shape depends on values; `padded_nms` does
    not. Works in torch.compile, torch.export (`strict=False`), and scripted or traced, with any N.

    Raise RuntimeError, TypeError or ValueError for an argument out of its rule and more than 131,072 boxes.
    """
    _check_nms(boxes, scores)
    kept: Tensor = _kept(boxes, scores, None, iou_threshold)
    return kept


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Apply `nms` within each category: `[N, 4]`, `[N]`, `[N]` -> `[K]` int64, best of all boxes first."""
    _check_nms(boxes, scores)
    if not _is_tracing() and idxs.shape != scores.shape:
        raise RuntimeError(
            f"idxs should have the shape of scores, {list(scores.shape)}, got {list(idxs.shape)}"
        )
    kept: Tensor = _kept(boxes, scores, idxs.to(torch.int64)[None], iou_threshold)
    return kept


# A trace alone would make the number of boxes a constant.
@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _kept(boxes: Tensor, scores: Tensor, categories: Tensor | None, iou_threshold: float) -> Tensor:
    # torchvision ranks every box, those with a score of NaN first; here such boxes are never kept. Scores of
    # -inf become the lowest number, which is above the threshold.
    scores = torch.nan_to_num(scores, nan=float("nan"), posinf=float("inf"))
    limit = max(boxes.shape[0], 1)
    _, _, padded, counts = torch.ops.lensbox.padded_nms(
        boxes[None], scores[None], iou_threshold, -float("inf"), limit, limit, categories
    )
    indices: Tensor = padded[0]
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return indices[: int(counts[0])]
    count = counts[0].item()  # symbolic in a graph, where int() would make it a constant
    torch._check(count >= 0)
    torch._check(count <= limit)
    return indices[:count]


def _check_nms(boxes: Tensor, scores: Tensor) -> None:
    if _is_tracing():  # torch would warn of each comparison, and keep its result
        return
    if boxes.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {boxes.dim()}D")
    if boxes.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {boxes.shape[1]}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if boxes.shape[0] != scores.shape[0]:
        raise RuntimeError(
            "boxes and scores should have same number of elements in dimension 0, "
            f"got {boxes.shape[0]} and {scores.shape[0]}"
        )


def _check_boxes(boxes1: Tensor, boxes2: Tensor, shape: str) -> None:
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        if boxes.dim() < shape.count(",") or boxes.shape[-1] != 4:
            raise RuntimeError(f"{name} must have shape {shape}, got {list(boxes.shape)}")
        if boxes.is_complex() or boxes.dtype == torch.bool:
            raise TypeError(f"{name} must be real numbers, got {boxes.dtype}")


def _areas_of_pairs(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _check_boxes(boxes1, boxes2, "[..., N, 4]")
    return _areas(boxes1.unsqueeze(-2), boxes2.unsqueeze(-3))


def _areas(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return areas of intersection, union and enclosing box: `[..., 4]` twice, which broadcast -> `[...]`.

    Float64 if a box is float64, otherwise float32. An inverted side counts as empty.
    """
    in_double = torch.float64 in (boxes1.dtype, boxes2.dtype)
    boxes1, boxes2 = _in_math(boxes1), _in_math(boxes2)
    low1, high1, low2, high2 = boxes1[..., :2], boxes1[..., 2:], boxes2[..., :2], boxes2[..., 2:]
    intersection = _area(torch.maximum(low1, low2), torch.minimum(high1, high2))
    union = _area(low1, high1) + _area(low2, high2) - intersection
    hull = _area(torch.minimum(low1, low2), torch.maximum(high1, high2))
    dtype = torch.float64 if in_double else torch.float32
    return intersection.to(dtype), union.to(dtype), hull.to(dtype)


def _in_math(boxes: Tensor) -> Tensor:
    """Convert boxes to the dtype of the arithmetic: float64 for integers, whose areas it holds exactly."""
    return boxes.float() if boxes.dtype in (torch.float16, torch.bfloat16, torch.float32) else boxes.double()


def _area(low: Tensor, high: Tensor) -> Tensor:
    return (high - low).clamp(0, _LONGEST[low.dtype]).prod(-1)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, and 0 where `whole` is 0. There is no eps, which would spoil normalised boxes."""
    return part / torch.where(whole == 0, torch.ones_like(whole), whole)
