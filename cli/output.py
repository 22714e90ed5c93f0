"""The output of `lensbox detect`: a table, JSON lines, COCO results, or pictures with boxes drawn."""

import io
import json
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from lensbox.cli.source import Answer
from lensbox.common.errors import InputError, system_reason
from lensbox.common.files import atomic_write, read_regular
from lensbox.common.pictures import converted

# The classes take these colors in turn. Light colors: dark letters can be read on them.
COLORS = ("#39ff78", "#ffb03b", "#60cdff", "#ff8ade", "#f5ff4d", "#bea0ff", "#ff806e", "#40f0e1")
# The color of letters and of the borders of lines, visible on light and dark backgrounds.
OUTLINE = "#0a2814"


def json_line(file: Path, answer: Answer) -> str:
    """Return a line as the C++ runner's `--json-lines` does."""
    return json.dumps({"file": str(file), **answer}, ensure_ascii=False, allow_nan=False) + "\n"


class DetectionTable:
    """A table with aligned columns: three decimals of the score, one of the box."""

    def __init__(self, files: Sequence[Path], classes: Sequence[str]) -> None:
        """files, classes: all values, for the width of the columns."""
        self._file = f"{{:{max([4, *(len(str(file)) for file in files)])}}}  "
        label = f"{{:{max([5, *map(len, classes)])}}}  " if classes else "{:.0}"  # prints nothing
        self._row = f"{self._file}{label}{{:>5}}{4 * '{:>9}'}\n"
        self._head = self._row.format("file", "label", "score", "x1", "y1", "x2", "y2")

    def __call__(self, file: Path, answer: Answer) -> str:
        """Return the rows of a file. The first call also returns the column heads."""
        head, self._head = self._head, ""
        rows = [
            self._row.format(
                str(file),
                one.get("label", ""),
                _text(one["score"], 3),
                *(_text(side, 1) for side in one["box"]),
            )
            for one in answer.get("detections", ())
        ]
        none = self._file.format(str(file)) + ("error\n" if "error" in answer else "nothing\n")
        return head + ("".join(rows) or none)


def _text(value: float | None, digits: int) -> str:
    """Return a number as text; "-" for None, which stands for numbers that are not finite."""
    return "-" if value is None else f"{value:.{digits}f}"


class CocoResults:
    """COCO's list of results, which pycocotools scores.

    Classes are matched to categories by name; a detector without classes needs a file with one category.
    Detections of other classes, and with numbers that are not finite, are left out.
    """

    def __init__(self, ids: Path, files: Sequence[Path], classes: Sequence[str]) -> None:
        """Read the ids. Raise InputError for a bad COCO file, UsageError for images that it does not name."""
        images, categories = _read_ids(ids)
        self._images = {}
        for file in files:
            # A file_name is the path of a photograph, or an end of the path.
            names = ("/".join(file.parts[first:]) for first in range(len(file.parts)))
            name = next((name for name in names if name in images), None)
            if name is None:
                raise click.UsageError(f"--coco-file must name every image as file_name, {ids} lacks {file}")
            self._images[file] = images[name]
        if not classes and len(categories) != 1:
            raise click.UsageError(
                f"--coco-file must have one category for a detector without classes, got {len(categories)}"
            )
        self._categories = categories if classes else {None: next(iter(categories.values()))}
        self._rows: list[str] = []

    def __call__(self, file: Path, answer: Answer) -> str:
        """Add the detections of a file; return no line."""
        for one in answer.get("detections", ()):
            category = self._categories.get(one.get("label"))
            if category is not None and None not in (*one["box"], one["score"]):
                x1, y1, x2, y2 = one["box"]
                place = {"image_id": self._images[file], "category_id": category}
                self._rows.append(
                    json.dumps({**place, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": one["score"]})
                )
        return ""

    def text(self) -> str:
        """Return all results as JSON, one a line."""
        return "[" + ",\n ".join(self._rows) + "]\n"


def _read_ids(file: Path) -> tuple[dict[str, Any], dict[str | None, Any]]:
    """Return the ids of images by `file_name` and of categories by `name`."""
    try:
        document = json.loads(read_regular(file))
        # Windows separates folders with a backslash.
        names = [str(row["file_name"]).replace("\\", "/").removeprefix("./") for row in document["images"]]
        images = {name: row["id"] for name, row in zip(names, document["images"], strict=True)}
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"each image must have a file_name of its own, got {twice[0]!r} twice")
        return images, {str(row["name"]): row["id"] for row in document["categories"]}
    except OSError as error:
        raise InputError(f"--coco-file {file} cannot be read: {system_reason(error)}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"--coco-file {file} must be COCO JSON with images (id, file_name) and categories (id, name): "
            f"{error or type(error).__name__}"
        ) from error


def echo(text: str, err: bool = False) -> None:
    """Print text, with escapes for bytes of file names that are not text. Erase the progress bar first."""
    if err and sys.stderr.isatty():
        text = f"\r\x1b[K{text}"
    click.echo(text.encode("utf-8", "backslashreplace").decode(), nl=False, err=err)


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
        _tag(pen, drawn.width, left, top, _caption(label, one["score"]), font, color)
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


def _caption(label: str, score: float | None) -> str:
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
