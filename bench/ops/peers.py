"""The implementations that are timed: Lensbox's ops first, and the peers that they are compared with.

A loader takes the device and returns the function to time. It raises UnavailableError where it cannot run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from lensbox.bench.ops import pytorch_losses
from lensbox.bench.ops.extension import load_extension
from lensbox.bench.ops.inputs import LossBatch, NmsBatch
from lensbox.bench.runner import UnavailableError
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

# The function of a peer. A loss takes a LossBatch and predictions [B, M, 4] and returns the loss, or the loss
# and its gradient if the peer gives_gradient. NMS takes an NmsBatch, pairwise GIoU a PairwiseBatch.
Function = Callable[..., Any]
Load = Callable[[torch.device], Function]
PaddedLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Peer:
    """An implementation to be timed.

    no_graph: why a CUDA graph cannot hold it, or "". no_backward: why it has no gradient, or "".
    gives_gradient: whether it returns the gradient beside the loss, without autograd.
    no_copies: why its inputs cannot be copied hundreds of times, or "".
    slow_to_start: whether it compiles for each shape, so that `--quick` leaves it out.
    swept: whether the peer is measured at every size; a slow peer takes seconds a call at the larger sizes.
    kept: of NMS, turns the function's result into a bool `[B, N]`, for the check.
    """

    name: str
    load: Load
    no_graph: str = ""
    no_backward: str = ""
    gives_gradient: bool = False
    no_copies: str = ""
    slow_to_start: bool = False
    swept: bool = False
    kept: Callable[[NmsBatch, Any], Tensor] | None = None


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
    load_extension(device)

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


def _of_pairs(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return lambda batch: function(batch.boxes1, batch.boxes2)


def _transferred(load: Callable[[torch.device], PaddedLoss]) -> Load:
    """Copy the padded targets from pinned memory at once, then compute the loss."""

    def of_batch(device: torch.device) -> Function:
        loss = load(device)
        return lambda batch, pred: loss(pred, batch.host_target.to(device, non_blocking=True))

    return of_batch


def _transferred_packed(device: torch.device) -> Function:
    loss = lensbox_packed_loss(device)
    return lambda batch, pred: loss(pred, batch.host_packed.to(device, non_blocking=True))


def _transferred_loop(device: torch.device) -> Function:
    """Copy the targets of each sample one by one, then compute the loss."""

    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        return pytorch_losses.looped_loss(pred, [boxes.to(device) for boxes in batch.host_boxes])

    return loss


def _floor(op: str, needs_gpu: bool) -> Load:
    """Load a C++ op that computes nothing: it allocates a scalar, and launches an empty kernel."""

    def load(device: torch.device) -> Function:
        if needs_gpu and device.type != "cuda":
            raise UnavailableError("a CUDA kernel")
        load_extension(device)
        function = getattr(torch.ops.lensbox_bench, op)
        return lambda batch, pred: function(pred, batch.target)

    return load


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


def _torchvision_batched_nms(ops: ModuleType) -> Function:
    def nms(batch: NmsBatch) -> Any:
        boxes, scores, images = batch.flat
        return ops.batched_nms(boxes, scores, images, batch.iou_threshold)

    return nms


def _kept_by_torchvision(batch: NmsBatch, result: Tensor) -> Tensor:
    kept = torch.zeros_like(batch.scores, dtype=torch.bool)
    kept.view(-1)[result] = True
    return kept


def _lensbox_nms(batch: NmsBatch) -> PaddedDetections:
    """Run NMS with room for every box in the output, as torchvision's function has."""
    count = batch.scores.shape[1]
    return padded_nms(batch.boxes, batch.scores, batch.iou_threshold, -1.0, count, count)


def _kept_by_lensbox(batch: NmsBatch, result: PaddedDetections) -> Tensor:
    kept = torch.zeros_like(batch.scores, dtype=torch.int32)
    # Unused slots hold index -1: they add nothing to box 0.
    kept.scatter_add_(1, result.indices.clamp(min=0), (result.indices >= 0).int())
    return kept > 0


LENSBOX = "lensbox"
LENSBOX_JAGGED = "lensbox jagged"
LENSBOX_WITH_GRADIENT = "lensbox, one op for both"
LENSBOX_ANY_WEIGHT = "lensbox, int32 weights"
OWN = (LENSBOX, LENSBOX_JAGGED, LENSBOX_WITH_GRADIENT, LENSBOX_ANY_WEIGHT)
EAGER = "eager"
COMPILED = "torch.compile"
PER_SAMPLE = "per-sample loop"
TORCHVISION = "torchvision"
TORCHVISION_NMS = "torchvision nms"
TORCHVISION_BATCHED_NMS = "torchvision batched_nms"
FLOORS = ("empty op", "empty kernel")

_FORWARD_ONLY = "forward only"
_WAITS = "it waits for the device"

LOSS_PEERS = [
    Peer(LENSBOX, _padded(lensbox_padded_loss), swept=True),
    Peer(
        LENSBOX_WITH_GRADIENT,
        _ours(lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target)),
        gives_gradient=True,
        swept=True,
    ),
    Peer(LENSBOX_JAGGED, _ours(lambda batch, pred: jagged_giou_loss(pred, *batch.packed)), swept=True),
    Peer(EAGER, _padded(lambda _: pytorch_losses.padded_loss), swept=True),
    Peer(COMPILED, _padded(lambda _: compiled(pytorch_losses.padded_loss)), slow_to_start=True, swept=True),
    Peer(
        "concatenation",
        lambda _: lambda batch, pred: pytorch_losses.concatenated_loss(pred, batch.boxes),
        no_copies="its inputs are too many tensors to be copied hundreds of times",
    ),
    Peer(
        PER_SAMPLE,
        lambda _: lambda batch, pred: pytorch_losses.looped_loss(pred, batch.boxes),
        no_graph="thousands of launches",
    ),
    Peer("article's kernel", _padded(article_loss), no_backward=_FORWARD_ONLY, swept=True),
    Peer("triton", _padded(triton_loss), swept=True),
    Peer(TORCHVISION, _torchvision(_torchvision_loss), no_graph=_WAITS),
    Peer(FLOORS[0], _floor("empty_op", False), no_backward=_FORWARD_ONLY, no_graph="it launches nothing"),
    Peer(FLOORS[1], _floor("empty_launch", True), no_backward=_FORWARD_ONLY),
]

# int32 weights hold the same values in as many bytes, and go to the kernel that reads any dtype.
WEIGHTED_LOSS_PEERS = [
    Peer(LENSBOX, _ours(_weighted(masked_giou_loss))),
    Peer(
        LENSBOX_WITH_GRADIENT,
        _ours(lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target, batch.weight)),
        gives_gradient=True,
    ),
    Peer(
        LENSBOX_ANY_WEIGHT,
        _ours(lambda batch, pred: masked_giou_loss(pred, batch.target, batch.whole_weight)),
    ),
    Peer(EAGER, lambda _: _weighted(pytorch_losses.weighted_loss)),
    Peer(COMPILED, lambda _: _weighted(compiled(pytorch_losses.weighted_loss)), slow_to_start=True),
]

# Without padding torchvision's function does the whole of the work.
UNPADDED_LOSS_PEERS = [
    *(peer for peer in LOSS_PEERS if peer.name in (LENSBOX, EAGER, COMPILED)),
    Peer(
        TORCHVISION,
        _torchvision(
            lambda ops: lambda batch, pred: ops.generalized_box_iou_loss(pred, batch.target, reduction="mean")
        ),
        no_graph=_WAITS,
    ),
]

TRANSFER_PEERS = [
    Peer(LENSBOX, _transferred(lensbox_padded_loss)),
    Peer(LENSBOX_JAGGED, _transferred_packed),
    Peer(EAGER, _transferred(lambda _: pytorch_losses.padded_loss)),
    Peer(PER_SAMPLE, _transferred_loop),
]

NMS_PEERS = [
    Peer(LENSBOX, _ours(_lensbox_nms), kept=_kept_by_lensbox),
    Peer(
        TORCHVISION_NMS,
        _torchvision(lambda ops: lambda b: ops.nms(b.boxes[0], b.scores[0], b.iou_threshold)),
        no_graph=_WAITS,
        kept=_kept_by_torchvision,
    ),
    Peer(
        TORCHVISION_BATCHED_NMS,
        _torchvision(_torchvision_batched_nms),
        no_graph=_WAITS,
        kept=_kept_by_torchvision,
    ),
]

PAIRWISE_PEERS = [
    Peer(LENSBOX, _ours(_of_pairs(pairwise_giou))),
    Peer(EAGER, lambda _: _of_pairs(pytorch_losses.pairwise)),
    Peer(COMPILED, lambda _: _of_pairs(compiled(pytorch_losses.pairwise)), slow_to_start=True),
    Peer(TORCHVISION, _torchvision(lambda ops: _of_pairs(ops.generalized_box_iou))),
]
