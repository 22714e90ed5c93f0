"""Draw boxes, points, names and scores on a picture."""

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write
from lensbox.common.pictures import converted

# The classes take these colors in turn. Light colors: dark letters can be read on them.
COLORS = ("#39ff78", "#ffb03b", "#60cdff", "#ff8ade", "#f5ff4d", "#bea0ff", "#ff806e", "#40f0e1")
# The color of letters and of the borders of lines, visible on light and dark backgrounds.
OUTLINE = "#0a2814"


def annotate(
    picture: Image.Image,
    found: Sequence[Mapping[str, Any]],
    classes: Sequence[str] = (),
    points: Collection[str] = (),
) -> Image.Image:
    """Return a copy of a picture in RGB with its detections; the best detection is drawn on top.

    found: detections in Lensbox's JSON, best first: `box`, `score`, optionally `label` and `extras`. classes:
    names of the classes, for their colors. points: names of the extras that are points. Lines and letters are
    in proportion to the picture.
    """
    drawn = converted(picture, "RGB").copy()
    pen, shorter = ImageDraw.Draw(drawn), min(drawn.size)
    line, font = max(1, round(shorter / 180)), ImageFont.load_default(max(10, round(shorter / 25)))
    border = max(1, line // 3)
    for one in reversed(found):
        if None in one["box"]:
            continue
        label = one.get("label", "")
        color = COLORS[(classes.index(label) if label in classes else 0) % len(COLORS)]
        left, top, right, bottom = _pixels(one["box"], drawn.size)
        for grown, width, outline in ((border, line + 2 * border, OUTLINE), (0, line, color)):
            frame = left - grown, top - grown, right + grown, bottom + grown
            pen.rectangle(frame, outline=outline, width=width)
        for name in points:
            pairs = np.array(one.get("extras", {}).get(name) or [], float).reshape(-1, 2)
            for pair in pairs[(np.abs(pairs) < 1e6).all(axis=1)]:  # false for NaN
                pen.circle(pair, line + 1 + border, fill=OUTLINE)
                pen.circle(pair, line + 1, fill=color)
        _tag(pen, drawn.width, left, top, _text(label, one["score"]), font, color)
    return drawn


def annotate_file(
    path: Path, found: Mapping[str, Any], metadata: Mapping[str, Any], orientation: str | None, output: Path
) -> None:
    """Write a photograph with its detections as PNG, at full size and in color.

    found: an answer of /v1/detect. metadata: the artifact's. orientation: None for the artifact's. Raise
    InputError, or OSError for `output`.
    """
    orientation = orientation or metadata.get("reading", {}).get("orientation", "exif")
    extras = metadata.get("extras", {})
    points = [name for name, extra in extras.items() if extra["kind"] == "points"]
    try:
        with Image.open(path) as stored:
            stored.load()
            upright = ImageOps.exif_transpose(stored) if orientation == "exif" else stored
            drawn = annotate(upright, found["detections"], metadata.get("classes", ()), points)
    except Exception as error:  # decoders raise a dozen types on broken files
        raise InputError(f"it cannot be drawn on: {error or type(error).__name__}") from error
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG", compress_level=1)
    atomic_write(output, buffer.getvalue())


def _pixels(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the outermost columns and rows of pixels, at most one pixel beyond the picture."""
    x1, y1, x2, y2 = (round(min(max(edge, -1), side + 1)) for edge, side in zip(box, size * 2, strict=True))
    left, top = min(x1, x2), min(y1, y2)
    return left, top, max(left, x1 - 1, x2 - 1), max(top, y1 - 1, y2 - 1)


def _text(label: str, score: float | None) -> str:
    """Return name and score in ASCII, as Pillow's own font has no other letters; escapes stand for these."""
    name = " ".join(label.split()).encode("ascii", "backslashreplace").decode()
    percent = "" if score is None else f"{round(100 * min(max(score, 0.0), 1.0))}%"
    return f"{name} {percent}".strip()


def _tag(pen: ImageDraw.ImageDraw, width: int, x: int, y: int, text: str, font: Any, color: str) -> None:
    """Draw a tag on the upper left corner of a box, or inside the box at the top of the picture."""
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    margin = max(2, round((bottom - top) / 5))
    wide, high = round(right - left) + 2 * margin, round(bottom - top) + 2 * margin
    x = min(max(x, 0), max(width - wide, 0))
    y = y - high if y >= high else y
    pen.rectangle((x, y, x + wide - 1, y + high - 1), fill=color)
    pen.text((x + margin - left, y + margin - top), text, OUTLINE, font=font)
