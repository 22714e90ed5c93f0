"""Canvases become what a detector gets."""

import torch

from lensbox.common.canvas import Canvas
from lensbox.model.protocol import Normalise


def test_levels_are_normalised_by_channel_or_kept() -> None:
    levels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    kept = Normalise(Canvas(1, 1, channels=3))(levels)
    assert kept.dtype == torch.uint8
    numbers = Normalise(Canvas(1, 1, channels=3, mean=(0.5, 0.2, 0), std=(0.5, 1, 2)))(levels)
    torch.testing.assert_close(numbers.flatten(), torch.tensor([-1, 0, 0.5]))
