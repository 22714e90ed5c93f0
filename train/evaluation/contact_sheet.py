"""Draws views with their boxes on one sheet, for the eye to check before any GPU time is spent."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from torch import Tensor

from lensbox.files import atomic_write

TARGET_COLOR = (60, 255, 90)
IGNORED_COLOR = (255, 90, 60)


def contact_sheet(
    images: Tensor,
    box_sets: Sequence[tuple[Tensor, tuple[int, int, int]]],
    columns: int = 8,
    zoom: int = 1,
) -> Image.Image:
    """Returns a picture of all views in a grid.

    Args:
        images: [B, 1, H, W], 0 to 255.
        box_sets: pairs of boxes [B, M, 4] (xyxy pixels, slots with y2 = 0 unused) and their colour.
        columns: views per row. zoom: pixels of the sheet per pixel of a view.
    """
    count, _, height, width = images.shape
    rows = -(-count // columns)
    sheet = Image.new("RGB", (columns * width * zoom, rows * height * zoom))
    for index in range(count):
        pixels: npt.NDArray[np.uint8] = images[index, 0].round().clamp(0, 255).byte().cpu().numpy()
        tile = Image.fromarray(pixels).convert("RGB").resize((width * zoom, height * zoom))
        draw = ImageDraw.Draw(tile)
        for boxes, color in box_sets:
            for x1, y1, x2, y2 in boxes[index].cpu().tolist():
                if y2 > 0:
                    right, bottom = max(x1, x2 - 1), max(y1, y2 - 1)
                    draw.rectangle((x1 * zoom, y1 * zoom, right * zoom, bottom * zoom), outline=color)
        sheet.paste(tile, (index % columns * width * zoom, index // columns * height * zoom))
    return sheet


def save_contact_sheet(images: Tensor, targets: Tensor, ignored: Tensor, path: Path, zoom: int = 1) -> None:
    """Writes a sheet of training views: targets green, ignored boxes red."""
    save_picture(contact_sheet(images, [(ignored, IGNORED_COLOR), (targets, TARGET_COLOR)], zoom=zoom), path)


def save_picture(picture: Image.Image, path: Path) -> None:
    """Writes a PNG, whole or not at all."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    atomic_write(path, buffer.getvalue())
