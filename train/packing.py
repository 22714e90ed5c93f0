"""Packed targets: the boxes of many images in one tensor, so that a batch is one copy to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedTargets:
    """Boxes of B images laid end to end.

    Attributes:
        values: float32 [T, 5]: x1, y1, x2, y2 in pixels, and 1 for a box to ignore, else 0.
        offsets: int64 [B + 1]; image i has the rows offsets[i] to offsets[i + 1].
    """

    values: Tensor
    offsets: Tensor

    @staticmethod
    def pack(boxes: Sequence[Tensor], ignore: Sequence[Tensor]) -> PackedTargets:
        """Packs per-image boxes [n, 4] and flags [n]; within an image the boxes to find come first."""
        if len(boxes) != len(ignore):
            raise ValueError(f"boxes and ignore must be as many, got {len(boxes)} and {len(ignore)}")
        rows, offsets = [torch.zeros(0, 5)], [0]
        for image_boxes, image_ignore in zip(boxes, ignore, strict=True):
            row = torch.cat([image_boxes.float().reshape(-1, 4), image_ignore.float().reshape(-1, 1)], dim=1)
            rows.append(row[torch.argsort(row[:, 4], stable=True)])
            offsets.append(offsets[-1] + len(row))
        return PackedTargets(torch.cat(rows), torch.tensor(offsets, dtype=torch.int64))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PackedTargets:
        return PackedTargets(
            self.values.to(device, non_blocking=non_blocking),
            self.offsets.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> PackedTargets:
        """Called by a DataLoader with pin_memory=True."""
        return PackedTargets(self.values.pin_memory(), self.offsets.pin_memory())

    def pad(self, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """Spreads the boxes over a fixed number of slots, without asking the device for sizes.

        Returns:
            boxes float32 [B, capacity, 4], zero in unused slots; counts int64 [B], the boxes to find;
            totals int64 [B], those and the ignored ones after them. Boxes beyond `capacity` are dropped.
        """
        slots = torch.arange(capacity, device=self.values.device)
        lengths = self.offsets[1:] - self.offsets[:-1]
        used = slots < lengths[:, None]
        rows = (self.offsets[:-1, None] + slots).clamp(max=max(len(self.values) - 1, 0))
        if len(self.values) == 0:
            padded = self.values.new_zeros(len(lengths), capacity, 5)
        else:
            padded = self.values[rows] * used[..., None]
        totals = lengths.clamp(max=capacity)
        counts = (used & (padded[..., 4] == 0)).sum(1)
        return padded[..., :4].contiguous(), counts, totals
