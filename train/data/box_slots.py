"""Boxes of photographs in a fixed number of slots each, as views draw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class BoxSlots(NamedTuple):
    """Boxes of B photographs in C slots each.

    Attributes:
        boxes: float32 [B, C, 4], xyxy; boxes to find first, then those to ignore, zero in unused slots.
        counts: int64 [B], boxes to find.
        totals: int64 [B], boxes to find and to ignore.
    """

    boxes: Tensor
    counts: Tensor
    totals: Tensor


def fill_slots(boxes: Sequence[Tensor], ignore: Sequence[Tensor], capacity: int) -> BoxSlots:
    """Puts boxes [n, 4] with flags bool [n] (to ignore) of each photograph into `capacity` slots, on the CPU.

    Boxes to find keep their order, and so do those to ignore. What is beyond `capacity` is dropped.

    Raises:
        ValueError: boxes and flags are not of as many photographs.
    """
    if len(boxes) != len(ignore):
        raise ValueError(f"boxes and ignore must be as many, got {len(boxes)} and {len(ignore)}")
    slots = torch.zeros(len(boxes), capacity, 4)
    counts, totals = [], []
    for row, (image_boxes, image_ignore) in enumerate(zip(boxes, ignore, strict=True)):
        order = torch.argsort(image_ignore.byte(), stable=True)[:capacity]
        slots[row, : len(order)] = image_boxes[order]
        counts.append(int((~image_ignore[order]).sum()))
        totals.append(len(order))
    return BoxSlots(slots, torch.tensor(counts), torch.tensor(totals))
