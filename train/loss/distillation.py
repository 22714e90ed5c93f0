"""Distillation: a small detector also learns what larger ones, its teachers, predict for the same views.

Labels say face or no face; a teacher says how sure one can be, and where it would put the box, at every
anchor (Hinton et al. 2015, arXiv:1503.02531).
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from lensbox.ops import masked_giou_loss
from lensbox.train.config.settings import LossSettings
from lensbox.train.loss.teachers import Taught


def distillation_loss(boxes: Tensor, logits: Tensor, taught: Taught, settings: LossSettings) -> Tensor:
    """Loss of a student's predictions against its teachers', a scalar.

    Classification is the varifocal loss of `detection_loss`, with the teachers' score as soft target at every
    anchor. Boxes learn the teachers' by GIoU, weighted by score²: anchors without a face are thousands, and
    their small scores must not add up.

    Args:
        boxes: float32 [B, A, 4]. logits: float32 [B, A].
    """
    target = taught.scores
    score = logits.detach().sigmoid()
    focus = target + (1 - target) * settings.negative_weight * score**settings.focal_power
    cross_entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    classification = (focus * cross_entropy).sum() / target.sum().clamp(min=1)
    box = masked_giou_loss(boxes, taught.boxes, target**2)
    return classification + settings.box_weight * box
