"""Draw boxes, points, names and scores on a picture."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from lensbox.common.pictures import converted

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
)
# The color of letters and of the borders of lines, visible on light and dark backgrounds.
OUTLINE: Color = (10, 40, 20)


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
        box = _pixels(one["box"], drawn.size)
        _frame(pen, box, border, line + 2 * border, OUTLINE)
        _frame(pen, box, 0, line, color)
        for name in points:
            for x, y in _pairs(one.get("extras", {}).get(name)):
                for radius, ink in ((line + 1 + border, OUTLINE), (line + 1, color)):
                    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)
        _tag(pen, drawn.width, box, _text(label, one["score"]), font, color)
    return drawn


def _pixels(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom in whole pixels, at most one pixel beyond the picture."""
    x1, y1, x2, y2 = (round(min(max(edge, -1), side + 1)) for edge, side in zip(box, size * 2, strict=True))
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def _frame(pen: ImageDraw.ImageDraw, box: tuple[int, ...], grown: int, width: int, color: Color) -> None:
    left, top = box[0] - grown, box[1] - grown
    corner = max(left, box[2] + grown - 1), max(top, box[3] + grown - 1)
    pen.rectangle((left, top, *corner), outline=color, width=width)


def _pairs(values: Any) -> Iterator[tuple[float, float]]:
    """Yield the points in nested lists of any depth, without points outside of any picture."""
    if not isinstance(values, list) or not values:
        return
    if not isinstance(values[0], list):
        if None not in values and all(abs(value) < 1e6 for value in values):
            yield values[0], values[1]
        return
    for value in values:
        yield from _pairs(value)


def _text(label: str, score: float | None) -> str:
    """Return name and score in ASCII, as Pillow's own font has no other letters; escapes stand for these."""
    name = " ".join(label.split()).encode("ascii", "backslashreplace").decode()
    percent = "" if score is None else f"{round(100 * min(max(score, 0.0), 1.0))}%"
    return f"{name} {percent}".strip()


def _tag(
    pen: ImageDraw.ImageDraw, width: int, box: tuple[int, ...], text: str, font: Any, color: Color
) -> None:
    """Draw a tag on the upper edge of the box, or inside the box at the top of the picture."""
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    margin = max(2, round((bottom - top) / 5))
    wide, high = round(right - left) + 2 * margin, round(bottom - top) + 2 * margin
    x = min(max(box[0], 0), max(width - wide, 0))
    y = box[1] - high if box[1] >= high else box[1]
    pen.rectangle((x, y, x + wide - 1, y + high - 1), fill=color)
    pen.text((x + margin - left, y + margin - top), text, OUTLINE, font=font)
