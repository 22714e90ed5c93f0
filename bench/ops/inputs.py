"""The tensors that cases are made of.

Predictions have odd coordinates and targets even ones, whole numbers up to 255: bfloat16, uint8 and every
wider dtype hold them exactly, and no gradient depends on how a tie is split.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lensbox.ops import PackedTargets

_SIDE = 256  # of the pictures that the boxes lie in: their coordinates fit uint8


@dataclass(frozen=True)
class LossBatch:
    """Predictions and padded targets, on one device.

    pred: `[B, M, 4]`, floating-point, without gradient.
    target: `[B, M, 4]`; the first counts[i] slots of sample i are boxes, the rest is zeros.
    counts: boxes of each sample.
    """

    pred: Tensor
    target: Tensor
    counts: tuple[int, ...]

    @cached_property
    def boxes(self) -> list[Tensor]:
        """Return the targets before padding, on the device: `[counts[i], 4]` of each sample."""
        return [boxes.to(self.target.device) for boxes in self.host_boxes]

    @cached_property
    def host_boxes(self) -> list[Tensor]:
        """Return the targets before padding, on the host, as a data loader does."""
        host = self.target.cpu()
        return [padded[:count].clone() for padded, count in zip(host, self.counts, strict=True)]

    @cached_property
    def packed(self) -> tuple[Tensor, Tensor]:
        """Return the packed targets on the device, `[N, 4]`, and their offsets, `[B + 1]`."""
        packed = PackedTargets.pack(self.host_boxes).to(self.target.device)
        return packed.values, packed.offsets

    @cached_property
    def weight(self) -> Tensor:
        """Return weights, float32 `[B, M]`: 1, 2 or 3 for a slot that holds a box, 0 for padding."""
        valid = self.target[..., 3] != 0
        kinds = torch.arange(valid.numel(), device=valid.device).view_as(valid) % 3 + 1
        return kinds.float() * valid


@dataclass(frozen=True)
class NmsBatch:
    """boxes `[B, N, 4]` float32 of whole numbers, scores `[B, N]` float32, all different in an image."""

    boxes: Tensor
    scores: Tensor
    iou_threshold: float = 0.5

    @cached_property
    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes, scores and image indices of all boxes in one list, as torchvision takes them."""
        batch, count = self.scores.shape
        images = torch.arange(batch, device=self.boxes.device).repeat_interleave(count)
        return self.boxes.flatten(0, 1), self.scores.flatten(), images


def make_loss_batch(
    batch: int,
    slots: int,
    fill: float | None,
    pred_dtype: torch.dtype,
    target_dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
) -> LossBatch:
    """Return a random batch.

    fill: share of valid slots. None: floor(|N(0, 3)|) boxes per sample as in the article, at most `slots`.
    """
    generator = torch.Generator().manual_seed(seed)
    if fill is None:
        counts = torch.randn(batch, generator=generator).mul(3).abs().floor().clamp(max=slots).int()
    else:
        counts = (torch.rand(batch, slots, generator=generator) < fill).sum(1)
    pred = _random_corners(batch, slots, generator) + 1
    target = _random_corners(batch, slots, generator)
    padding = torch.arange(slots) >= counts[:, None]
    target[padding] = 0
    return LossBatch(pred.to(device, pred_dtype), target.to(device, target_dtype), tuple(counts.tolist()))


def make_nms_batch(batch: int, count: int, device: torch.device) -> NmsBatch:
    """Return boxes scattered over a canvas of 640 by 640, with sides of 8 to 135 pixels.

    Coordinates are whole numbers, so that every implementation computes the same overlaps.
    """
    generator = torch.Generator().manual_seed(0)
    low = torch.randint(0, 504, (batch, count, 2), generator=generator)
    side = torch.randint(8, 136, (batch, count, 2), generator=generator)
    ranks = torch.rand(batch, count, generator=generator).argsort(1)
    boxes = torch.cat([low, low + side], -1)
    return NmsBatch(boxes.to(device, torch.float32), ((ranks + 1) / (count + 1)).to(device))


def _random_corners(batch: int, slots: int, generator: torch.Generator) -> Tensor:
    """Return boxes `[batch, slots, 4]` with even coordinates from 0 to 254 and sides of at least 2."""
    low = torch.randint(0, _SIDE // 2 - 1, (batch, slots, 2), generator=generator, dtype=torch.int16)
    room = _SIDE // 2 - 1 - low
    share = torch.rand(batch, slots, 2, generator=generator)
    side = 1 + (share * room).floor().clamp(max=room - 1).to(torch.int16)
    return 2 * torch.cat([low, low + side], -1)
