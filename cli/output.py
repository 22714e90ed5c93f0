"""The output of `lensbox detect`: a table, JSON lines or COCO results."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lensbox.cli.source import Answer
from lensbox.common.errors import InputError, system_reason


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
        document = json.loads(file.read_bytes())
        # Windows separates folders with a backslash.
        names = [str(row["file_name"]).replace("\\", "/").removeprefix("./") for row in document["images"]]
        images = {name: row["id"] for name, row in zip(names, document["images"], strict=True)}
        return images, {str(row["name"]): row["id"] for row in document["categories"]}
    except OSError as error:
        raise InputError(f"--coco-file {file} cannot be read: {system_reason(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--coco-file {file} must be COCO JSON with images (id, file_name) and categories (id, name): "
            f"{error or type(error).__name__}"
        ) from error


def echo(text: str, err: bool = False) -> None:
    """Print text, with escapes for bytes of file names that are not text. Erase the progress bar first."""
    if err and sys.stderr.isatty():
        text = f"\r\x1b[K{text}"
    click.echo(text.encode("utf-8", "backslashreplace").decode(), nl=False, err=err)
