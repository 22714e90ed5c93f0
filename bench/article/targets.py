"""How the boxes of a batch get to the device: as a list of tensors, padded, or packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from lensbox.ops import PackedTargets

SLOTS = 256  # boxes that the net predicts for a sample, and the most that a sample may have

Targets = TypeVar("Targets")


@dataclass(frozen=True)
class Layout(Generic[Targets]):
    """What is done with the boxes of all samples, `[n, 4]` each.

    collate: on the host, by the workers of a data loader; not timed.
    pin: to page-locked memory, likewise.
    move: to a device, asynchronously where they are pinned. A part of the phase "copy data".
    """

    collate: Callable[[Sequence[Tensor]], Targets]
    pin: Callable[[Targets], Targets]
    move: Callable[[Targets, torch.device], Targets]


def _pad(boxes: Sequence[Tensor]) -> Tensor:
    """`[B, SLOTS, 4]`; the slots after the boxes of a sample are zeros."""
    padded = torch.zeros(len(boxes), SLOTS, 4, dtype=boxes[0].dtype)
    for slots, of_sample in zip(padded, boxes, strict=True):
        slots[: len(of_sample)] = of_sample
    return padded


LISTED: Layout[list[Tensor]] = Layout(
    collate=list,
    pin=lambda boxes: [of_sample.pin_memory() for of_sample in boxes],
    move=lambda boxes, device: [of_sample.to(device, non_blocking=True) for of_sample in boxes],
)
PADDED: Layout[Tensor] = Layout(
    collate=_pad,
    pin=torch.Tensor.pin_memory,
    move=lambda padded, device: padded.to(device, non_blocking=True),
)
PACKED: Layout[PackedTargets] = Layout(
    collate=PackedTargets.pack,
    pin=PackedTargets.pin_memory,
    move=lambda packed, device: packed.to(device, non_blocking=True),
)
