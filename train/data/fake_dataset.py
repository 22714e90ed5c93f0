"""The article's random data: noise images with a random number of random boxes, for benchmarks and tests."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lensbox.model.config import CANVAS_SIZE


class FakeDataset(Dataset[tuple[Tensor, Tensor]]):
    """`length` samples: image uint8 [1, 256, 256], and boxes float32 [n, 4] (xyxy, pixels, at least 1 wide
    and high) with n = floor(|N(0, 3)|), at most `max_boxes`. Sample i depends on `seed` and i alone."""

    def __init__(self, length: int, max_boxes: int = 256, seed: int = 0) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        self.length, self.max_boxes, self.seed = length, max_boxes, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.length:
            raise IndexError(f"index must be from 0 to {self.length - 1}, got {index}")
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        image = torch.randint(0, 256, (1, CANVAS_SIZE, CANVAS_SIZE), generator=generator, dtype=torch.uint8)
        count = int(torch.randn((), generator=generator).mul(3).abs().floor())
        corners = torch.rand(min(count, self.max_boxes), 2, 2, generator=generator) * (CANVAS_SIZE - 1)
        low, high = corners.amin(1).floor(), corners.amax(1).floor() + 1
        return image, torch.cat([low, high], dim=1)
