"""The output of `lensbox detect`: table, JSON lines, CSV or COCO results, progress, annotated pictures."""

import contextlib
import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import PIL.Image
import PIL.ImageOps

from lensbox.cli.annotate import annotate
from lensbox.cli.detector import Detector
from lensbox.cli.file_list import ListedFile
from lensbox.common.detections import Detection, ImageDetections
from lensbox.common.errors import InputError, system_reason
from lensbox.common.files import atomic_write

_ERASE_LINE = "\r\x1b[K"

Result = ImageDetections | str  # or an error message
Format = Callable[[Path, Result], str]
"""Formats the result of one file as lines; the first call adds the column heads."""

FORMATS = ("table", "jsonl", "csv", "coco")
CSV_COLUMNS = ("file", "width", "height", "label", "score", "x1", "y1", "x2", "y2", "extras", "error")


def make_format(name: str, files: Sequence[Path], classes: Sequence[str]) -> Format:
    """Return a Format for "table", "jsonl" or "csv". files, classes: all values, for the width of columns."""
    if name == "jsonl":
        return _json_line
    return _Csv() if name == "csv" else _Table(files, classes)


def _json_line(file: Path, result: Result) -> str:
    """Format as the C++ runner's `--json-lines` does."""
    entry = {"error": result} if isinstance(result, str) else result.to_json()
    return json.dumps({"file": str(file), **entry}, ensure_ascii=False, allow_nan=False) + "\n"


class _Csv:
    """One row per detection; one row with the size or the error for a file without detections."""

    def __init__(self) -> None:
        self._buffer = io.StringIO()
        self._rows = csv.DictWriter(self._buffer, CSV_COLUMNS, lineterminator="\n")
        self._rows.writeheader()

    def __call__(self, file: Path, result: Result) -> str:
        if isinstance(result, str):
            self._rows.writerow({"file": file, "error": result})
        else:
            of_all = {"file": file, "width": result.width, "height": result.height}
            for detection in result.detections:
                self._rows.writerow({**of_all, **_csv_fields(detection)})
            if not result.detections:
                self._rows.writerow(of_all)
        text = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return text


def _csv_fields(detection: Detection) -> dict[str, object]:
    fields: dict[str, object] = {"score": detection.score, "label": detection.label or ""}
    fields |= dict(zip(("x1", "y1", "x2", "y2"), detection.box, strict=True))
    extras = detection.to_json().get("extras")
    return {**fields, "extras": json.dumps(extras)} if extras else fields


class _Table:
    """A table with aligned columns: three decimals of the score, one of the box."""

    def __init__(self, files: Sequence[Path], classes: Sequence[str]) -> None:
        self._file = max([4, *(len(str(file)) for file in files)])
        self._label = max([5, *map(len, classes)]) if classes else 0
        self._head = self._row("file", "label", "score", "x1", "y1", "x2", "y2")

    def __call__(self, file: Path, result: Result) -> str:
        head, self._head = self._head, ""
        if isinstance(result, str):
            rows = [f"{file!s:{self._file}}  error"]
        elif result.detections:
            rows = [
                self._row(
                    str(file), one.label or "", _fixed(one.score, 3), *(_fixed(value, 1) for value in one.box)
                )
                for one in result.detections
            ]
        else:
            rows = [f"{file!s:{self._file}}  nothing"]
        return "".join(f"{row.rstrip()}\n" for row in [head, *rows] if row)

    def _row(self, file: str, label: str, score: str, *box: str) -> str:
        named = f"  {label:{self._label}}" if self._label else ""
        return f"{file:{self._file}}{named}  {score:>5}" + "".join(f"  {value:>7}" for value in box)


def _fixed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


class CocoResults:
    """Collect the detections of files; `text` is the list that `lensbox evaluate --detections` reads.

    Classes are matched to categories by name; a detector without classes needs a file with one category.
    Detections of other classes, and with numbers that are not finite, are left out.
    """

    def __init__(self, ids: Path, files: Sequence[Path], classes: Sequence[str]) -> None:
        """Read the ids. Raise InputError for a bad COCO file, UsageError for images that it does not name."""
        images, categories = _tables(ids)
        self._images = {
            file: next((images[name] for name in _names(file) if name in images), None) for file in files
        }
        unknown = [file for file, number in self._images.items() if number is None]
        if unknown:
            raise click.UsageError(
                f"--coco-file must name every image as file_name, {ids} lacks {unknown[0]}"
            )
        if not classes and len(categories) != 1:
            raise click.UsageError(
                f"--coco-file must have one category for a detector without classes, got {len(categories)}"
            )
        self._categories = categories if classes else {**categories, None: next(iter(categories.values()))}
        self._rows: list[dict[str, Any]] = []

    def __call__(self, file: Path, result: ImageDetections | str) -> str:
        """Add the detections of a file; return no line."""
        for one in () if isinstance(result, str) else result.detections:
            category = self._categories.get(one.label)
            if category is not None and all(map(math.isfinite, (*one.box, one.score))):
                x1, y1, x2, y2 = one.box
                place = {"image_id": self._images[file], "category_id": category}
                self._rows.append({**place, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": one.score})
        return ""

    def text(self) -> str:
        """Return all results as JSON, one a line."""
        return "[" + ",\n ".join(map(json.dumps, self._rows)) + "]\n"


def _names(file: Path) -> list[str]:
    """Return the possible `file_name`s of a photograph: its path, and all shorter ends of the path."""
    return ["/".join(file.parts[first:]) for first in range(len(file.parts))]


def _tables(file: Path) -> tuple[dict[str, Any], dict[str | None, Any]]:
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


Step = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def progress(length: int) -> Iterator[Step]:
    """Show a progress bar on stderr; no bar for one file, or if stderr is not a terminal.

    Yield a function to call once per file: print the lines of the file inside its context.
    """
    if length < 2 or not sys.stderr.isatty():
        yield contextlib.nullcontext
        return
    with click.progressbar(length=length, file=sys.stderr, show_pos=True, label="detecting") as bar:

        @contextlib.contextmanager
        def step() -> Iterator[None]:
            click.echo(_ERASE_LINE, nl=False, err=True)
            yield
            sys.stdout.flush()
            bar.update(1)  # redraws the bar

        yield step


def check_drawings(folder: Path, files: Sequence[ListedFile]) -> None:
    """Raise UsageError if a drawing would be written twice, or over one of the files."""
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"--annotate must be a folder, got {folder}")
    taken = {file.path.resolve() for file in files}
    for file in files:
        path = folder / file.drawing
        if file.fault is None and path.resolve() in taken:
            raise click.UsageError(
                f"--annotate would write {path} twice, or over an image: give another folder, or the files "
                "one by one"
            )
        taken.add(path.resolve())


def draw(path: Path, result: ImageDetections, detector: Detector, output: Path) -> None:
    """Write the photograph with its detections, at full size and in color. Raise InputError or OSError."""
    try:
        with PIL.Image.open(path) as stored:
            stored.load()
            upright = PIL.ImageOps.exif_transpose(stored) if detector.orientation == "exif" else stored
            drawn = annotate(upright, result.to_json()["detections"], detector.classes, detector.points)
    except Exception as error:  # decoders raise a dozen types on broken files
        raise InputError(f"it cannot be drawn on: {error or type(error).__name__}") from error
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG", compress_level=1)
    atomic_write(output, buffer.getvalue())
