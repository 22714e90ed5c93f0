"""Labelled photographs, and the choice of the reader for a layout of labels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import InputError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
LAYOUT = "docs/training.md#your-photographs; examples/train.py makes it of a table"
FURTHEST = 1e6  # pixels; no photograph is as large
QUOTED = 80  # characters of a line that is no label
MOST_PROBLEMS = 20  # lines of a report

logger = logging.getLogger(__name__)


class DataError(InputError):
    """Data that cannot be read, or a problem met under `strict`."""


@dataclass(frozen=True)
class LabelledImage:
    """A photograph that is not decoded yet: the place of its bytes, and its boxes.

    Attributes:
        name: path below the folder of images, e.g. `13--Interview/x.jpg`.
        path: the image file, or the tar shard that holds it.
        offset, size: where its bytes start in `path`, and how many they are; size -1 is the whole file.
        boxes: float32 [n, 4], xyxy, pixels of the photograph.
        ignore: bool [n].
        origin: `file:line` or `file: image ID` of its labels, for messages.
        classes: name of each box's class; "" where it has none.
    """

    name: str
    path: Path
    offset: int
    size: int
    boxes: npt.NDArray[np.float32]
    ignore: npt.NDArray[np.bool_]
    origin: str
    classes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Return the first folder of the name: a WIDER FACE event or the name of a collection."""
        return self.name.split("/", 1)[0] if "/" in self.name else ""

    def read_bytes(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True)
class Problem:
    """A skipped part of the data, with its file and line or id."""

    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.message}"


ImagesAndProblems = tuple[list[LabelledImage], list[Problem]]


def is_number(value: object) -> bool:
    """Return whether a value of a file is a finite number. True and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def box_problem(x: float, y: float, width: float, height: float) -> str | None:
    """Return the rule that a box breaks; None for a good one."""
    is_near = all(abs(value) <= FURTHEST for value in (x, y, width, height))  # false for NaN
    if is_near and width > 0 and height > 0:
        return None
    return f"width and height must be above 0, and all within {FURTHEST:.0f} pixels"


def read_labels(
    paths: Sequence[str | Path], strict: bool = False, layout: str | None = None, split: str = "train"
) -> ImagesAndProblems:
    """Return the labelled images of all paths, and a problem for each skipped row or image.

    Args:
        layout: "wider", "coco" or "yolo"; None detects the layout from the files.
        split: split of a YOLO data set, "train" or "val".

    Raises:
        DataError: a path does not exist or holds no labels, or no image has readable labels. With `strict`:
            there is any problem.
    """
    images: list[LabelledImage] = []
    problems: list[Problem] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"data path must be a folder, a tar file or labels that exist, got {path}")
        found, skipped = _reader(path, layout, split)(path)
        images += found
        problems += skipped
        if strict and problems:
            raise DataError(str(problems[0]))
    if not images:
        raise none_readable("labelled image", ", ".join(map(str, paths)), problems)
    return images, problems


def _reader(path: Path, layout: str | None, split: str) -> Callable[[Path], ImagesAndProblems]:
    from lensbox.train.data.coco import annotation_file, read_coco
    from lensbox.train.data.wider_face import read_wider_face
    from lensbox.train.data.yolo import description_file, read_yolo

    if layout == "coco" or (layout is None and annotation_file(path) is not None):
        return read_coco
    if layout == "yolo" or (layout is None and description_file(path) is not None):
        return lambda folder: read_yolo(folder, split)
    return read_wider_face


def report_problems(problems: Sequence[Problem], strict: bool) -> None:
    """Log skipped rows and images, in at most `MOST_PROBLEMS` lines. Raise DataError if `strict`."""
    for problem in problems[:MOST_PROBLEMS]:
        logger.warning("skipped: %s", problem)
    if len(problems) > MOST_PROBLEMS:
        logger.warning("skipped: %d more", len(problems) - MOST_PROBLEMS)
    if strict and problems:
        raise DataError(str(problems[0]))


def none_readable(what: str, where: str, problems: Sequence[Problem]) -> DataError:
    """Return the error for data without anything readable, with the first problem."""
    first = f"; {problems[0]}" if problems else ""
    return DataError(f"data must hold at least one {what} ({LAYOUT}), got none in {where}{first}")


def shared_photographs(images: Sequence[LabelledImage], others: Sequence[LabelledImage]) -> list[str]:
    """Return the names of photographs that are in both `images` and `others`, by name and boxes.

    Photographs without boxes are skipped silently, because names may repeat across folders.
    """
    known = {(image.name, image.boxes.tobytes()) for image in others if len(image.boxes)}
    return [image.name for image in images if (image.name, image.boxes.tobytes()) in known]
