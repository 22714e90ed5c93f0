"""A small detector whose predictions differ from anchor to anchor, as a trained one's do."""

import pytest
import torch
from torch import nn

from lensbox.model import DetectorConfig, FaceDetector

TINY = DetectorConfig(stem_width=4, widths=(8, 8, 16, 16), depths=(1, 1, 1, 1), pyramid_width=8)


@pytest.fixture(scope="session")
def detector() -> FaceDetector:
    """In eval mode, with batch norm statistics that are not the initial ones."""
    torch.manual_seed(0)
    detector = FaceDetector(TINY)
    for layer in detector.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.3, 0.3)
    for head in (detector.head4, detector.head8, detector.head16, detector.head32):
        nn.init.normal_(head.prediction.weight, std=0.4)
    with torch.no_grad():
        detector(torch.randint(0, 256, (4, 1, 256, 256)).float())
    return detector.eval()


@pytest.fixture(scope="session")
def canvases() -> torch.Tensor:
    """uint8 [2, 1, 256, 256] with structure at every scale."""
    generator = torch.Generator().manual_seed(1)
    levels = [torch.rand(2, 1, side, side, generator=generator) for side in (4, 16, 64, 256)]
    mixed = sum(nn.functional.interpolate(level, 256, mode="bilinear") for level in levels) / len(levels)
    return ((mixed - mixed.min()) / (mixed.max() - mixed.min()) * 255).to(torch.uint8)
