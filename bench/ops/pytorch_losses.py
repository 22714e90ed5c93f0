"""The GIoU loss in plain PyTorch, as users write it: padded, concatenated, one sample after another."""

import torch
from torch import Tensor


def giou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the GIoU of xyxy boxes `[..., 4]`, broadcasting: few operations on whole tensors."""
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


def pairwise(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Return the GIoU `[N, M]` of all pairs of `[N, 4]` and `[M, 4]`."""
    return giou(boxes1[:, None], boxes2[None])


def padded_loss(pred: Tensor, target: Tensor) -> Tensor:
    """Compute every slot of `[B, M, 4]` and mask the padding afterwards."""
    valid = target[..., 3] != 0
    losses = 1 - giou(pred.float(), target.float())
    return torch.where(valid, losses, 0.0).sum() / valid.sum().clamp(min=1)


def weighted_loss(pred: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the mean loss by weights `[B, M]`, which are 0 for padding."""
    losses = 1 - giou(pred.float(), target.float())
    return (weight * losses).sum() / weight.sum().clamp(min=1)


def concatenated_loss(pred: Tensor, boxes: list[Tensor]) -> Tensor:
    """Concatenate the predictions and targets of all samples. boxes: `[n, 4]` of each sample."""
    wanted = torch.cat(boxes).float()
    predicted = torch.cat([sample[: len(its)] for sample, its in zip(pred, boxes, strict=True)])
    return (1 - giou(predicted.float(), wanted)).sum() / max(len(wanted), 1)


def looped_loss(pred: Tensor, boxes: list[Tensor]) -> Tensor:
    """Add up one sample after another: the loop that the article starts from."""
    total = torch.zeros((), device=pred.device)
    count = 0
    for sample, wanted in zip(pred, boxes, strict=True):
        if len(wanted) == 0:
            continue
        total = total + (1 - giou(sample[: len(wanted)].float(), wanted.float())).sum()
        count += len(wanted)
    return total / max(count, 1)
