"""Eager PyTorch on padded targets: every slot is computed, padding is masked afterwards."""

import torch
from torch import Tensor

from lensbox.bench.inputs import PairwiseBatch
from lensbox.bench.peers.giou_formula import giou
from lensbox.bench.peers.peer import Loss, Pairwise


def padded_loss(pred: Tensor, target: Tensor) -> Tensor:
    valid = target[..., 3] != 0
    losses = 1 - giou(pred.float(), target.float())
    return torch.where(valid, losses, 0.0).sum() / valid.sum().clamp(min=1)


def load_loss(_: torch.device) -> Loss:
    return lambda batch, pred: padded_loss(pred, batch.target)


def weighted_loss(pred: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    losses = 1 - giou(pred.float(), target.float())
    return (weight * losses).sum() / weight.sum().clamp(min=1)


def load_weighted_loss(_: torch.device) -> Loss:
    return lambda batch, pred: weighted_loss(pred, batch.target, batch.weight)


def load_transfer(device: torch.device) -> Loss:
    """Targets padded by the data loader, one copy from pinned memory, then the loss."""
    return lambda batch, pred: padded_loss(pred, batch.host_target.to(device, non_blocking=True))


def pairwise(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    return giou(boxes1[:, None], boxes2[None])


def load_pairwise(_: torch.device) -> Pairwise:
    def call(batch: PairwiseBatch) -> Tensor:
        return pairwise(batch.boxes1, batch.boxes2)

    return call
