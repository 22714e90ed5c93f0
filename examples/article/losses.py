"""Losses of the article and of Triton: peers of `lensbox bench ops` and rows of `lensbox bench article`.

A loader takes the device and returns the loss. It raises UnavailableError where the loss cannot run.
"""

from collections.abc import Callable

import torch
from article_kernel import load_extension
from torch import Tensor

from lensbox.bench.measure import UnavailableError
from lensbox.bench.ops.peers import giou

PaddedLoss = Callable[[Tensor, Tensor], Tensor]


def article_loss(device: torch.device, skip: bool = True) -> PaddedLoss:
    """Return the article's CUDA kernel, rewritten. skip: threads of padding compute nothing."""
    if device.type != "cuda":
        raise UnavailableError("a CUDA kernel")
    load_extension()

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        losses, counts = torch.ops.lensbox_bench.article_sums(pred.float(), target.float(), skip)
        out: Tensor = losses.sum() / counts.sum().clamp(min=1)
        return out

    return loss


def triton_loss(device: torch.device) -> PaddedLoss:
    """Return the fused masked loss in Triton."""
    if device.type != "cuda":
        raise UnavailableError("Triton compiles for GPUs")
    try:
        import triton  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UnavailableError(f"triton cannot be imported: {error}") from error
    from triton_masked_loss import masked_loss

    return masked_loss


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
