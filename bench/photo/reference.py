"""The reference for canvases and boxes, computed with Pillow by the rules of docs/artifact.md.

The reference uses nothing of `lensbox.runtime` or the ops. It supports only the inputs of the benchmark: gray
canvases, and JPEG files whose sides are multiples of 8.
"""

import io
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from torch import Tensor

from lensbox.artifact.metadata import Canvas

_OVERSAMPLING = 2
_REDUCTIONS = (8, 4, 2, 1)


class Fit(NamedTuple):
    """The place of an image in a canvas, in canvas pixels."""

    width: int
    height: int
    left: int
    top: int


def fit(width: int, height: int, canvas: Canvas) -> Fit:
    """Return the place of an image of width x height pixels."""
    scale = min(Fraction(canvas.width, width), Fraction(canvas.height, height))
    new_width, new_height = (max(1, math.floor(side * scale + Fraction(1, 2))) for side in (width, height))
    return Fit(new_width, new_height, (canvas.width - new_width) // 2, (canvas.height - new_height) // 2)


def canvas_of(image: PIL.Image.Image, canvas: Canvas) -> Tensor:
    """Return the canvas of an upright image, uint8 [1, canvas.height, canvas.width]."""
    place = fit(*image.size, canvas)
    small = image.convert("L").resize((place.width, place.height), PIL.Image.Resampling.BILINEAR)
    whole = PIL.Image.new("L", (canvas.width, canvas.height), canvas.fill)
    whole.paste(small, (place.left, place.top))
    return torch.from_numpy(np.array(whole))[None]


def decoded(file: bytes, canvas: Canvas) -> PIL.Image.Image:
    """Decode an upright image; of a JPEG file the gray levels, at the scale that the canvas needs."""
    image = PIL.Image.open(io.BytesIO(file))
    if image.format == "JPEG":
        width, height = upright_size(file)
        needed = fit(width, height, canvas)
        enough = min(width / needed.width, height / needed.height) / _OVERSAMPLING
        reduction = max(reduction for reduction in _REDUCTIONS if reduction <= max(enough, 1))
        image.draft("L", (image.width // reduction, image.height // reduction))
    return PIL.ImageOps.exif_transpose(image)


def upright_size(file: bytes) -> tuple[int, int]:
    """Return width and height of the upright photograph."""
    image = PIL.Image.open(io.BytesIO(file))
    lies_on_its_side = image.getexif().get(0x0112, 1) >= 5
    return (image.height, image.width) if lies_on_its_side else image.size


def restored(boxes: Tensor, size: tuple[int, int], canvas: Canvas) -> Tensor:
    """Return boxes of the canvas, [n, 4], in pixels of a photograph of (width, height): float32, CPU."""
    place = fit(*size, canvas)
    offset = torch.tensor([place.left, place.top] * 2, dtype=torch.float64)
    scale = torch.tensor([place.width / size[0], place.height / size[1]] * 2, dtype=torch.float64)
    inside = ((boxes.cpu().double() - offset) / scale).clamp(min=0)
    return torch.minimum(inside, torch.tensor([*size, *size], dtype=torch.float64)).float()
