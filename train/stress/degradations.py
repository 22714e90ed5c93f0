"""Degradations of a photograph of a face, one factor at a time, in steps from harmless to hopeless.

A portrait is shrunk onto a black canvas as by the letterbox, then degraded at the resolution of the canvas.
The size of the file therefore does not matter.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from lensbox.model.config import CANVAS_SIZE
from lensbox.train.evaluation.average_precision import Array

Pixels = npt.NDArray[np.uint8]  # [H, W], gray levels

# (canvas, box of the face, float64 [4], xyxy in its pixels; seed) -> canvas
Degrade = Callable[[Pixels, Array, int], Pixels]

FACE_HEIGHT = 64.0  # of every step that is not about size, canvas pixels
MIDDLE = 128  # gray level in the middle of the range


@dataclass(frozen=True)
class Portrait:
    """A gray photograph, [H, W], and the box of its one face, float64 [4], xyxy in its pixels."""

    name: str
    pixels: Pixels
    box: Array


def as_it_is(pixels: Pixels, box: Array, seed: int) -> Pixels:
    """Return the canvas as it is."""
    return pixels


def blurred(pixels: Pixels, box: Array, seed: int, *, share: float) -> Pixels:
    """Blur by a Gaussian whose sigma is this share of the face's height."""
    sigma = share * float(box[3] - box[1])
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(sigma)))


def darkened(pixels: Pixels, box: Array, seed: int, *, factor: float) -> Pixels:
    """Multiply gray levels by a factor, rounded, as in an underexposed photograph."""
    return _to_pixels(pixels.astype(np.float64) * factor)


def flattened(pixels: Pixels, box: Array, seed: int, *, factor: float) -> Pixels:
    """Multiply the contrast by a factor, around the middle of the range; -1 inverts the tones."""
    return _to_pixels(MIDDLE + (pixels.astype(np.float64) - MIDDLE) * factor)


def noisy(pixels: Pixels, box: Array, seed: int, *, sigma: float) -> Pixels:
    """Add Gaussian noise of this deviation, in gray levels."""
    return _to_pixels(pixels + np.random.default_rng(seed).normal(0.0, sigma, pixels.shape))


def compressed(pixels: Pixels, box: Array, seed: int, *, quality: int) -> Pixels:
    """Compress as JPEG and decode at a quality of 1 to 95."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def covered(pixels: Pixels, box: Array, seed: int, *, side: str, share: float) -> Pixels:
    """Hide this share of the face's box behind a gray bar from its `side`: "top", "bottom" or "left".

    The bar reaches beyond the box by a tenth of its size, as a mask or a hand would.
    """
    x1, y1, x2, y2 = box.tolist()
    width, height = x2 - x1, y2 - y1
    hidden = {
        "top": (x1 - width / 10, y1 - height / 10, x2 + width / 10, y1 + share * height),
        "bottom": (x1 - width / 10, y2 - share * height, x2 + width / 10, y2 + height / 10),
        "left": (x1 - width / 10, y1 - height / 10, x1 + share * width, y2 + height / 10),
    }[side]
    left, top, right, bottom = (max(0, round(edge)) for edge in hidden)
    result: Pixels = pixels.copy()
    if share > 0:
        result[top:bottom, left:right] = MIDDLE
    return result


@dataclass(frozen=True)
class Step:
    """A way to show a portrait: height of the face, canvas pixels; turn, degrees; and a degradation."""

    label: str
    height: float = FACE_HEIGHT
    angle: float = 0.0
    degrade: Degrade = as_it_is


@dataclass(frozen=True)
class Factor:
    """A degradation in steps, each harder than the one before."""

    name: str
    steps: tuple[Step, ...]


def place(portrait: Portrait, step: Step, shift: tuple[int, int], seed: int) -> tuple[Pixels, Array]:
    """Put a portrait onto a black canvas, with the middle of its face near the middle of the canvas.

    The photograph is turned counter-clockwise about the middle of the face; shrunk with antialiasing, as the
    letterbox does it; moved by whole pixels, which changes none of them; and degraded.

    Args:
        shift: by how many pixels, x and y, to move the face away from the middle.
        seed: of noise.

    Returns:
        The canvas, uint8 [256, 256], and the face's box in it, float64 [4].
    """
    middle = (portrait.box[:2] + portrait.box[2:]) / 2
    box = turned_box(portrait.box, step.angle)
    picture = Image.fromarray(portrait.pixels)
    picture = picture.rotate(step.angle, Image.Resampling.BICUBIC, center=(middle[0], middle[1]))
    scale = step.height / float(portrait.box[3] - portrait.box[1])
    width, height = (max(1, round(side * scale)) for side in picture.size)
    ratio = np.array([width / picture.width, height / picture.height])
    shrunk = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (round(value) for value in CANVAS_SIZE / 2 + np.array(shift) - middle * ratio)
    canvas = Image.new("L", (CANVAS_SIZE, CANVAS_SIZE))
    canvas.paste(shrunk, (left, top))
    placed = box * np.tile(ratio, 2) + np.array([left, top] * 2)
    return step.degrade(np.asarray(canvas), placed, seed), placed


def turned_box(box: Array, angle: float) -> Array:
    """Return the box, xyxy, of the ellipse that fills `box`, turned about its middle by `angle` degrees.

    A face is closer to that ellipse than to the box, whose corners, turned, would reach far beyond it.
    """
    middle, (a, b) = (box[:2] + box[2:]) / 2, (box[2:] - box[:2]) / 2
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    half = np.array([math.hypot(a * cosine, b * sine), math.hypot(a * sine, b * cosine)])
    return np.concatenate([middle - half, middle + half])


def _to_pixels(values: Array) -> Pixels:
    return np.asarray(values.round().clip(0, 255), np.uint8)


def _steps(degrade: Callable[..., Pixels], argument: str, *values: float) -> tuple[Step, ...]:
    return tuple(Step(f"{value:g}", degrade=partial(degrade, **{argument: value})) for value in values)


def _covered_from(side: str) -> Factor:
    steps = _steps(partial(covered, side=side), "share", 0, 0.15, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)
    return Factor(f"covered from the {side}, share", steps)


FACTORS = (
    Factor(
        "height of the face, canvas px",
        tuple(Step(str(height), height=height) for height in (128, 32, 16, 12, 8, 6, 4, 3)),
    ),
    Factor(
        "turn in the picture's plane, degrees",
        tuple(Step(str(angle), angle=angle) for angle in (0, 15, 30, 45, 60, 90, 135, 180)),
    ),
    Factor(
        "blur, sigma / height of the face",
        _steps(blurred, "share", 0, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2),
    ),
    Factor("brightness, factor", _steps(darkened, "factor", 1, 0.5, 0.25, 0.15, 0.1, 0.07, 0.05, 0.03)),
    Factor("contrast, factor", _steps(flattened, "factor", 1, 0.5, 0.25, 0.15, 0.1, 0.07, 0.05, 0.03)),
    Factor("noise, sigma in gray levels", _steps(noisy, "sigma", 0, 10, 20, 30, 40, 60, 90, 130)),
    Factor("JPEG quality", _steps(compressed, "quality", 95, 50, 20, 10, 7, 5, 3, 1)),
    _covered_from("bottom"),
    _covered_from("top"),
    _covered_from("left"),
    Factor("tones", (Step("as they are"), Step("inverted", degrade=partial(flattened, factor=-1)))),
)
