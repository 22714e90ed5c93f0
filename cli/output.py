"""The output of `lensbox detect`: a table or JSON lines, a progress bar, annotated pictures."""

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import PIL.Image
import PIL.ImageOps

from lensbox.cli.annotate import annotate
from lensbox.cli.source import Answer
from lensbox.common.errors import InputError
from lensbox.common.files import atomic_write

FORMATS = ("table", "jsonl", "coco")


def json_line(file: Path, result: Answer | str) -> str:
    """Return a line as the C++ runner's `--json-lines` does. result: an answer, or an error message."""
    entry = {"error": result} if isinstance(result, str) else result
    return json.dumps({"file": str(file), **entry}, ensure_ascii=False, allow_nan=False) + "\n"


class DetectionTable:
    """A table with aligned columns: three decimals of the score, one of the box."""

    def __init__(self, files: Sequence[Path], classes: Sequence[str]) -> None:
        """files, classes: all values, for the width of the columns."""
        self._file = max([4, *(len(str(file)) for file in files)])
        self._label = max([5, *map(len, classes)]) if classes else 0
        self._head = self._row("file", "label", "score", "x1", "y1", "x2", "y2")

    def __call__(self, file: Path, result: Answer | str) -> str:
        """Return the rows of a file. The first call also returns the column heads."""
        head, self._head = self._head, ""
        if isinstance(result, str):
            return f"{head}{file!s:{self._file}}  error\n"
        rows = [
            self._row(
                str(file),
                one.get("label", ""),
                _decimals(one["score"], 3),
                *(_decimals(side, 1) for side in one["box"]),
            )
            for one in result["detections"]
        ]
        return head + ("".join(rows) or f"{file!s:{self._file}}  nothing\n")

    def _row(self, file: str, label: str, score: str, *box: str) -> str:
        names = f"{file:{self._file}}  " + (f"{label:{self._label}}  " if self._label else "")
        return f"{names}{score:>5}" + "".join(f"{side:>9}" for side in box) + "\n"


def _decimals(value: float | None, digits: int) -> str:
    """Return a number as text; "-" for None, which stands for numbers that are not finite."""
    return "-" if value is None else f"{value:.{digits}f}"


def echo(text: str, err: bool = False) -> None:
    """Print text, with escapes for bytes of file names that are not text. Erase the progress bar first."""
    if err and sys.stderr.isatty():
        text = f"\r\x1b[K{text}"
    click.echo(text.encode("utf-8", "backslashreplace").decode(), nl=False, err=err)


@contextlib.contextmanager
def progress(length: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of finished files.

    The function draws a bar on stderr if there are several files, and stderr alone is a terminal.
    """
    if length < 2 or sys.stdout.isatty() or not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=length, file=sys.stderr, show_pos=True, label="detecting") as bar:
        yield bar.update


def draw(path: Path, found: Answer, metadata: Mapping[str, Any], orientation: str, output: Path) -> None:
    """Write the photograph with its detections, at full size and in color. Raise InputError or OSError."""
    extras = metadata.get("extras", {})
    points = [name for name, extra in extras.items() if extra["kind"] == "points"]
    try:
        with PIL.Image.open(path) as stored:
            stored.load()
            upright = PIL.ImageOps.exif_transpose(stored) if orientation == "exif" else stored
            drawn = annotate(upright, found["detections"], metadata.get("classes", ()), points)
    except Exception as error:  # decoders raise a dozen types on broken files
        raise InputError(f"it cannot be drawn on: {error or type(error).__name__}") from error
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG", compress_level=1)
    atomic_write(output, buffer.getvalue())
