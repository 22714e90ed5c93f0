"""What a peer is: a name, and how to get the function that is timed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from lensbox.bench.inputs import LossBatch, NmsBatch, PairwiseBatch
from lensbox.ops import PackedTargets


class UnavailableError(Exception):
    """A peer cannot run here; the message is the reason that the table shows."""


# The loss of predictions [B, M, 4], given the batch that they belong to (whose own `pred` it leaves alone);
# of a peer that gives_gradient, the loss and its gradient in the predictions.
Loss = Callable[[LossBatch, Tensor], Tensor | tuple[Tensor, Tensor]]
# Whatever the implementation returns: only NmsPeer.kept looks inside.
Nms = Callable[[NmsBatch], object]
# GIoU of all pairs.
Pairwise = Callable[[PairwiseBatch], Tensor]
# Losses of the predictions and their targets alone.
PaddedLoss = Callable[[Tensor, Tensor], Tensor]
PackedLoss = Callable[[Tensor, PackedTargets], Tensor]

Function = TypeVar("Function")


def loss_and_gradient(function: Loss, batch: LossBatch, pred: Tensor) -> tuple[Tensor, Tensor]:
    """`pred` is a leaf that requires a gradient."""
    result = function(batch, pred)
    if isinstance(result, Tensor):
        return result, torch.autograd.grad(result, pred)[0]
    return result


@dataclass(frozen=True)
class Peer(Generic[Function]):
    """An implementation to be timed.

    load: makes the function for a device; raises UnavailableError.
    not_capturable: why a CUDA graph cannot hold it, or "".
    no_backward: why it has no gradient, or "".
    gives_gradient: whether a loss comes with its gradient, which autograd is then not asked for.
    rotates: whether it can be given many copies of the inputs, which takes the caches out of the figure; not
        where each copy would be thousands of tensors.
    slow_to_start: whether `--quick` leaves it out, because it compiles for each shape.
    """

    name: str
    load: Callable[[torch.device], Function]
    not_capturable: str = ""
    no_backward: str = ""
    gives_gradient: bool = False
    rotates: bool = True
    slow_to_start: bool = False


@dataclass(frozen=True, kw_only=True)
class NmsPeer(Peer[Nms]):
    """kept: turns what the function returned into a bool `[B, N]`, for the check."""

    kept: Callable[[NmsBatch, object], Tensor]
