"""The implementations that are timed: Lensbox's ops first, and the peers that they are compared with.

A loader takes the device and returns the function to time. It raises UnavailableError where it cannot run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from lensbox.bench.measure import UnavailableError
from lensbox.bench.ops import pytorch_losses
from lensbox.bench.ops.extension import load_extension
from lensbox.bench.ops.inputs import LossBatch, NmsBatch
from lensbox.ops import (
    PackedTargets,
    PaddedDetections,
    jagged_giou_loss,
    library_path,
    masked_giou_loss,
    masked_giou_loss_and_grad,
    padded_nms,
    pairwise_giou,
    read_build_info,
)

# A loss takes a LossBatch and predictions [B, M, 4] and returns the loss, or the loss and its gradient.
# NMS takes an NmsBatch, pairwise GIoU two tensors of boxes.
Function = Callable[..., Any]
Load = Callable[[torch.device], Function]
PaddedLoss = Callable[[Tensor, Tensor], Tensor]

FORWARD, BOTH = "forward", "forward + backward"


@dataclass(frozen=True)
class Peer:
    """An implementation to be timed.

    directions: of a loss. in_graph: whether a CUDA graph can hold the calls. compiles: whether the peer
    compiles each shape, so that `--quick` leaves it out. every_size: whether the sweep of sizes has it.
    """

    name: str
    load: Load
    directions: Sequence[str] = (FORWARD, BOTH)
    in_graph: bool = True
    compiles: bool = False
    every_size: bool = True

    @property
    def own(self) -> bool:
        """Return whether this is an op of Lensbox."""
        return self.name.startswith("lensbox")


def loss_and_gradient(function: Function, batch: LossBatch, pred: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient in `pred`, a leaf that requires a gradient."""
    result = function(batch, pred)
    if isinstance(result, Tensor):
        return result, torch.autograd.grad(result, pred)[0]
    loss, gradient = result
    return loss, gradient


def lensbox_padded_loss(device: torch.device) -> PaddedLoss:
    """Return `masked_giou_loss`."""
    backends = read_build_info(library_path()).backends
    if device.type not in backends:
        raise UnavailableError(f"the op library was built for {', '.join(backends)} only")
    return masked_giou_loss


def lensbox_packed_loss(device: torch.device) -> Callable[[Tensor, PackedTargets], Tensor]:
    """Return `jagged_giou_loss`, for targets that were never padded."""
    lensbox_padded_loss(device)
    return lambda pred, packed: jagged_giou_loss(pred, packed.values, packed.offsets)


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
    from lensbox.bench.ops.triton_kernels import masked_loss

    return masked_loss


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile each shape for itself. torch.compile's own CUDA graphs are off: all are captured alike."""
    return torch.compile(function, dynamic=False, fullgraph=True)


def _ours(function: Function) -> Load:
    def load(device: torch.device) -> Function:
        lensbox_padded_loss(device)
        return function

    return load


def _padded(load: Callable[[torch.device], PaddedLoss]) -> Load:
    def of_batch(device: torch.device) -> Function:
        loss = load(device)
        return lambda batch, pred: loss(pred, batch.target)

    return of_batch


def _weighted(function: Callable[..., Any]) -> Function:
    return lambda batch, pred: function(pred, batch.target, batch.weight)


def _torchvision(function_of: Callable[[ModuleType], Function]) -> Load:
    def load(_: torch.device) -> Function:
        try:
            # A torchvision that was built for another torch raises RuntimeError or OSError.
            import torchvision.ops as ops  # pyright: ignore[reportMissingImports]
        except (ImportError, RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UnavailableError(f"torchvision cannot be imported: {reason}") from error
        return function_of(ops)

    return load


def _torchvision_loss(ops: ModuleType) -> Function:
    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        valid = batch.target[..., 3] != 0
        losses = ops.generalized_box_iou_loss(pred, batch.target.float(), reduction="none")
        out: Tensor = torch.where(valid, losses, 0.0).sum() / valid.sum().clamp(min=1)
        return out

    return loss


def _torchvision_nms(ops: ModuleType) -> Function:
    """Return `nms` of one image, `batched_nms` of several images."""

    def nms(batch: NmsBatch) -> Any:
        if len(batch.boxes) == 1:
            return ops.nms(batch.boxes[0], batch.scores[0], batch.iou_threshold)
        boxes, scores, images = batch.flat
        return ops.batched_nms(boxes, scores, images, batch.iou_threshold)

    return nms


def _lensbox_nms(batch: NmsBatch) -> PaddedDetections:
    """Run NMS with room for every box in the output, as torchvision's function has."""
    count = batch.scores.shape[1]
    return padded_nms(batch.boxes, batch.scores, batch.iou_threshold, -1.0, count, count)


LOSS_PEERS = [
    Peer("lensbox", _padded(lensbox_padded_loss)),
    Peer(
        "lensbox, one op for both",
        _ours(lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target)),
        directions=(BOTH,),
    ),
    Peer("lensbox jagged", _ours(lambda batch, pred: jagged_giou_loss(pred, *batch.packed))),
    Peer("eager", _padded(lambda _: pytorch_losses.padded_loss)),
    Peer("torch.compile", _padded(lambda _: compiled(pytorch_losses.padded_loss)), compiles=True),
    Peer(
        "concatenation",
        lambda _: lambda batch, pred: pytorch_losses.concatenated_loss(pred, batch.boxes),
        every_size=False,
    ),
    Peer(
        "per-sample loop",
        lambda _: lambda batch, pred: pytorch_losses.looped_loss(pred, batch.boxes),
        in_graph=False,  # thousands of launches
        every_size=False,
    ),
    Peer("article's kernel", _padded(article_loss), directions=(FORWARD,)),
    Peer("triton", _padded(triton_loss)),
    # torchvision's loss waits for the device, which a graph cannot hold.
    Peer("torchvision", _torchvision(_torchvision_loss), in_graph=False, every_size=False),
]

WEIGHTED_LOSS_PEERS = [
    Peer("lensbox", _ours(_weighted(masked_giou_loss))),
    Peer(
        "lensbox, one op for both",
        _ours(lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target, batch.weight)),
        directions=(BOTH,),
    ),
    Peer("eager", lambda _: _weighted(pytorch_losses.weighted_loss)),
    Peer("torch.compile", lambda _: _weighted(compiled(pytorch_losses.weighted_loss)), compiles=True),
]

NMS_PEERS = [
    Peer("lensbox", _ours(_lensbox_nms)),
    Peer("torchvision", _torchvision(_torchvision_nms), in_graph=False),
]

PAIRWISE_PEERS = [
    Peer("lensbox", _ours(pairwise_giou)),
    Peer("eager", lambda _: pytorch_losses.pairwise),
    Peer("torch.compile", lambda _: compiled(pytorch_losses.pairwise), compiles=True),
    Peer("torchvision", _torchvision(lambda ops: ops.generalized_box_iou)),
]
