"""Targets that carry a flag for boxes to ignore: packed for one copy, spread over slots on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lensbox.ops import PackedTargets


def pack_targets(boxes: Sequence[Tensor], ignore: Sequence[Tensor]) -> PackedTargets:
    """Packs per-image boxes [n, 4] and flags [n] as rows x1, y1, x2, y2, flag (1: ignore), float32.

    Within an image the boxes to find come first.
    """
    if len(boxes) != len(ignore):
        raise ValueError(f"boxes and ignore must be as many, got {len(boxes)} and {len(ignore)}")
    rows = []
    for image_boxes, image_ignore in zip(boxes, ignore, strict=True):
        row = torch.cat([image_boxes.float().reshape(-1, 4), image_ignore.float().reshape(-1, 1)], dim=1)
        rows.append(row[torch.argsort(row[:, 4], stable=True)])
    return PackedTargets.pack(rows)


def pad_targets(packed: PackedTargets, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Spreads the boxes of `pack_targets` over a fixed number of slots, without asking the device for sizes.

    Returns:
        boxes float32 [B, capacity, 4], zero in unused slots; counts int64 [B], the boxes to find;
        totals int64 [B], those and the ignored ones after them. Boxes beyond `capacity` are dropped.
    """
    values, offsets = packed.values, packed.offsets
    slots = torch.arange(capacity, device=values.device)
    lengths = offsets[1:] - offsets[:-1]
    used = slots < lengths[:, None]
    rows = (offsets[:-1, None] + slots).clamp(max=max(len(values) - 1, 0))
    if len(values) == 0:
        padded = values.new_zeros(len(lengths), capacity, 5)
    else:
        padded = values[rows] * used[..., None]
    totals = lengths.clamp(max=capacity)
    counts = (used & (padded[..., 4] == 0)).sum(1)
    return padded[..., :4].contiguous(), counts, totals
