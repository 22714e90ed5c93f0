"""Backbone and pyramid: feature maps keep the positions of the picture."""

import pytest
import torch
from small_detectors import varied_detector

from lensbox.model import FaceDetector


@pytest.fixture(scope="module")
def detector() -> FaceDetector:
    return varied_detector(spread=0.4)


@pytest.mark.parametrize(("x", "y"), [(48, 200), (150, 130)])
def test_anchors_see_the_picture_at_their_position(detector: FaceDetector, x: int, y: int) -> None:
    images = torch.full((2, 1, 256, 256), 114, dtype=torch.uint8)
    images[1, :, y - 6 : y + 6, x - 6 : x + 6] = 255
    logits = detector(images)[1]
    change = (logits[1] - logits[0]).abs()
    near = (detector.anchor_centers - torch.tensor([x, y])).abs().amax(dim=1) < 48
    first = 0
    for cells in (4096, 1024, 256, 64):
        level = slice(first, first + cells)
        assert change[level][near[level]].mean() > 1.3 * change[level][~near[level]].mean()
        first += cells
