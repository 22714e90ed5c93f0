"""The canvases on which an exported file has to find what the detector finds."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lensbox.export.self_test_images import draw_faces, draw_scene
from lensbox.model import Detector
from lensbox.ops.canvas import fit_to_canvases

BATCHES = (1, 2, 7, 32)

_DRAWN = 6  # of each kind
_NOISE = 3


def proof_canvases(detector: Detector, pictures: Sequence[Tensor], least: int = max(BATCHES)) -> Tensor:
    """uint8 [N, c, h, w], N at least `least`: the pictures, drawn ones, and noise.

    pictures: uint8 [C, H, W].
    """
    specification = detector.specification
    size = specification.height, specification.width
    drawn = [draw_faces(seed) for seed in range(_DRAWN)] + [draw_scene(seed, *size) for seed in range(_DRAWN)]
    fitted = fit_pictures(detector, [*pictures, *drawn])
    generator = torch.Generator().manual_seed(0)
    shape = (_NOISE, specification.channels, *size)
    noise = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    canvases = torch.cat([fitted, noise])
    # Mirrored copies fill the largest batch: other canvases for the same price.
    while len(canvases) < least:
        canvases = torch.cat([canvases, canvases[: least - len(canvases)].flip(3)])
    return canvases


def fit_pictures(detector: Detector, pictures: Sequence[Tensor]) -> Tensor:
    """The pictures, uint8 [C, H, W], on canvases of the detector's, uint8 [N, c, h, w]."""
    specification = detector.specification
    height, width, channels = specification.height, specification.width, specification.channels
    canvases, _ = fit_to_canvases(list(pictures), None, height, width, channels, specification.fill)
    return canvases
