"""The article's random data."""

import torch
from torch import Tensor
from torch.utils.data import Dataset

SIDE = 256  # of an image, pixels
SLOTS = 256  # boxes that the net predicts per sample, and the most that a sample may have


class FakeDataset(Dataset[tuple[Tensor, Tensor]]):
    """Images of noise with random boxes; sample i depends on `seed` and i alone.

    A sample is an image, uint8 [1, 256, 256], and boxes, float32 [n, 4] (xyxy, pixels, at least 1 wide and
    high) with n = floor(|N(0, 3)|), at most SLOTS.
    """

    def __init__(self, length: int, seed: int = 0) -> None:
        self.length, self.seed = length, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.length:
            raise IndexError(f"index must be from 0 to {self.length - 1}, got {index}")
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        image = torch.randint(0, 256, (1, SIDE, SIDE), generator=generator, dtype=torch.uint8)
        count = int(torch.randn((), generator=generator).mul(3).abs().floor())
        corners = torch.rand(min(count, SLOTS), 2, 2, generator=generator) * (SIDE - 1)
        return image, torch.cat([corners.amin(1).floor(), corners.amax(1).floor() + 1], dim=1)
