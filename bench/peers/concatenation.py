"""Eager PyTorch without padding: predictions and targets of all samples are concatenated."""

import torch
from torch import Tensor

from lensbox.bench.peers.giou_formula import giou
from lensbox.bench.peers.peer import Loss


def concatenated_loss(pred: Tensor, boxes: list[Tensor]) -> Tensor:
    wanted = torch.cat(boxes).float()
    predicted = torch.cat([of_sample[: len(its)] for of_sample, its in zip(pred, boxes, strict=True)])
    return (1 - giou(predicted.float(), wanted)).sum() / max(len(wanted), 1)


def load_loss(_: torch.device) -> Loss:
    return lambda batch, pred: concatenated_loss(pred, batch.boxes)
