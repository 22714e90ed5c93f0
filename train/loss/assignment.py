"""Assign cells of the detector to target boxes, task-aligned, in fixed shapes.

The candidates of a box are the 3x3 cells around its centre, on each level that takes its size. Candidates are
ranked by score^a · IoU^b of their present predictions (TOOD: Feng et al. 2021, arXiv:2108.07755). A box keeps
the best few. A cell that several boxes keep goes to the box that ranks it highest. No call here waits for the
device.
"""

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE, STRIDES
from lensbox.ops import box_iou

NEIGHBOURHOOD = 3
TOP_CELLS = 7  # positive cells of a box
SCORE_POWER, IOU_POWER = 0.5, 4.0
# Box size sqrt(w·h) that each level takes, finest level first. Ranges overlap: no size lies between two.
LEVEL_SIZES = ((0.0, 24.0), (14.0, 52.0), (36.0, 112.0), (76.0, 1e6))


class Level(NamedTuple):
    """A level of the detector: `side`x`side` cells of `stride` pixels, the first one at index `start`.

    It takes boxes whose size sqrt(w·h) in pixels lies in [low, high).
    """

    side: int
    stride: int
    start: int
    low: float
    high: float


_SIDES = [CANVAS_SIZE // stride for stride in STRIDES]
_STARTS = accumulate((side * side for side in _SIDES[:-1]), initial=0)
# In the detector's order: finest first, row-major cells.
LEVELS = [Level(*level[:3], *level[3]) for level in zip(_SIDES, STRIDES, _STARTS, LEVEL_SIZES, strict=True)]


class Assignment(NamedTuple):
    """Pairs of a box and a cell, K per box slot: cells int64 [B, M, K], index of the cell; positive bool
    [B, M, K], the pairs that count; quality float32 [B, M, K], soft target in 0 to 1, 0 elsewhere."""

    cells: Tensor
    positive: Tensor
    quality: Tensor


def candidate_cells(targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return for boxes [B, M, 4] the cells each may take: index int64, allowed bool and closeness float32
    (0 to 1, 1 at the box's centre), all [B, M, 9 · levels]."""
    center = (targets[..., :2] + targets[..., 2:]) / 2
    size = (targets[..., 2:] - targets[..., :2]).clamp(min=0).prod(-1).sqrt()
    used = targets[..., 3] > 0
    step = torch.arange(NEIGHBOURHOOD, device=targets.device) - NEIGHBOURHOOD // 2
    step_y = step.repeat_interleave(NEIGHBOURHOOD)
    step_x = step.repeat(NEIGHBOURHOOD)
    cells, allowed, closeness = [], [], []
    for level in LEVELS:
        x = (center[..., 0:1] / level.stride).floor().long() + step_x
        y = (center[..., 1:2] / level.stride).floor().long() + step_y
        inside = (x >= 0) & (y >= 0) & (x < level.side) & (y < level.side)
        takes = used & (size >= level.low) & (size < level.high)
        allowed.append(inside & takes[..., None])
        clamped = y.clamp(0, level.side - 1) * level.side + x.clamp(0, level.side - 1)
        cells.append(level.start + clamped)
        x_away = x + 0.5 - center[..., 0:1] / level.stride
        y_away = y + 0.5 - center[..., 1:2] / level.stride
        distance = torch.hypot(x_away, y_away)
        closeness.append(torch.exp(-distance))
    return torch.cat(cells, -1), torch.cat(allowed, -1), torch.cat(closeness, -1)


@torch.no_grad()
def assign(boxes: Tensor, logits: Tensor, targets: Tensor) -> Assignment:
    """Pair boxes with cells. boxes: float32 [B, A, 4], the detector's predictions. logits: float32 [B, A].
    targets: float32 [B, M, 4], slots with y2 = 0 unused."""
    batch = targets.shape[0]
    cells, allowed, closeness = candidate_cells(targets)
    flat = cells.reshape(batch, -1)
    predicted = boxes.float().gather(1, flat[..., None].expand(-1, -1, 4)).reshape(*cells.shape, 4)
    score = logits.float().gather(1, flat).reshape(cells.shape).sigmoid()
    iou = box_iou(predicted, targets[:, :, None])[..., 0]
    # Closeness decides while no prediction overlaps yet, and is too small to matter later.
    metric = score**SCORE_POWER * iou**IOU_POWER + 1e-7 * closeness
    metric = torch.where(allowed, metric, 0.0)

    best, position = metric.topk(TOP_CELLS, dim=-1)
    kept = best > 0
    cells = cells.gather(-1, position)
    iou = iou.gather(-1, position)
    flat = cells.reshape(batch, -1)
    highest = torch.zeros_like(logits, dtype=torch.float32)
    highest = highest.scatter_reduce(1, flat, best.reshape(batch, -1), "amax")
    positive = kept & (best >= highest.gather(1, flat).reshape(cells.shape))

    top_metric = torch.where(positive, best, 0.0).amax(-1, keepdim=True).clamp(min=1e-12)
    top_iou = torch.where(positive, iou, 0.0).amax(-1, keepdim=True)
    quality = best / top_metric * top_iou.clamp(min=0.0, max=1.0)
    return Assignment(cells, positive, torch.where(positive, quality, 0.0))


@torch.no_grad()
def ignored_cells(ignored: Tensor) -> Tensor:
    """Return float32 [B, A], 1 for cells whose centre lies in an ignored box [B, I, 4].

    On the finest level the cell that holds the centre of such a box is ignored too: a box of three pixels
    may contain no cell's centre. Inside-ness is separable, so a matrix product counts the boxes.
    """
    parts = []
    for level in LEVELS:
        cell = (torch.arange(level.side, device=ignored.device) + 0.5) * level.stride
        low, high = ignored[..., :2, None], ignored[..., 2:, None]
        inside = (cell >= low) & (cell <= high)
        if level.stride == STRIDES[0]:
            middle = (low + high) / 2
            inside = inside | ((cell - middle).abs() <= level.stride / 2)
        inside = inside & (ignored[..., 3] > 0)[..., None, None]
        x, y = inside[..., 0, :].float(), inside[..., 1, :].float()
        parts.append((torch.bmm(y.transpose(1, 2), x) > 0).flatten(1))
    return torch.cat(parts, 1).float()
