"""Draw boxes, points, names and scores on a picture, as the C++ library's `annotate.cpp` does."""

import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont, features

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
    drawn = converted(picture, "RGB").copy()
    sizes, pen = _Sizes.of(drawn), ImageDraw.Draw(drawn)
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
        name, font = _lettered(label, sizes.text)
        _tag(pen, drawn.width, corners, _text(name, one["score"]), font, color)
    return drawn


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


Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
# Fonts for letters that Pillow's own font lacks. Pillow looks for them in the folders of the system;
# matplotlib brings the first one.
_FONTS = ("DejaVuSans.ttf", "NotoSansCJK-Regular.ttc")
_NO_CHARACTER = "\uffff"  # fonts draw an empty box


class _Lettered(NamedTuple):
    """A text with a font that has all letters of the text."""

    text: str
    font: Font


@lru_cache(maxsize=256)
def _lettered(label: str, size: int) -> _Lettered:
    """Return a label, in which a code point (U+732B) stands for each letter that no font has."""
    label = unicodedata.normalize("NFC", " ".join(label.split()))
    default = ImageFont.load_default(size)
    if label.isascii() and label.isprintable():
        return _Lettered(label, default)
    fonts = [default, *_further_fonts(size)]
    font = min(fonts, key=lambda one: sum(not _has(one, letter) for letter in label))
    parts = (letter if _has(font, letter) else f" U+{ord(letter):04X} " for letter in label)
    return _Lettered(" ".join("".join(parts).split()), font)


def _further_fonts(size: int) -> Iterator[ImageFont.FreeTypeFont]:
    package = find_spec("matplotlib")
    folders = package.submodule_search_locations if package else None
    packaged = [str(Path(folder, "mpl-data", "fonts", "ttf", _FONTS[0])) for folder in folders or ()]
    for name in (*packaged, *_FONTS):
        try:
            yield ImageFont.truetype(name, size)
        except OSError:  # not installed
            continue


def _has(font: Font, letter: str) -> bool:
    """Return whether a font can draw a letter, alone and in the order of its script."""
    if not letter.isprintable():
        return False
    if not isinstance(font, ImageFont.FreeTypeFont):
        return letter.isascii()
    if unicodedata.bidirectional(letter) in ("R", "AL") and not features.check("raqm"):
        return False
    letter_mask, empty = font.getmask(letter), font.getmask(_NO_CHARACTER)
    return letter_mask.size != empty.size or bytes(letter_mask) != bytes(empty)


def _text(label: str, score: float | None) -> str:
    percent = "" if score is None else f"{round(100 * min(max(score, 0.0), 1.0))}%"
    return " ".join(part for part in (label, percent) if part)


def _tag(
    pen: ImageDraw.ImageDraw,
    width: int,
    box: tuple[int, ...],
    text: str,
    font: Font,
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
