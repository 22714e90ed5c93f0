"""Boxes of a view: mapped with their tiles, turned with their view, and selected."""

from __future__ import annotations

import torch
from torch import Tensor

from lensbox.train.config.settings import BoxSettings
from lensbox.train.data.image_store import StoreTensors
from lensbox.train.views.box_selection import MappedBoxes, judge_boxes, select_boxes
from lensbox.train.views.draws import ViewCounts
from lensbox.train.views.rotation import Turn, turn_boxes
from lensbox.train.views.tiles import Tiles


def map_boxes(store: StoreTensors, tiles: Tiles) -> MappedBoxes:
    """Maps the boxes of every tile's photograph onto the canvas and clips them to what the tile shows of the
    photograph: where a label reaches beyond it, only padding is in view."""
    source = store.boxes[tiles.image]
    scale = torch.cat([tiles.scale, tiles.scale], dim=1)[:, None]
    offset = torch.cat([tiles.offset, tiles.offset], dim=1)[:, None]
    mapped = source * scale + offset
    low = torch.minimum(mapped[..., :2], mapped[..., 2:])  # mirrored boxes have their sides swapped
    high = torch.maximum(mapped[..., :2], mapped[..., 2:])
    corner, far = _shown(store.sizes[tiles.image], tiles)
    clipped_low = torch.minimum(torch.maximum(low, corner), far)
    clipped_high = torch.minimum(torch.maximum(high, corner), far)
    visible = (clipped_high - clipped_low).prod(2) / (high - low).prod(2).clamp(min=1e-6)

    slot = torch.arange(source.shape[1], device=source.device)
    used = slot < store.totals[tiles.image][:, None]
    labelled = slot < store.counts[tiles.image][:, None]
    whole, clipped = torch.cat([low, high], dim=2), torch.cat([clipped_low, clipped_high], dim=2)
    return MappedBoxes(whole, clipped, visible, used, labelled)


def _shown(size: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor]:
    """Corners [T, 1, 2] of what tiles show of photographs of `size` [T, 2], on the canvas."""
    start, end = tiles.offset, tiles.offset + tiles.scale * size
    corner, far = (
        torch.minimum(torch.maximum(edge, tiles.rectangle[:, :2]), tiles.rectangle[:, 2:])
        for edge in (torch.minimum(start, end), torch.maximum(start, end))
    )
    return corner[:, None], far[:, None]


def view_boxes(
    mapped: MappedBoxes, turn: Turn | None, counts: ViewCounts, settings: BoxSettings
) -> tuple[Tensor, Tensor]:
    """Joins the boxes of every four mosaic tiles, turns them with their views and selects."""
    cut, mosaics = 4 * counts.mosaic, slice(0, counts.mosaic)
    groups = []
    if counts.mosaic:
        joined = (x[:cut].reshape(counts.mosaic, -1, *x.shape[2:]) for x in mapped)
        groups.append((MappedBoxes(*joined), mosaics))
    if counts.tiles > cut:
        groups.append((MappedBoxes(*(x[cut:] for x in mapped)), slice(counts.mosaic, None)))
    parts = []
    for group, views in groups:
        if turn is not None:
            # Before selecting: what left the view must not take a slot.
            clipped, visible = turn_boxes(*group[:3], Turn(*(x[views] for x in turn)))
            group = group._replace(clipped=clipped, visible=visible)
        parts.append(select_boxes(*judge_boxes(group, settings), settings))
    targets, ignored = (torch.cat(group) for group in zip(*parts, strict=True))
    return targets, ignored
