"""The training loss: soft-target classification and `lensbox.ops`' GIoU loss, against labels and teachers.

Labels say face or no face; a teacher says how sure one can be, and where it would put the box, at every
anchor (distillation: Hinton et al. 2015, arXiv:1503.02531).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from lensbox.ops import masked_giou_loss_and_grad
from lensbox.ops.boxes import with_gradient
from lensbox.train.loss.assignment import assign, ignored_cells
from lensbox.train.settings import TrainConfig

NEGATIVE_WEIGHT, FOCAL_POWER = 0.75, 2.0  # a negative cell of score p has the weight 0.75 p²
BOX_WEIGHT = 2.0

Predict = Callable[[Tensor], tuple[Tensor, Tensor]]  # of images; returns boxes and logits


class TeacherPredictions(NamedTuple):
    """Predictions of teachers for a batch: boxes float32 [B, A, 4], xyxy in canvas pixels; scores float32
    [B, A], 0 to 1."""

    boxes: Tensor
    scores: Tensor


class Losses(NamedTuple):
    """Scalar losses and counts.

    loss: their weighted sum, with gradient.
    classification, box, distillation: parts of the loss; distillation is 0 without teachers.
    positives: mean number of positive cells per image.
    """

    loss: Tensor
    classification: Tensor
    box: Tensor
    distillation: Tensor
    positives: Tensor


def detection_loss(
    boxes: Tensor,
    logits: Tensor,
    targets: Tensor,
    ignored: Tensor,
    config: TrainConfig,
    taught: TeacherPredictions | None = None,
) -> Losses:
    """Return the loss of predictions against targets, and against what teachers predict, if there are any.

    A positive cell learns its quality q as score, a negative one 0. Both parts are divided by the sum of q
    over the batch.

    boxes: float32 [B, A, 4]. logits: float32 [B, A].
    targets: float32 [B, M, 4], slots with y2 = 0 unused. ignored: float32 [B, I, 4] likewise.
    taught: the teachers' predictions for the same images.
    """
    batch = boxes.shape[0]
    pairs = assign(boxes.detach(), logits.detach(), targets)
    flat = pairs.cells.reshape(batch, -1)
    pair_quality = pairs.quality.reshape(batch, -1)

    cells = torch.zeros_like(logits)
    quality = cells.scatter_reduce(1, flat, pair_quality, "amax")
    positive = cells.scatter_reduce(1, flat, pairs.positive.reshape(batch, -1).float(), "amax")
    classification = varifocal_loss(logits, quality, (1 - positive) * (1 - ignored_cells(ignored)))

    predicted = boxes.gather(1, flat[..., None].expand(-1, -1, 4))
    expected = targets[:, :, None].expand(-1, -1, pairs.cells.shape[2], -1).reshape(batch, -1, 4)
    # A weight of 0 keeps unused slots and lost pairs out.
    box = giou_loss(predicted, expected.contiguous(), pair_quality)
    loss = classification + BOX_WEIGHT * box
    distillation = torch.zeros_like(loss)
    if taught is not None:
        distillation = distillation_loss(boxes, logits, taught)
        loss = config.label_weight * loss + config.distill_weight * distillation
    parts = (classification.detach(), box.detach(), distillation.detach())
    return Losses(loss, *parts, positive.sum() / batch)


def distillation_loss(boxes: Tensor, logits: Tensor, taught: TeacherPredictions) -> Tensor:
    """Return the loss of a student's predictions against its teachers', a scalar.

    At every anchor, the teachers' score is the soft target of classification. Boxes learn the teachers' by
    GIoU, weighted by score²: anchors without a face are thousands, and their small scores must not add up.

    boxes: float32 [B, A, 4]. logits: float32 [B, A].
    """
    classification = varifocal_loss(logits, taught.scores, 1 - taught.scores)
    return classification + BOX_WEIGHT * giou_loss(boxes, taught.boxes, taught.scores**2)


def varifocal_loss(logits: Tensor, quality: Tensor, background: Tensor) -> Tensor:
    """Return the loss of scores p against targets q, a scalar (Zhang et al. 2021, arXiv:2008.13367).

    The weight of a cell is q + background · NEGATIVE_WEIGHT · p^FOCAL_POWER. The weighted sum is divided by
    the sum of q.

    logits, quality, background: float32 [B, A].
    """
    focus = quality + background * NEGATIVE_WEIGHT * logits.detach().sigmoid() ** FOCAL_POWER
    cross_entropy = F.binary_cross_entropy_with_logits(logits, quality, reduction="none")
    return (focus * cross_entropy).sum() / quality.sum().clamp(min=1)


def giou_loss(pred: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean of 1 - GIoU, differentiable in `pred` only.

    The values equal `masked_giou_loss`'s; loss and gradient take one launch on a GPU instead of three.

    pred, target: float32 [..., 4], xyxy. weight: float32 [...]; where it is 0, `pred` may hold anything.
    """
    with torch.no_grad():
        loss, gradient = masked_giou_loss_and_grad(pred, target, weight)
    return with_gradient(pred, loss, gradient)


@torch.no_grad()
def teach(teachers: Sequence[Sequence[Predict]], images: Tensor) -> TeacherPredictions:
    """Return the mean of the teachers' predictions for images float32 [B, 1, 256, 256], 0 to 255.

    Of a set of K teachers, teacher b mod K predicts for image b, whose photographs belong to this fold. Boxes
    are weighted by scores: a teacher that sees no face at an anchor has no influence on its box.
    """
    predictions = []
    for group in teachers:
        parts = [teacher(images[index :: len(group)]) for index, teacher in enumerate(group)]
        joined = (torch.stack(values, dim=1).flatten(0, 1) for values in zip(*parts, strict=True))
        predictions.append(parts[0] if len(parts) == 1 else tuple(joined))
    boxes = torch.stack([boxes.float() for boxes, _ in predictions])
    scores = torch.stack([logits.float().sigmoid() for _, logits in predictions])
    weight = scores / scores.sum(0).clamp(min=1e-6)
    return TeacherPredictions((weight[..., None] * boxes).sum(0), scores.mean(0))
