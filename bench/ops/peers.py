"""The implementations that are timed: Lensbox's ops first, and the peers that they are compared with.

A loader takes the device and returns the function to time. It raises UnavailableError where it cannot run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from lensbox.bench import article_module
from lensbox.bench.measure import UnavailableError
from lensbox.bench.ops.inputs import LossBatch, NmsBatch
from lensbox.ops import (
    PaddedDetections,
    jagged_giou_loss,
    library_path,
    masked_giou_loss,
    masked_giou_loss_and_grad,
    padded_nms,
    read_build_info,
)

# A loss takes a LossBatch and predictions [B, M, 4] and returns the loss, or the loss and its gradient.
# NMS takes an NmsBatch.
Function = Callable[..., Any]
Load = Callable[[torch.device], Function]

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


def giou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the GIoU of xyxy boxes `[..., 4]`, as users write it: few operations on whole tensors."""
    area1 = (boxes1[..., 2] - boxes1[..., 0]) * (boxes1[..., 3] - boxes1[..., 1])
    area2 = (boxes2[..., 2] - boxes2[..., 0]) * (boxes2[..., 3] - boxes2[..., 1])
    low, high = boxes1[..., :2], boxes1[..., 2:]
    overlap = torch.minimum(high, boxes2[..., 2:]) - torch.maximum(low, boxes2[..., :2])
    overlap = overlap.clamp(min=0)
    intersection = overlap[..., 0] * overlap[..., 1]
    union = area1 + area2 - intersection
    hull = torch.maximum(high, boxes2[..., 2:]) - torch.minimum(low, boxes2[..., :2])
    enclosing = hull[..., 0] * hull[..., 1]
    return intersection / union.clamp(min=eps) - (enclosing - union) / enclosing.clamp(min=eps)


def padded_loss(pred: Tensor, target: Tensor) -> Tensor:
    """Compute every slot of `[B, M, 4]` and mask the padding afterwards."""
    valid = target[..., 3] != 0
    losses = 1 - giou(pred.float(), target.float())
    return torch.where(valid, losses, 0.0).sum() / valid.sum().clamp(min=1)


def weighted_loss(pred: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the mean loss by weights `[B, M]`, which are 0 for padding."""
    losses = 1 - giou(pred.float(), target.float())
    return (weight * losses).sum() / weight.sum().clamp(min=1)


def loss_and_gradient(function: Function, batch: LossBatch, pred: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient in `pred`, a leaf that requires a gradient."""
    result = function(batch, pred)
    if isinstance(result, Tensor):
        return result, torch.autograd.grad(result, pred)[0]
    loss, gradient = result
    return loss, gradient


def ours(function: Function) -> Load:
    """Return a loader of an op of Lensbox, which the op library must have for the device."""

    def load(device: torch.device) -> Function:
        backends = read_build_info(library_path()).backends
        if device.type not in backends:
            raise UnavailableError(f"the op library was built for {', '.join(backends)} only")
        return function

    return load


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile each shape for itself. torch.compile's own CUDA graphs are off: all are captured alike."""
    return torch.compile(function, dynamic=False, fullgraph=True)


def _padded(load: Load) -> Load:
    """Call a loss of predictions and padded targets with a batch."""

    def of_batch(device: torch.device) -> Function:
        loss = load(device)
        return lambda batch, pred: loss(pred, batch.target)

    return of_batch


def _weighted(function: Callable[..., Any]) -> Function:
    return lambda batch, pred: function(pred, batch.target, batch.weight)


def _of_article(name: str) -> Load:
    """Return a loader in `examples/article/losses.py`."""
    return lambda device: getattr(article_module("losses"), name)(device)


def _of_each_sample(name: str) -> Load:
    """Return a loss in `examples/article/losses.py` that takes the boxes of each sample."""
    return lambda _: lambda batch, pred: getattr(article_module("losses"), name)(pred, batch.boxes)


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
    Peer("lensbox", _padded(ours(masked_giou_loss))),
    Peer(
        "lensbox, one op for both",
        ours(lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target)),
        directions=(BOTH,),
    ),
    Peer("lensbox jagged", ours(lambda batch, pred: jagged_giou_loss(pred, *batch.packed))),
    Peer("eager", _padded(lambda _: padded_loss)),
    Peer("torch.compile", _padded(lambda _: compiled(padded_loss)), compiles=True),
    Peer("concatenation", _of_each_sample("concatenated_loss"), every_size=False),
    # Thousands of launches.
    Peer("per-sample loop", _of_each_sample("looped_loss"), in_graph=False, every_size=False),
    Peer("article's kernel", _padded(_of_article("article_loss")), directions=(FORWARD,)),
    Peer("triton", _padded(_of_article("triton_loss"))),
    # torchvision's loss waits for the device, which a graph cannot hold.
    Peer("torchvision", _torchvision(_torchvision_loss), in_graph=False, every_size=False),
]

WEIGHTED_LOSS_PEERS = [
    Peer("lensbox", ours(_weighted(masked_giou_loss))),
    Peer(
        "lensbox, one op for both",
        ours(lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target, batch.weight)),
        directions=(BOTH,),
    ),
    Peer("eager", lambda _: _weighted(weighted_loss)),
    Peer("torch.compile", lambda _: _weighted(compiled(weighted_loss)), compiles=True),
]

NMS_PEERS = [
    Peer("lensbox", ours(_lensbox_nms)),
    Peer("torchvision", _torchvision(_torchvision_nms), in_graph=False),
]
