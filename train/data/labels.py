"""Labelled photographs: rows of label files, checked alike in every layout, and the choice of the reader."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import InputError, reading
from lensbox.common.fields import Orientation

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
LAYOUT = "docs/training.md#your-photographs; examples/train.py converts a table"
FURTHEST = 1e6  # pixels; no photograph is as large
QUOTED = 80  # characters of a bad row in a message
MOST_PROBLEMS = 20  # lines of a report

Raw = TypeVar("Raw")
Boxes = tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_], tuple[str, ...]]

logger = logging.getLogger(__name__)


class DataError(InputError):
    """Data that cannot be read, or a problem met under `strict`."""


@dataclass(frozen=True)
class LabelledImage:
    """A photograph that is not decoded yet: the place of its bytes, and its boxes.

    Attributes:
        name: path below the folder of images, e.g. `13--Interview/x.jpg`.
        path: the image file, or the tar shard that holds it.
        boxes: float32 [n, 4], xyxy, pixels of the photograph, see `orientation`.
        ignore: bool [n].
        classes: name of each box's class; "" where it has none.
        origin: `file:line` or `file: image ID` of its labels, for messages.
        offset, size: where its bytes start in `path`, and how many they are; size -1 is the whole file.
        coco_id: of the image in a COCO file.
        orientation: "exif" if the boxes are of the upright photograph, "stored" if of its pixels as stored.
    """

    name: str
    path: Path
    boxes: npt.NDArray[np.float32]
    ignore: npt.NDArray[np.bool_]
    classes: tuple[str, ...]
    origin: str
    offset: int = 0
    size: int = -1
    coco_id: int | None = None
    orientation: Orientation = "exif"

    @property
    def source(self) -> str:
        """Return the first folder of the name: a WIDER FACE event or the name of a collection."""
        return self.name.split("/", 1)[0] if "/" in self.name else ""

    def read_bytes(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


class Row(NamedTuple):
    """A labelled box: its corner x, y and its size in pixels, whether to ignore it, and its class."""

    x: float
    y: float
    width: float
    height: float
    ignore: bool = False
    name: str = ""


def read_rows(rows: Iterable[tuple[str, Raw]], parse: Callable[[Raw], Row], problems: list[str]) -> Boxes:
    """Return boxes, ignore and classes of a `LabelledImage`.

    Skip and report bad rows, and rows that repeat an earlier one.

    Args:
        rows: the place of each row, for messages, and its content.
        parse: returns a row; raises ValueError, whose message is the rule that the row breaks.
    """
    kept: dict[Row, str] = {}
    for origin, content in rows:
        try:
            row = parse(content)
            if not all(abs(value) <= FURTHEST for value in row[:4]) or min(row.width, row.height) <= 0:
                rule = f"width and height must be above 0, and all within {FURTHEST:.0f} pixels"
                raise ValueError(rule)  # NaN is not within
        except ValueError as error:
            shown = repr(content.strip() if isinstance(content, str) else content)[: QUOTED + 2]
            problems.append(f"{origin}: {error}, got {shown}; box skipped")
            continue
        if row in kept:
            problems.append(f"{origin}: same box and class as {kept[row]}; box skipped")
        kept.setdefault(row, origin)
    corners = [(row.x, row.y, row.x + row.width, row.y + row.height) for row in kept]
    boxes = np.array(corners, np.float32).reshape(-1, 4)
    return boxes, np.array([row.ignore for row in kept], bool), tuple(row.name for row in kept)


def read_text(path: Path) -> str:
    """Return a text file without Windows' byte order mark. Raise DataError."""
    with reading(path, DataError):
        return path.read_text(encoding="utf-8-sig", errors="replace")


def spellings(name: str) -> list[str]:
    """Return the paths under which to look for the path that a label file names.

    They are the name itself, and the name with `/` for the `\\` of Windows. An absolute path may be of
    another machine, so its ends follow, the longest first.
    """
    path = PureWindowsPath(name)
    parts = path.parts[1:] if path.anchor else path.parts
    ends = ["/".join(parts[start:]) for start in range(len(parts) if path.anchor else 1)]
    return list(dict.fromkeys([name, *ends]))


def fold_index(name: str, count: int) -> int:
    """Return the fold, from 0 to count - 1, of the photograph of this name."""
    return zlib.crc32(name.encode()) % count


def is_number(value: object) -> bool:
    """Return whether a value of a file is a finite number. True and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def read_labels(
    paths: Sequence[str | Path],
    strict: bool = False,
    split: str = "train",
    orientation: Orientation = "exif",
) -> tuple[list[LabelledImage], list[str]]:
    """Return the labelled images of all paths, and for each skipped row or image a line that names its place.

    The files decide between COCO (one JSON file), YOLO (`data.yaml`) and the WIDER FACE layout. Warn if there
    is no box to find.

    Args:
        split: split of a YOLO data set, "train" or "val".
        orientation: of the labels, see `LabelledImage`.

    Raises:
        DataError: a path does not exist or holds no labels, or no image has readable labels. With `strict`:
            there is any problem.
    """
    from lensbox.train.data.coco import annotation_file, read_coco
    from lensbox.train.data.wider_face import read_wider_face
    from lensbox.train.data.yolo import description_file, read_yolo

    images: list[LabelledImage] = []
    problems: list[str] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"data path must be a folder, a tar file or labels that exist, got {path}")
        if (annotations := annotation_file(path)) is not None:
            images += read_coco(annotations, problems)
        elif (description := description_file(path)) is not None:
            images += read_yolo(description, problems, split, orientation)
        else:
            images += read_wider_face(path, problems)
        if strict and problems:
            raise DataError(problems[0])
    where = ", ".join(map(str, paths))
    if not images:
        raise none_readable("labelled image", where, problems)
    if all(image.ignore.all() for image in images):
        logger.warning("no box to find in %s: all %d photographs are background", where, len(images))
    return [replace(image, orientation=orientation) for image in images], problems


def report_problems(problems: Sequence[str], strict: bool) -> None:
    """Log skipped rows and images, in at most `MOST_PROBLEMS` lines. Raise DataError if `strict`."""
    for problem in problems[:MOST_PROBLEMS]:
        logger.warning("skipped: %s", problem)
    if len(problems) > MOST_PROBLEMS:
        logger.warning("skipped: %d more", len(problems) - MOST_PROBLEMS)
    if strict and problems:
        raise DataError(problems[0])


def none_readable(what: str, where: str, problems: Sequence[str]) -> DataError:
    """Return the error for data without anything readable, with the first problem."""
    first = f"; {problems[0]}" if problems else ""
    return DataError(f"data must hold at least one {what} ({LAYOUT}), got none in {where}{first}")


def shared_photographs(images: Sequence[LabelledImage], others: Sequence[LabelledImage]) -> list[str]:
    """Return the names of photographs that are in both `images` and `others`, by name and boxes.

    Photographs without boxes are left out, because names may repeat across folders.
    """
    known = {(image.name, image.boxes.tobytes()) for image in others if len(image.boxes)}
    return [image.name for image in images if (image.name, image.boxes.tobytes()) in known]
