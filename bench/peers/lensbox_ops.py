"""Lensbox's own ops, as a user calls them."""

import torch
from torch import Tensor

from lensbox.bench.inputs import LossBatch, NmsBatch, PairwiseBatch
from lensbox.bench.peers.peer import Loss, Nms, PackedLoss, PaddedLoss, Pairwise, UnavailableError
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


def load_loss(device: torch.device) -> Loss:
    _require_backend(device)
    return lambda batch, pred: masked_giou_loss(pred, batch.target)


def load_weighted_loss(device: torch.device) -> Loss:
    """As training calls it: a float32 weight for each slot."""
    _require_backend(device)
    return lambda batch, pred: masked_giou_loss(pred, batch.target, batch.weight)


def load_loss_and_gradient(device: torch.device) -> Loss:
    """Both from one op, which a step written by hand calls in place of autograd."""
    _require_backend(device)
    return lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target)


def load_weighted_loss_and_gradient(device: torch.device) -> Loss:
    _require_backend(device)
    return lambda batch, pred: masked_giou_loss_and_grad(pred.detach(), batch.target, batch.weight)


def load_loss_of_any_weight(device: torch.device) -> Loss:
    """The same with weights of a dtype for which there is no kernel of its own: the one that reads any."""
    _require_backend(device)
    return lambda batch, pred: masked_giou_loss(pred, batch.target, batch.whole_weight)


def load_jagged_loss(device: torch.device) -> Loss:
    """For targets that were never padded."""
    _require_backend(device)
    return lambda batch, pred: jagged_giou_loss(pred, *batch.packed)


def load_padded_loss(device: torch.device) -> PaddedLoss:
    _require_backend(device)
    return masked_giou_loss


def load_packed_loss(device: torch.device) -> PackedLoss:
    _require_backend(device)

    def loss(pred: Tensor, packed: PackedTargets) -> Tensor:
        return jagged_giou_loss(pred, packed.values, packed.offsets)

    return loss


def load_transfer(device: torch.device) -> Loss:
    """Targets padded by the data loader, one copy from pinned memory, then the loss."""
    _require_backend(device)
    return lambda batch, pred: masked_giou_loss(pred, batch.host_target.to(device, non_blocking=True))


def load_jagged_transfer(device: torch.device) -> Loss:
    """Targets packed by the data loader, one copy from pinned memory, then the loss."""
    _require_backend(device)

    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        packed = batch.host_packed.to(device, non_blocking=True)
        return jagged_giou_loss(pred, packed.values, packed.offsets)

    return loss


def load_nms(device: torch.device) -> Nms:
    """Room for every box in the output: nothing that torchvision's function returns is left out."""
    _require_backend(device)

    def nms(batch: NmsBatch) -> object:
        count = batch.scores.shape[1]
        return padded_nms(batch.boxes, batch.scores, batch.iou_threshold, -1.0, count, count)

    return nms


def kept_by_nms(batch: NmsBatch, result: object) -> Tensor:
    assert isinstance(result, PaddedDetections)
    kept = torch.zeros_like(batch.scores, dtype=torch.int32)
    # Unused slots hold index -1: they add nothing to box 0.
    kept.scatter_add_(1, result.indices.clamp(min=0), (result.indices >= 0).int())
    return kept > 0


def load_pairwise(device: torch.device) -> Pairwise:
    _require_backend(device)

    def pairwise(batch: PairwiseBatch) -> Tensor:
        return pairwise_giou(batch.boxes1, batch.boxes2)

    return pairwise


def _require_backend(device: torch.device) -> None:
    backends = read_build_info(library_path()).backends
    if device.type not in backends:
        raise UnavailableError(f"the op library was built for {', '.join(backends)} only")
