"""Run every op on saved inputs and save the outputs: `python vectors_process.py INPUTS OUTPUTS`.

ATEN_CPU_CAPABILITY, which must be set before torch is imported, chooses the vectors that the kernels use.
"""

import sys

import torch
from torch import Tensor

from lensbox.ops import (
    giou,
    jagged_giou_loss,
    letterbox,
    masked_giou_loss,
    masked_giou_loss_and_grad,
    padded_nms,
    pairwise_giou,
)


def with_gradients(result: Tensor, *leaves: Tensor) -> list[Tensor]:
    upstream = torch.arange(1, result.numel() + 1, dtype=result.dtype).view_as(result) / 7
    return [result.detach(), *torch.autograd.grad(result, leaves, upstream)]


def run_box_ops(pred: Tensor, target: Tensor) -> list[Tensor]:
    """Values and gradients of all ops on predictions and targets `[B, M, 4]`, padded and packed here."""
    leaf = pred.clone().requires_grad_()
    scores = (pred[..., 0] * 7).frac().nan_to_num()
    padded = target * (scores > 0.5).to(target.dtype)[..., None]
    counts = torch.arange(len(pred)).clamp(max=pred.shape[1])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    packed = target.flatten(0, 1)[: int(offsets[-1])]
    nms = [padded_nms(pred, scores, 0.3, 0.1, 200, 150, ids) for ids in (None, (scores * 50).long() % 3)]
    return [
        *with_gradients(giou(leaf, target), leaf),
        *with_gradients(giou(leaf.mT.contiguous().mT, target), leaf),
        *with_gradients(pairwise_giou(leaf, target), leaf),
        *with_gradients(masked_giou_loss(leaf, padded), leaf),
        *with_gradients(masked_giou_loss(leaf, target, scores), leaf),
        *masked_giou_loss_and_grad(pred, padded),
        *with_gradients(jagged_giou_loss(leaf, packed, offsets), leaf),
        *(output for outputs in nms for output in outputs),
    ]


if __name__ == "__main__":
    inputs, outputs = sys.argv[1:]
    boxes, images = torch.load(inputs)
    results = [run_box_ops(pred, target) for pred, target in boxes]
    results += [list(letterbox(images, *canvas)) for canvas in ((40, 256, 1), (99, 50, 3), (300, 300, 3))]
    torch.save((torch.backends.cpu.get_cpu_capability(), results), outputs)
