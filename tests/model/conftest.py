"""A small detector and canvases for it."""

import pytest
import torch
from small_detectors import varied_detector
from torch import nn

from lensbox.model import FaceDetector


@pytest.fixture(scope="session")
def detector() -> FaceDetector:
    return varied_detector(spread=0.4)


@pytest.fixture(scope="session")
def canvases() -> torch.Tensor:
    """uint8 [2, 1, 256, 256] with structure at every scale."""
    generator = torch.Generator().manual_seed(1)
    levels = [torch.rand(2, 1, side, side, generator=generator) for side in (4, 16, 64, 256)]
    enlarged = [nn.functional.interpolate(level, 256, mode="bilinear") for level in levels]
    mixed = sum(enlarged, torch.zeros(())) / len(levels)
    return ((mixed - mixed.min()) / (mixed.max() - mixed.min()) * 255).to(torch.uint8)
