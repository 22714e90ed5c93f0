"""GIoU in plain PyTorch: the arithmetic that the PyTorch peers share."""

import torch
from torch import Tensor


def giou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """GIoU of xyxy boxes `[..., 4]`, broadcasting. What a user would write: few, whole-tensor operations."""
    area1 = (boxes1[..., 2] - boxes1[..., 0]) * (boxes1[..., 3] - boxes1[..., 1])
    area2 = (boxes2[..., 2] - boxes2[..., 0]) * (boxes2[..., 3] - boxes2[..., 1])
    overlap = torch.minimum(boxes1[..., 2:], boxes2[..., 2:]) - torch.maximum(
        boxes1[..., :2], boxes2[..., :2]
    )
    overlap = overlap.clamp(min=0)
    intersection = overlap[..., 0] * overlap[..., 1]
    union = area1 + area2 - intersection
    hull = torch.maximum(boxes1[..., 2:], boxes2[..., 2:]) - torch.minimum(boxes1[..., :2], boxes2[..., :2])
    enclosing = hull[..., 0] * hull[..., 1]
    return intersection / union.clamp(min=eps) - (enclosing - union) / enclosing.clamp(min=eps)
