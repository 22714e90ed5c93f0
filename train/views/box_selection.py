"""Decides which boxes of a view are targets and which are ignored, and puts them into fixed slots."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.train.config.settings import BoxSettings


class MappedBoxes(NamedTuple):
    """Boxes of N tiles or views in C slots: whole float32 [N, C, 4], xyxy canvas pixels; clipped, the part of
    it in view; visible [N, C], the share in view; used, labelled bool [N, C]: holds a box, one to find."""

    whole: Tensor
    clipped: Tensor
    visible: Tensor
    used: Tensor
    labelled: Tensor


def judge_boxes(mapped: MappedBoxes, settings: BoxSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Decides by the share in view and the height which boxes are targets and which are ignored.

    Returns:
        boxes float32 [N, C, 4], clipped; find bool [N, C]; ignore bool [N, C]. A box that is neither is
        dropped.
    """
    boxes, visible, used = mapped.clipped, mapped.visible, mapped.used
    tall = boxes[..., 3] - boxes[..., 1] >= settings.min_target_height
    find = used & mapped.labelled & tall & (visible >= settings.keep_visible)
    return boxes, find, used & ~find & (visible > 0) & (visible >= settings.ignore_visible)


def select_boxes(boxes: Tensor, find: Tensor, ignore: Tensor, settings: BoxSettings) -> tuple[Tensor, Tensor]:
    """Gathers the largest boxes to find and to ignore into fixed slots; what a crowd has beyond them
    (the smallest ones) joins the ignored.

    Args:
        boxes: float32 [N, C, 4], xyxy canvas pixels. find, ignore: bool [N, C].

    Returns:
        targets float32 [N, max_targets, 4]; ignored float32 [N, max_ignored, 4]; largest first, unused slots
        zero.
    """
    area = (boxes[..., 2:] - boxes[..., :2]).prod(2)
    value, order = torch.where(find, area, -1.0).topk(settings.max_targets, dim=1)
    targets = _gather(boxes, order, value > 0)
    surplus = find & ~torch.zeros_like(find).scatter(1, order, value > 0)
    value, order = torch.where(ignore | surplus, area, -1.0).topk(settings.max_ignored, dim=1)
    return targets, _gather(boxes, order, value > 0)


def _gather(boxes: Tensor, order: Tensor, used: Tensor) -> Tensor:
    return boxes.gather(1, order[..., None].expand(-1, -1, 4)) * used[..., None]
