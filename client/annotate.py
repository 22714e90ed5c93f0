"""Boxes drawn over a picture, in the manner of the C++ runner."""

from collections.abc import Mapping, Sequence
from typing import Any

import PIL.Image
from PIL import ImageDraw, ImageFont

Color = tuple[int, int, int]

# Of the classes in turn: light ones, so that dark letters can be read on them.
COLORS: tuple[Color, ...] = (
    (57, 255, 120),
    (255, 176, 59),
    (96, 205, 255),
    (255, 138, 222),
    (245, 255, 77),
    (190, 160, 255),
    (255, 128, 110),
    (64, 240, 225),
    (255, 214, 190),
    (170, 225, 110),
    (200, 215, 255),
    (225, 190, 90),
)
OUTLINE: Color = (10, 40, 20)  # beside lines, and of letters: seen on light and dark backgrounds


def annotate(
    picture: PIL.Image.Image,
    found: Sequence[Mapping[str, Any]],
    classes: Sequence[str] = (),
    points: Sequence[str] = (),
) -> PIL.Image.Image:
    """A copy in color with a frame around each detection, its label and its score in percent.

    picture: the whole photograph, upright. found: detections as Lensbox's JSON has them. classes: a color for
    each in turn. points: the names of those extras that are points, drawn as dots. The best detection lies on
    top.
    """
    drawn = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    shorter = min(drawn.size)
    thickness = max(1, round(shorter / 180))
    outline = max(1, thickness // 3)
    font = ImageFont.load_default(size=max(10, shorter / 32))
    draw = ImageDraw.Draw(drawn)
    for detection in reversed(found):
        if None in detection["box"]:
            continue
        label = detection.get("label")
        index = classes.index(label) if label in classes else 0
        color = COLORS[index % len(COLORS)]
        box = tuple(_to_pixel(value, drawn.size[axis % 2]) for axis, value in enumerate(detection["box"]))
        _frame(draw, box, -outline, thickness + 2 * outline, OUTLINE)
        _frame(draw, box, 0, thickness, color)
        for name in points:
            for x, y in _pairs(detection.get("extras", {}), name):
                _disc(draw, x, y, thickness + 1 + outline, OUTLINE)
                _disc(draw, x, y, thickness + 1, color)
        _tag(draw, drawn.size, box, _words(detection), font, color)
    return drawn


def _to_pixel(value: float, size: int) -> int:
    """The nearest boundary of pixels; of what lies far outside, one just outside."""
    return round(min(max(value, -1.0), size + 1.0))


def _frame(draw: ImageDraw.ImageDraw, box: tuple[int, ...], inset: int, thickness: int, color: Color) -> None:
    x1, y1, x2, y2 = box[0] + inset, box[1] + inset, box[2] - inset - 1, box[3] - inset - 1
    if x2 >= x1 and y2 >= y1:
        draw.rectangle((x1, y1, x2, y2), outline=color, width=thickness)


def _disc(draw: ImageDraw.ImageDraw, x: float, y: float, radius: int, color: Color) -> None:
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)


def _pairs(extras: Mapping[str, Any], name: str) -> list[tuple[float, float]]:
    """The points [..., 2] of one extra; none for those that are not finite."""
    pairs: list[tuple[float, float]] = []
    waiting = [extras.get(name)]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, list):
            continue
        if len(value) == 2 and not any(isinstance(item, list) for item in value):
            if None not in value:
                pairs.append((value[0], value[1]))
        else:
            waiting += value
    return pairs


def _words(detection: Mapping[str, Any]) -> str:
    percent = f"{100 * min(max(detection['score'] or 0.0, 0.0), 1.0):.0f}%"
    return f"{detection['label']} {percent}" if detection.get("label") else percent


def _tag(
    draw: ImageDraw.ImageDraw,
    size: tuple[int, int],
    box: tuple[int, ...],
    text: str,
    font: Any,
    color: Color,
) -> None:
    """It stands on the upper edge of the box, or hangs inside it at the top of the picture."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    pad = max(2, round((bottom - top) / 4))
    width, height = right - left + 2 * pad, bottom - top + 2 * pad
    x = min(max(box[0], 0), max(size[0] - width, 0))
    y = box[1] - height if box[1] >= height else max(box[1], 0)
    draw.rectangle((x, y, x + width - 1, y + height - 1), fill=color)
    draw.text((x + pad - left, y + pad - top), text, fill=OUTLINE, font=font)
