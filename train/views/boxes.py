"""Map the boxes of a view, choose which are targets and which are ignored, and put them into fixed slots."""

from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.train.photographs import StoreTensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views.changes import Turn, turn_boxes
from lensbox.train.views.tiles import TileMaps, view_counts


class MappedBoxes(NamedTuple):
    """Boxes of N tiles or views in C slots: whole float32 [N, C, 4], xyxy canvas pixels; clipped, the part of
    it in view; visible [N, C], the share in view; used, labelled bool [N, C]: holds a box, one to find."""

    whole: Tensor
    clipped: Tensor
    visible: Tensor
    used: Tensor
    labelled: Tensor


def judge_boxes(mapped: MappedBoxes, config: TrainConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Decide by the share in view and the height which boxes are targets and which are ignored.

    Returns boxes float32 [N, C, 4], clipped; find bool [N, C]; ignore bool [N, C]. A box that is neither is
    dropped.
    """
    boxes, visible, used = mapped.clipped, mapped.visible, mapped.used
    tall = boxes[..., 3] - boxes[..., 1] >= config.min_target_height
    find = used & mapped.labelled & tall & (visible >= config.keep_visible)
    return boxes, find, used & ~find & (visible > 0) & (visible >= config.ignore_visible)


def select_boxes(boxes: Tensor, find: Tensor, ignore: Tensor, config: TrainConfig) -> tuple[Tensor, Tensor]:
    """Gather the largest boxes to find and to ignore into fixed slots.

    The smallest boxes to find of a crowd that has more than `max_targets` are ignored.

    boxes: float32 [N, C, 4], xyxy canvas pixels. find, ignore: bool [N, C].
    Returns targets float32 [N, max_targets, 4]; ignored float32 [N, max_ignored, 4]; largest first, unused
    slots zero.
    """
    area = (boxes[..., 2:] - boxes[..., :2]).prod(2)
    value, order = torch.where(find, area, -1.0).topk(config.max_targets, dim=1)
    targets = _gather(boxes, order, value > 0)
    surplus = find & ~torch.zeros_like(find).scatter(1, order, value > 0)
    value, order = torch.where(ignore | surplus, area, -1.0).topk(config.max_ignored, dim=1)
    return targets, _gather(boxes, order, value > 0)


def _gather(boxes: Tensor, order: Tensor, used: Tensor) -> Tensor:
    return boxes.gather(1, order[..., None].expand(-1, -1, 4)) * used[..., None]


def map_boxes(store: StoreTensors, tiles: TileMaps) -> MappedBoxes:
    """Map the boxes of every tile's photograph onto the canvas; clip them to the visible part of it.

    The part of a label beyond the photograph is padding, and not in view.
    """
    source = store.boxes[tiles.image]
    mapped = source * tiles.scale.repeat(1, 2)[:, None] + tiles.offset.repeat(1, 2)[:, None]
    low = torch.minimum(mapped[..., :2], mapped[..., 2:])  # mirrored boxes have their sides swapped
    high = torch.maximum(mapped[..., :2], mapped[..., 2:])
    # The visible part of the photograph, on the canvas.
    start, end = tiles.offset, tiles.offset + tiles.scale * store.sizes[tiles.image]
    corner, far = (
        edge.clamp(tiles.rectangle[:, :2], tiles.rectangle[:, 2:])[:, None]
        for edge in (torch.minimum(start, end), torch.maximum(start, end))
    )
    clipped_low, clipped_high = low.clamp(corner, far), high.clamp(corner, far)
    visible = (clipped_high - clipped_low).prod(2) / (high - low).prod(2).clamp(min=1e-6)

    slot = torch.arange(source.shape[1], device=source.device)
    used = slot < store.totals[tiles.image][:, None]
    labelled = slot < store.counts[tiles.image][:, None]
    whole, clipped = torch.cat([low, high], dim=2), torch.cat([clipped_low, clipped_high], dim=2)
    return MappedBoxes(whole, clipped, visible, used, labelled)


def view_boxes(mapped: MappedBoxes, turn: Turn | None, config: TrainConfig) -> tuple[Tensor, Tensor]:
    """Join the boxes of every four mosaic tiles, turn them with their views and select."""
    mosaics = view_counts(config).mosaic
    cut, groups = 4 * mosaics, []
    if mosaics:
        joined = (x[:cut].reshape(mosaics, -1, *x.shape[2:]) for x in mapped)
        groups.append((MappedBoxes(*joined), slice(mosaics)))
    if mosaics < config.batch_size:
        groups.append((MappedBoxes(*(x[cut:] for x in mapped)), slice(mosaics, None)))
    parts = []
    for group, views in groups:
        if turn is not None:
            # Before selecting: a box that left the view must not take a slot.
            clipped, visible = turn_boxes(*group[:3], Turn(*(x[views] for x in turn)))
            group = group._replace(clipped=clipped, visible=visible)
        parts.append(select_boxes(*judge_boxes(group, config), config))
    targets, ignored = (torch.cat(group) for group in zip(*parts, strict=True))
    return targets, ignored
