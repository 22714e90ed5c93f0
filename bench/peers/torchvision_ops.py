"""torchvision's functions, used as its documentation shows."""

from types import ModuleType

import torch
from torch import Tensor

from lensbox.bench.inputs import LossBatch, NmsBatch, PairwiseBatch
from lensbox.bench.peers.peer import Loss, Nms, Pairwise, UnavailableError


def load_loss(_: torch.device) -> Loss:
    ops = _torchvision_ops()

    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        valid = batch.target[..., 3] != 0
        losses = ops.generalized_box_iou_loss(pred, batch.target.float(), reduction="none")
        out: Tensor = torch.where(valid, losses, 0.0).sum() / valid.sum().clamp(min=1)
        return out

    return loss


def load_unpadded_loss(_: torch.device) -> Loss:
    """For targets without padding: the mean that torchvision computes itself."""
    ops = _torchvision_ops()

    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        out: Tensor = ops.generalized_box_iou_loss(pred, batch.target, reduction="mean")
        return out

    return loss


def load_nms(_: torch.device) -> Nms:
    """One image at a time is all that torchvision's nms takes."""
    ops = _torchvision_ops()
    return lambda batch: ops.nms(batch.boxes[0], batch.scores[0], batch.iou_threshold)


def load_batched_nms(_: torch.device) -> Nms:
    ops = _torchvision_ops()

    def nms(batch: NmsBatch) -> object:
        boxes, scores, images = batch.flat
        return ops.batched_nms(boxes, scores, images, batch.iou_threshold)

    return nms


def kept_by_nms(batch: NmsBatch, result: object) -> Tensor:
    assert isinstance(result, Tensor)
    kept = torch.zeros_like(batch.scores, dtype=torch.bool)
    kept.view(-1)[result] = True
    return kept


def load_pairwise(_: torch.device) -> Pairwise:
    ops = _torchvision_ops()

    def pairwise(batch: PairwiseBatch) -> Tensor:
        out: Tensor = ops.generalized_box_iou(batch.boxes1, batch.boxes2)
        return out

    return pairwise


def _torchvision_ops() -> ModuleType:
    try:
        # An installed torchvision built for another torch fails with a RuntimeError or OSError.
        import torchvision.ops as ops  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError, OSError) as error:
        raise UnavailableError(f"torchvision cannot be imported: {str(error).splitlines()[0]}") from error
    assert isinstance(ops, ModuleType)
    return ops
