"""Drawn pictures for the self-test: a few cartoon faces on a noisy background."""

import torch
from torch import Tensor

# Wider than high, so that the letterbox pads it. The square is for detectors, mostly untrained ones, that
# score the even padding highest: there every anchor gives the same score, and none is clearly the best.
SIZES = ((48, 64), (64, 64))


def draw_faces(seed: int) -> Tensor:
    """A picture of two to four faces of different sizes, uint8 [3, H, W] RGB.

    The same seed draws the same picture. It is in color, so that the luma weights count. (H, W) is one of
    `SIZES`, the first for even seeds.
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
            """Coverage, 0..1 with a soft rim, of an ellipse, placed and sized in units of the radius."""
            u = (x - center_x - dx * radius) / (rx * radius)  # noqa: B023 (called in this turn of the loop only)
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
