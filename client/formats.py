"""The forms in which `lensbox detect` prints what was found: a line or more for each file, at once."""

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from lensbox.client.answers import Detection, ImageDetections

Result = ImageDetections | str  # what was found, or why nothing was looked for
Format = Callable[[Path, Result], str]
"""The lines of one file, with their ends; those of the first begin with the heads of columns."""

FORMATS = ("table", "jsonl", "csv")
CSV_COLUMNS = ("file", "width", "height", "label", "score", "x1", "y1", "x2", "y2", "extras", "error")


def make_format(name: str, files: Sequence[Path], classes: Sequence[str]) -> Format:
    """One of FORMATS. files, classes: all that may come, for the width of columns."""
    if name == "jsonl":
        return _json_line
    return _Csv() if name == "csv" else _Table(files, classes)


def _json_line(file: Path, result: Result) -> str:
    """The entry of a file as the C++ runner's `--json-lines` has it."""
    found = {"error": result} if isinstance(result, str) else result.to_json()
    return json.dumps({"file": str(file), **found}, ensure_ascii=False, allow_nan=False) + "\n"


class _Csv:
    """A row for each detection; of a file without any, and of one that cannot be read, one with its size or
    its error."""

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
    """Columns for people: a score in thousandths, a box in tenths of a pixel."""

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
                    str(file),
                    one.label or "",
                    _fixed(one.score, 3),
                    *(_fixed(value, 1) for value in one.box),
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
