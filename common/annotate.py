"""Draw boxes, points, names and scores on a picture, as the C++ library's `annotate.cpp` does."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int]

# The classes take these colors in turn. Light colors: dark letters can be read on them.
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
# The color of letters and of the borders of lines, visible on light and dark backgrounds.
OUTLINE: Color = (10, 40, 20)


@dataclass(frozen=True)
class _Sizes:
    """Sizes in pixels, proportional to the picture: width of lines, width of outlines, height of text."""

    thickness: int
    outline: int
    text: int

    @classmethod
    def of(cls, picture: Image.Image) -> "_Sizes":
        shorter = min(picture.size)
        thickness = max(1, round(shorter / 180))
        return cls(thickness, max(1, thickness // 3), max(10, round(shorter / 25)))


def annotate(
    picture: Image.Image,
    found: Sequence[Mapping[str, Any]],
    classes: Sequence[str] = (),
    points: Collection[str] = (),
) -> Image.Image:
    """Return a copy of a picture in RGB with its detections; the best detection is drawn on top.

    found: detections in Lensbox's JSON, best first: `box`, `score`, optionally `label` and `extras`. classes:
    names of the classes, for their colors. points: names of the extras that are points.
    """
    drawn = _eight_bit(picture).convert("RGB")
    sizes, pen = _Sizes.of(drawn), ImageDraw.Draw(drawn)
    font = ImageFont.load_default(sizes.text)
    for one in reversed(found):
        if None in one["box"]:
            continue
        box = [_pixel(value, side) for value, side in zip(one["box"], drawn.size * 2, strict=True)]
        label = one.get("label", "")
        color = COLORS[(classes.index(label) if label in classes else 0) % len(COLORS)]
        corners = (*map(min, box[:2], box[2:]), *map(max, box[:2], box[2:]))
        _frame(pen, corners, sizes.outline, sizes.thickness + 2 * sizes.outline, OUTLINE)
        _frame(pen, corners, 0, sizes.thickness, color)
        for name in points:
            for x, y in _pairs(one.get("extras", {}).get(name)):
                _disc(pen, x, y, sizes, color)
        _tag(pen, drawn.width, corners, _text(label, one["score"]), font, color)
    return drawn


def _eight_bit(picture: Image.Image) -> Image.Image:
    """Convert 16-bit gray to 8 bits by dropping the low byte; Pillow's own conversion would clip at 255."""
    if not picture.mode.startswith("I"):
        return picture
    return picture.convert("I").point(lambda level: level * (1 / 256)).convert("L")


def _pixel(value: float, side: int) -> int:
    """Return the nearest pixel boundary, clamped to one pixel beyond the picture."""
    return round(min(max(value, -1), side + 1))


def _frame(pen: ImageDraw.ImageDraw, box: tuple[int, ...], grown: int, width: int, color: Color) -> None:
    x1, y1, x2, y2 = box
    pen.rectangle(
        (x1 - grown, y1 - grown, max(x1 - grown, x2 + grown - 1), max(y1 - grown, y2 + grown - 1)),
        outline=color,
        width=width,
    )


def _pairs(values: Any) -> list[tuple[float, float]]:
    """Return the points in nested lists of any depth, without points that contain None."""
    if not isinstance(values, list) or not values:
        return []
    if len(values) == 2 and not any(isinstance(value, list) for value in values):
        return [] if None in values else [(values[0], values[1])]
    return [point for value in values for point in _pairs(value)]


def _disc(pen: ImageDraw.ImageDraw, x: float, y: float, sizes: _Sizes, color: Color) -> None:
    if not (abs(x) < 1e6 and abs(y) < 1e6):  # far outside of the picture
        return
    for radius, fill in ((sizes.thickness + 1 + sizes.outline, OUTLINE), (sizes.thickness + 1, color)):
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)


def _text(label: str, score: float | None) -> str:
    percent = "" if score is None else f"{round(100 * min(max(score, 0.0), 1.0))}%"
    return " ".join(part for part in (label, percent) if part)


def _tag(
    pen: ImageDraw.ImageDraw,
    width: int,
    box: tuple[int, ...],
    text: str,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    color: Color,
) -> None:
    """Draw a tag on the upper edge of the box, or inside the box at the top of the picture."""
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    margin = max(2, round((bottom - top) / 5))
    wide, high = round(right - left) + 2 * margin, round(bottom - top) + 2 * margin
    x = min(max(box[0], 0), max(width - wide, 0))
    y = box[1] - high if box[1] >= high else box[1]
    pen.rectangle((x, y, x + wide - 1, y + high - 1), fill=color)
    pen.text((x + margin - left, y + margin - top), text, OUTLINE, font=font)
