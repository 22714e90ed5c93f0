"""Drawn pictures for self-tests and comparisons: cartoon faces and coloured things on a noisy background."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.model import Detector, DetectorSpec
from lensbox.runtime.file.self_test import MAX_PIXELS

_OF_EACH_KIND = 6
# The first size is wider than high, so the letterbox pads the picture. The second size is a square: untrained
# detectors may score the uniform padding highest, where all anchors give the same score.
SIZES = ((48, 64), (64, 64))


class Fitted(NamedTuple):
    """Pictures, uint8 [C, H, W], and their canvases, uint8 [N, c, h, w]."""

    pictures: Sequence[Tensor]
    canvases: Tensor


def fitted(detector: Detector, pictures: Sequence[Tensor]) -> Fitted:
    """Fit pictures to a detector's canvas, with the detector's own `preprocess` if there is one."""
    wrapper: Any = DetectorWrapper(detector)
    with torch.no_grad():
        return Fitted(pictures, wrapper.preprocess(list(pictures))[0])


def drawn(detector: Detector) -> Fitted:
    """Draw the pictures of every comparison, uint8 [3, H, W]: faces, and scenes for the canvas."""
    size = detector.specification.height, detector.specification.width
    kinds = [(draw_faces(seed), draw_scene(seed, *size)) for seed in range(_OF_EACH_KIND)]
    return fitted(detector, [picture for both in kinds for picture in both])


def shrunk(picture: Tensor, specification: DetectorSpec) -> Tensor:
    """Return a picture, shrunk to the size of the canvas and to the limit of the metadata."""
    channels, height, width = picture.shape
    scale = min(
        1.0,
        max(specification.height / height, specification.width / width),
        math.sqrt(MAX_PIXELS / (channels * height * width)),
    )
    if scale == 1:
        return picture
    size = max(1, int(height * scale)), max(1, int(width * scale))
    return nn.functional.interpolate(picture[None].float(), size, mode="area")[0].round().byte()


def draw_faces(seed: int) -> Tensor:
    """Draw two to four faces of different sizes, uint8 [3, H, W] RGB.

    The same seed draws the same picture. The picture has colours, so that luma weights matter. (H, W) is one
    of `SIZES`, the first for even seeds.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    height, width = SIZES[seed % 2]
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    slope = torch.tensor([uniform(-0.8, 0.8), uniform(-0.8, 0.8)])
    picture = 110 + slope[0] * (x - width / 2) + slope[1] * (y - height / 2)
    picture = picture + torch.tensor([uniform(-40, 40) for _ in range(3)])[:, None, None]

    faces = 2 + seed % 3
    for index in range(faces):
        center_x = width * (index + 0.5) / faces + uniform(-2, 2)
        center_y = height / 2 + uniform(-5, 5)
        radius = uniform(3, 0.45 * width / faces)

        def disc(dx: float, dy: float, rx: float, ry: float) -> Tensor:
            """Return the coverage, 0..1, of a soft ellipse. Lengths are in units of the radius."""
            u = (x - center_x - dx * radius) / (rx * radius)  # noqa: B023 (called in this iteration only)
            v = (y - center_y - dy * radius) / (ry * radius)  # noqa: B023
            return ((1 - (u * u + v * v).sqrt()) * 4).clamp(0, 1)

        skin = (uniform(190, 230), uniform(150, 180), uniform(120, 150))
        strokes = [
            ((60.0, 40.0, 30.0), disc(0, -0.2, 1.1, 1.3)),  # hair
            (skin, disc(0, 0.1, 0.95, 1.15)),
            ((40.0, 30.0, 30.0), disc(-0.38, -0.1, 0.24, 0.16) + disc(0.38, -0.1, 0.24, 0.16)),  # eyes
            ((150.0, 110.0, 90.0), disc(0, 0.25, 0.14, 0.3)),  # nose
            ((150.0, 60.0, 60.0), disc(0, 0.7, 0.42, 0.14)),  # mouth
        ]
        for color, coverage in strokes:
            picture = picture + coverage.clamp(max=1) * (torch.tensor(color)[:, None, None] - picture)

    noise = 12 * torch.randn(3, height, width, generator=generator)
    return (picture + noise).round().clamp(0, 255).to(torch.uint8)


# Longest side of a scene in pixels: the metadata of an artifact hold the pixels as text.
_SCENE_SIDE = 96


def draw_scene(seed: int, canvas_height: int, canvas_width: int) -> Tensor:
    """Draw three to six coloured, partly overlapping shapes for a canvas, uint8 [3, H, W] RGB.

    The same seed draws the same picture. Odd seeds draw the canvas's aspect ratio; even seeds draw a flatter
    picture, which the letterbox pads. The longer side has at most 96 pixels.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = min(1.0, _SCENE_SIDE / max(canvas_height, canvas_width))
    height = max(1, round(canvas_height * scale * (0.75 if seed % 2 == 0 else 1)))
    width = max(1, round(canvas_width * scale))
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    gray = 90 + 60 * torch.rand((), generator=generator)
    picture = gray + 20 * torch.rand(3, 1, 1, generator=generator) * (x / width + y / height - 1)

    for index in range(3 + seed % 4):
        numbers = torch.rand(7, generator=generator)
        radius = (0.08 + 0.17 * numbers[0]) * min(height, width)
        u = (x - numbers[1] * width) / radius
        v = (y - numbers[2] * height) / (radius * (0.6 + 0.8 * numbers[3]))
        distance = torch.maximum(u.abs(), v.abs()) if index % 2 else (u * u + v * v).sqrt()
        color = 255 * numbers[4:7]
        color[index % 3] = 255 - 40 * numbers[0]  # strong red, green or blue in turn
        color[(index + 1) % 3] *= 0.3
        coverage = ((1 - distance) * radius + 0.5).clamp(0, 1)
        picture = picture + coverage * (color[:, None, None] - picture)

    noise = 6 * torch.randn(3, height, width, generator=generator)
    return (picture + noise).round().clamp(0, 255).to(torch.uint8)
