"""Draws views with their boxes on one sheet, for the eye to check before any GPU time is spent."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from torch import Tensor

from lensbox.common.files import atomic_write

TARGET_COLOR = (60, 255, 90)
IGNORED_COLOR = (255, 90, 60)


class BoxSet(NamedTuple):
    """Boxes [B, M, 4] (xyxy pixels, slots with y2 = 0 unused), their color, and the name to write at each, by
    image and slot; none without classes."""

    boxes: Tensor
    color: tuple[int, int, int]
    names: Sequence[Sequence[str]] = ()


def contact_sheet(
    images: Tensor,
    box_sets: Sequence[BoxSet],
    columns: int = 8,
    zoom: int = 1,
) -> Image.Image:
    """Returns a picture of all views in a grid.

    Args:
        images: [B, C, H, W], 0 to 255, C = 1 (gray) or 3 (RGB).
        columns: views per row. zoom: pixels of the sheet per pixel of a view.
    """
    count, _, height, width = images.shape
    rows = -(-count // columns)
    sheet = Image.new("RGB", (columns * width * zoom, rows * height * zoom))
    for index in range(count):
        pixels: npt.NDArray[np.uint8] = images[index].float().round().clamp(0, 255).byte().cpu().numpy()
        picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        tile = picture.convert("RGB").resize((width * zoom, height * zoom))
        draw = ImageDraw.Draw(tile)
        for boxes, color, names in box_sets:
            for slot, (x1, y1, x2, y2) in enumerate(boxes[index].cpu().tolist()):
                if y2 > 0:
                    right, bottom = max(x1, x2 - 1), max(y1, y2 - 1)
                    draw.rectangle((x1 * zoom, y1 * zoom, right * zoom, bottom * zoom), outline=color)
                    if names:
                        draw.text((x1 * zoom + 2, y1 * zoom + 1), names[index][slot], color)
        sheet.paste(tile, (index % columns * width * zoom, index // columns * height * zoom))
    return sheet


def save_contact_sheet(images: Tensor, targets: Tensor, ignored: Tensor, path: Path, zoom: int = 1) -> None:
    """Writes a sheet of training views: targets green, ignored boxes red."""
    save_picture(
        contact_sheet(images, [BoxSet(ignored, IGNORED_COLOR), BoxSet(targets, TARGET_COLOR)], zoom=zoom),
        path,
    )


def save_picture(picture: Image.Image, path: Path) -> None:
    """Writes a PNG, whole or not at all."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    atomic_write(path, buffer.getvalue())
