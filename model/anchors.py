"""The points at which the detector predicts, and the decoding of its predictions."""

import torch
from torch import Tensor


def make_anchors(canvas_size: int, strides: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """One anchor at the centre of every cell, level by level, row-major.

    Returns centers, float32 [A, 2] (x, y in canvas pixels), and strides, float32 [A] (pixels).
    """
    centers, cell_strides = [], []
    for stride in strides:
        axis = (torch.arange(canvas_size // stride, dtype=torch.float32) + 0.5) * stride
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        centers.append(torch.stack((x, y), dim=-1).reshape(-1, 2))
        cell_strides.append(torch.full((axis.numel() ** 2,), float(stride)))
    return torch.cat(centers), torch.cat(cell_strides)


def decode_boxes(raw: Tensor, centers: Tensor, strides: Tensor) -> Tensor:
    """Boxes from raw distances: the sides lie exp(raw) * stride from the anchor's centre.

    raw: float32 [B, A, 4] in the order left, top, right, bottom; centers: [A, 2] and strides: [A] in pixels.
    Returns float32 [B, A, 4], xyxy in canvas pixels, not clipped. The exponential is FCOS's
    (Tian et al. 2019, arXiv:1904.01355): equal steps of raw are equal ratios of size.
    """
    # exp(5) cells of stride 32 are 4,700 px: no face on the canvas needs more, and nothing overflows.
    distances = raw.clamp(max=5.0).exp() * strides[:, None]
    return torch.cat((centers - distances[..., :2], centers + distances[..., 2:]), dim=-1)
