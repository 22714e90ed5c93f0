"""Floors: what a call costs when nothing is computed."""

import torch
from torch import Tensor

from lensbox.bench.extension import load_extension
from lensbox.bench.inputs import LossBatch
from lensbox.bench.peers.peer import Loss, UnavailableError


def load_empty_op(device: torch.device) -> Loss:
    """A C++ op that allocates a scalar."""
    load_extension(device)

    def call(batch: LossBatch, pred: Tensor) -> Tensor:
        out: Tensor = torch.ops.lensbox_bench.empty_op(pred, batch.target)
        return out

    return call


def load_empty_launch(device: torch.device) -> Loss:
    """A C++ op that allocates a scalar and launches an empty kernel."""
    if device.type != "cuda":
        raise UnavailableError("a CUDA kernel")
    load_extension(device)

    def call(batch: LossBatch, pred: Tensor) -> Tensor:
        out: Tensor = torch.ops.lensbox_bench.empty_launch(pred, batch.target)
        return out

    return call
