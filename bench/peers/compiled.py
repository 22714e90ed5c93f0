"""torch.compile of the eager functions.

Each shape is compiled for itself (dynamic=False), in one piece (fullgraph=True: an error, rather than slow
Python, if that ever fails). torch.compile's own CUDA graphs are off: every peer is captured in the same way.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lensbox.bench.inputs import PairwiseBatch
from lensbox.bench.peers import eager
from lensbox.bench.peers.peer import Loss, PaddedLoss, Pairwise

DEFAULT = "default"
MAX_AUTOTUNE = "max-autotune-no-cudagraphs"


def compiled_loss(mode: str = DEFAULT) -> PaddedLoss:
    return torch.compile(eager.padded_loss, mode=mode, dynamic=False, fullgraph=True)


def load_loss(mode: str) -> Callable[[torch.device], Loss]:
    def load(_: torch.device) -> Loss:
        compiled = compiled_loss(mode)
        return lambda batch, pred: compiled(pred, batch.target)

    return load


def load_weighted_loss(_: torch.device) -> Loss:
    compiled = torch.compile(eager.weighted_loss, dynamic=False, fullgraph=True)
    return lambda batch, pred: compiled(pred, batch.target, batch.weight)


def load_pairwise(_: torch.device) -> Pairwise:
    compiled = torch.compile(eager.pairwise, dynamic=False, fullgraph=True)

    def call(batch: PairwiseBatch) -> Tensor:
        out: Tensor = compiled(batch.boxes1, batch.boxes2)
        return out

    return call


def forget_compiled() -> None:
    """Drops compiled code, so that no shape is slowed by the guards of another, nor the limit of versions of
    one function reached."""
    torch.compiler.reset()
