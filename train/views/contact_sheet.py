"""Draw a batch of views as one picture, with their boxes."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image, ImageDraw

from lensbox.common.files import atomic_write
from lensbox.train.views.make_views import Views

TARGET_COLOR = (60, 255, 90)
IGNORED_COLOR = (255, 90, 60)
COLUMNS = 8


def save_contact_sheet(views: Views, path: Path) -> None:
    """Write a PNG of all views in a grid: targets green, ignored boxes red."""
    count, _, height, width = views.images.shape
    sheet = Image.new("RGB", (COLUMNS * width, -(-count // COLUMNS) * height))
    pixels = views.images[:, 0].round().clamp(0, 255).byte().cpu().numpy()
    for index in range(count):
        tile = Image.fromarray(pixels[index]).convert("RGB")
        draw = ImageDraw.Draw(tile)
        for boxes, color in ((views.ignored, IGNORED_COLOR), (views.targets, TARGET_COLOR)):
            for x1, y1, x2, y2 in boxes[index].cpu().tolist():
                if y2 > 0:
                    draw.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=color)
        sheet.paste(tile, (index % COLUMNS * width, index // COLUMNS * height))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    atomic_write(path, buffer.getvalue())
