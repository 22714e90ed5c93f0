"""Rotate the pixels and boxes of views about the middle of the canvas.

A rotation by the angle θ takes a point p to c + R · (p - c). c is the middle of the canvas, and
R = (cos θ, -sin θ; sin θ, cos θ). x points right and y down: positive angles rotate clockwise.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE

TURN_DRAWS = 2
LARGEST_TURN = 15.0  # degrees, either way


class Turn(NamedTuple):
    """Turns of B views: on bool [B], where a view that is off stays as it is; cosine and sine of the angle,
    float32 [B]."""

    on: Tensor
    cosine: Tensor
    sine: Tensor


def draw_turn(u: Tensor, chance: float) -> Turn:
    """Choose views to turn with `chance`, and angles uniform in ± LARGEST_TURN, from uniform draws [B, 2]."""
    angle = (2 * u[:, 1] - 1) * math.radians(LARGEST_TURN)
    return Turn(u[:, 0] < chance, angle.cos(), angle.sin())


def turn_pixels(pixels: Tensor, mask: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
    """Turn views, bilinear. What comes in from beyond the canvas is padding.

    Args:
        pixels: float32 [B, S, S], 0 on the padding. mask: the same shape, 1 inside, 0 on the padding.

    Returns:
        Both turned: pixels again 0 on the padding, mask again 0 or 1.
    """
    side = pixels.shape[-1]
    axis = (torch.arange(side, device=pixels.device, dtype=torch.float32) + 0.5) * (2 / side) - 1
    x, y = axis[None, None, :], axis[None, :, None]
    cosine, sine = turn.cosine[:, None, None], turn.sine[:, None, None]
    # Each pixel asks where it came from: a turn back. Not as a matrix product, which TF32 would round.
    grid = torch.stack([cosine * x + sine * y, cosine * y - sine * x], dim=3)
    both = F.grid_sample(torch.stack([pixels, mask], dim=1), grid, align_corners=False)
    turned, weight = both.unbind(1)
    inside = (weight >= 0.5).float()
    # Divided by the weight, the edge is as bright as the photograph and has no dark seam.
    turned = turned / weight.clamp(min=0.5) * inside
    on = turn.on[:, None, None]
    return torch.where(on, turned, pixels), torch.where(on, inside, mask)


def turn_boxes(whole: Tensor, clipped: Tensor, visible: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
    """Turn boxes with their views and clip them to the canvas.

    A face is taken for the ellipse that fills its box: the corners of a box hold none of it, so the bounds of
    a turned box would be too wide (by 22 % at 15°). If a part of a face was not in view, the result also lies
    in the bounds of the turned part: tight at a straight cut through the middle, somewhat wide elsewhere.

    Args:
        whole, clipped: float32 [B, C, 4], xyxy canvas pixels, the face and the part of it in view.
        visible: float32 [B, C], the share in view.

    Returns:
        The part in view afterwards, float32 [B, C, 4], and the share in view: `visible` times the share of
        the turned box on the canvas.
    """
    cosine, sine = turn.cosine[:, None], turn.sine[:, None]
    (a, b), (p, q) = _halves(whole), _halves(clipped)
    ellipse = torch.stack(
        [
            ((a * cosine).square() + (b * sine).square()).sqrt(),
            ((a * sine).square() + (b * cosine).square()).sqrt(),
        ],
        dim=2,
    )
    part = torch.stack([p * cosine.abs() + q * sine.abs(), p * sine.abs() + q * cosine.abs()], dim=2)
    ellipse_center, part_center = _turned_center(whole, turn), _turned_center(clipped, turn)
    low = torch.maximum(ellipse_center - ellipse, part_center - part)
    # A part that holds a corner of the box only may miss the ellipse.
    high = torch.maximum(torch.minimum(ellipse_center + ellipse, part_center + part), low)
    shown_low, shown_high = low.clamp(0, CANVAS_SIZE), high.clamp(0, CANVAS_SIZE)
    share = (shown_high - shown_low).prod(2) / (high - low).prod(2).clamp(min=1e-6)
    turned = torch.cat([shown_low, shown_high], dim=2)
    return (
        torch.where(turn.on[:, None, None], turned, clipped),
        torch.where(turn.on[:, None], visible * share, visible),
    )


def _halves(boxes: Tensor) -> tuple[Tensor, Tensor]:
    half = (boxes[..., 2:] - boxes[..., :2]) / 2
    return half[..., 0], half[..., 1]


def _turned_center(boxes: Tensor, turn: Turn) -> Tensor:
    x, y = ((boxes[..., :2] + boxes[..., 2:]) / 2 - CANVAS_SIZE / 2).unbind(-1)
    cosine, sine = turn.cosine[:, None], turn.sine[:, None]
    return torch.stack([cosine * x - sine * y, sine * x + cosine * y], dim=2) + CANVAS_SIZE / 2
