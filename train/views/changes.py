"""Change views: turn pixels and boxes, cover faces, light from one side, focus, tones and noise.

A rotation by the angle θ takes a point p to c + R · (p - c). c is the middle of the canvas, and
R = (cos θ, -sin θ; sin θ, cos θ). x points right and y down: positive angles rotate clockwise. All random
numbers are arguments and every shape is fixed, as everywhere in `views`.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE

TURN_DRAWS = 2
LARGEST_TURN = 15.0  # degrees, either way
COVERS = 4  # at most, a view
PHOTOMETRIC_DRAWS = 10
LIGHT_DRAWS = 3
COVER_DRAWS = 1 + 7 * COVERS


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

    pixels: float32 [B, S, S], 0 on the padding. mask: the same shape, 1 inside, 0 on the padding.
    Returns both turned: pixels again 0 on the padding, mask again 0 or 1.
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

    whole, clipped: float32 [B, C, 4], xyxy canvas pixels, the face and the part of it in view.
    visible: float32 [B, C], the share in view.
    Returns the part in view afterwards, float32 [B, C, 4], and the share in view: `visible` times the share
    of the turned box on the canvas.
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


def paint_covers(canvas: Tensor, mask: Tensor, targets: Tensor, u: Tensor, chance: float) -> Tensor:
    """Hide parts of faces behind up to COVERS gray rectangles, as hands, masks and other heads do.

    A covered face stays a target: no cover hides more than 49 % of a box. Each rectangle lies on a random
    target: its sides are 0.3 to 0.7 of the target's sides, and its centre lies anywhere in the target.

    canvas: float32 [B, H, W], 0 to 255. mask: the same shape, 1 inside, 0 on the padding.
    targets: float32 [B, M, 4], xyxy pixels, used slots (y2 > 0) first.
    u: [B, COVER_DRAWS] uniform draws.
    chance: probability that a view has covers.
    """
    count = (targets[..., 3] > 0).sum(1, keepdim=True)
    on = u[:, :1] < chance
    used, which, width, height, x, y, gray = u[:, 1:].reshape(-1, COVERS, 7).unbind(2)
    slot = (which * count).long().clamp(max=targets.shape[1] - 1)
    # A view without targets gives boxes without area, which hide nothing.
    box = targets.gather(1, slot[..., None].expand(-1, -1, 4))
    place, share = torch.stack([x, y], dim=2), torch.stack([width, height], dim=2)
    side = box[..., 2:] - box[..., :2]
    center, half = box[..., :2] + place * side, (0.15 + 0.2 * share) * side
    # A draw decides for each rectangle whether it is used, so that views lose different numbers of pieces.
    half = half * (on & (used < 0.5))[..., None]

    inside_x = (_pixel_centers(canvas, 2) - center[..., :1]).abs() < half[..., :1]
    inside_y = (_pixel_centers(canvas, 1) - center[..., 1:]).abs() < half[..., 1:]
    for index in range(COVERS):
        hidden = inside_y[:, index, :, None] & inside_x[:, index, None] & (mask > 0)
        canvas = torch.where(hidden, 255 * gray[:, index, None, None], canvas)
    return canvas


def light_from_a_side(canvas: Tensor, u: Tensor, chance: float) -> Tensor:
    """Brighten one side of a canvas and darken the other, with probability `chance`; keep the mean.

    Pixels are multiplied by exp(a · t). The strength a is uniform in 0 to 0.8; t rises linearly from -1 to 1
    over the canvas in a random direction.

    canvas: float32 [B, H, W], 0 to 255, 0 on the padding, which stays 0.
    u: [B, LIGHT_DRAWS] uniform draws.
    """
    on, strength, angle = u[:, 0] < chance, 0.8 * u[:, 1], 2 * math.pi * u[:, 2]
    cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
    # Corners are farther than sides: this keeps t within -1 and 1 in every direction.
    slope = (strength[:, None] / (cosine.abs() + sine.abs()))[..., None]
    x = 2 * _pixel_centers(canvas, 2) / canvas.shape[2] - 1
    y = 2 * _pixel_centers(canvas, 1) / canvas.shape[1] - 1
    lit = canvas * torch.exp(slope * ((y * sine)[:, :, None] + (x * cosine)[:, None]))
    return torch.where(on[:, None, None], lit.clamp(max=255), canvas)


def _pixel_centers(canvas: Tensor, axis: int) -> Tensor:
    return torch.arange(canvas.shape[axis], device=canvas.device, dtype=torch.float32) + 0.5


def photometric(canvas: Tensor, mask: Tensor, u: Tensor, noise: Tensor, chance: float) -> Tensor:
    """Change focus, gamma, contrast, brightness and noise, each with `chance`, inside the mask only.

    canvas: float32 [B, H, W], 0 to 255. mask: the same shape, 1 inside, 0 on the padding.
    u: [B, PHOTOMETRIC_DRAWS] uniform draws. noise: standard normal, shape of canvas.
    """

    def switched(column: int, value: Tensor, otherwise: float) -> Tensor:
        return torch.where(u[:, column] < chance, value, otherwise)[:, None, None]

    x = canvas / 255
    # Focus: -1 is a binomial blur, above 0 sharpens.
    focus = switched(0, 2.5 * u[:, 1] - 1, 0.0)
    x = (x + focus * (x - _binomial_blur(x))).clamp(0, 1)
    gamma = switched(2, torch.exp((u[:, 3] - 0.5) * 1.2), 1.0)
    x = x.clamp(min=1e-4) ** gamma
    area = mask.sum((1, 2), keepdim=True).clamp(min=1)
    mean = (x * mask).sum((1, 2), keepdim=True) / area
    contrast = switched(4, 0.5 + u[:, 5], 1.0)
    brightness = switched(6, 0.4 * u[:, 7] - 0.2, 0.0)
    x = (x - mean) * contrast + mean + brightness
    amount = switched(8, 0.06 * u[:, 9] ** 2, 0.0)
    x = (x + amount * noise.float()) * mask
    return (x * 255).clamp(0, 255)


def _binomial_blur(x: Tensor) -> Tensor:
    """Blur with the 3x3 kernel (1 2 1)ᵀ(1 2 1) / 16 with replicated borders."""
    padded = F.pad(x[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    rows = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    return (rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 4
