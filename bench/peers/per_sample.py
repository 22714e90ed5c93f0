"""The loop that the article starts from: one sample after another, each with as many boxes as it has."""

import torch
from torch import Tensor

from lensbox.bench.inputs import LossBatch
from lensbox.bench.peers.giou_formula import giou
from lensbox.bench.peers.peer import Loss


def looped_loss(pred: Tensor, boxes: list[Tensor]) -> Tensor:
    total = torch.zeros((), device=pred.device)
    count = 0
    for of_sample, wanted in zip(pred, boxes, strict=True):
        if len(wanted) == 0:
            continue
        total = total + (1 - giou(of_sample[: len(wanted)].float(), wanted.float())).sum()
        count += len(wanted)
    return total / max(count, 1)


def load_loss(_: torch.device) -> Loss:
    return lambda batch, pred: looped_loss(pred, batch.boxes)


def load_transfer(device: torch.device) -> Loss:
    """The targets of each sample are copied one by one, as a list of tensors is."""

    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        return looped_loss(pred, [boxes.to(device) for boxes in batch.host_boxes])

    return loss
