"""Labelled photographs: rows of label files, checked alike in every layout, and the choice of the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import InputError, reading
from lensbox.common.fields import Orientation
from lensbox.evaluation.data.account import Account
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.decoder import read_header

LAYOUT = "docs/training.md#your-photographs; examples/train.py converts a table"
FURTHEST = 1e6  # pixels; no photograph is as large
MISSING = "photographs skipped: no such file"  # a row of the account
QUOTED = 80  # characters of a bad row in a message
SHARES = (1.0, 1.0)  # `labelled_size` of boxes in shares of the photograph

Raw = TypeVar("Raw")
Array = npt.NDArray[np.float64]
Boxes = tuple[Array, npt.NDArray[np.bool_], tuple[str, ...], Array]


class DataError(InputError):
    """Data that cannot be read, that make figures meaningless, or a problem met under `strict`."""


@dataclass(frozen=True)
class LabelledImage:
    """A photograph that is not decoded yet: the place of its bytes, and its boxes.

    Attributes:
        name: path below the folder of images, e.g. `13--Interview/x.jpg`.
        path: the image file, or the tar shard that holds it.
        boxes: float64 [n, 4], xyxy, pixels of the photograph, see `orientation`; they may reach beyond it.
        ignore: bool [n].
        classes: name of each box's class; "" where it has none.
        areas: float64 [n], labelled areas in pixels; NaN for that of the box.
        origin: `file:line` or `file: image ID` of its labels, for messages.
        offset, size: where its bytes start in `path`, and how many they are; size -1 is the whole file.
        orientation: "exif" if the boxes are of the upright photograph, "stored" if of its pixels as stored.
        width, height: of that photograph in pixels.
        labelled_size: width and height that the labels are made for; None if they do not say.
    """

    name: str
    path: Path
    boxes: Array
    ignore: npt.NDArray[np.bool_]
    classes: tuple[str, ...]
    areas: Array
    origin: str
    offset: int = 0
    size: int = -1
    orientation: Orientation = "exif"
    width: int = 0
    height: int = 0
    labelled_size: tuple[float, float] | None = None

    @property
    def source(self) -> str:
        """Return the first folder of the name: a WIDER FACE event or the name of a collection."""
        return self.name.split("/", 1)[0] if "/" in self.name else ""

    def read_bytes(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


class Row(NamedTuple):
    """A labelled box: its corner x, y and its size in pixels, whether to ignore it, its class and area."""

    x: float
    y: float
    width: float
    height: float
    ignore: bool = False
    name: str = ""
    area: float | None = None


def read_rows(rows: Iterable[tuple[str, Raw]], parse: Callable[[Raw], Row], account: Account) -> Boxes:
    """Return boxes, ignore, classes and areas of a `LabelledImage`.

    Skip and report bad rows, and rows that repeat an earlier one.

    Args:
        rows: the place of each row, for messages, and its content.
        parse: returns a row; raises ValueError, whose message is the rule that the row breaks.
    """
    kept: dict[Row, tuple[str, Row]] = {}
    for origin, content in rows:
        try:
            row = parse(content)
            if not all(abs(value) <= FURTHEST for value in row[:4]) or min(row.width, row.height) <= 0:
                rule = f"width and height must be above 0, and all within {FURTHEST:.0f} pixels"
                raise ValueError(rule)  # NaN is not within
        except ValueError as error:
            shown = repr(content.strip() if isinstance(content, str) else content)[: QUOTED + 2]
            skip_box(account, str(error), f"{origin}: {error}, got {shown}; box skipped")
            continue
        key = row._replace(area=None)
        if key in kept:
            rule = "same box and class"
            skip_box(account, rule, f"{origin}: {rule} as {kept[key][0]}; box skipped")
        kept.setdefault(key, (origin, row))
    corners = [(row.x, row.y, row.x + row.width, row.y + row.height) for row in kept]
    areas = np.array([np.nan if row.area is None else row.area for _, row in kept.values()], np.float64)
    ignore = np.array([row.ignore for row in kept], bool)
    return np.array(corners, np.float64).reshape(-1, 4), ignore, tuple(row.name for row in kept), areas


def skip_box(account: Account, rule: str, line: str, count: int = 1) -> None:
    """Count boxes that are left out by the rule that they break."""
    account.skip(f"boxes skipped: {rule.partition(', got')[0]}", line, count)


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


def is_number(value: object) -> bool:
    """Return whether a value of a file is a finite number. True and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def read_labels(
    paths: Sequence[str | Path],
    strict: bool = False,
    split: str = "train",
    orientation: Orientation = "exif",
    account: Account | None = None,
) -> tuple[list[LabelledImage], list[str]]:
    """Return the labelled photographs of all paths, and a line for each row or photograph left out.

    The files decide between COCO (one JSON file), YOLO (`data.yaml`) and the WIDER FACE layout.

    Args:
        split: split of a YOLO data set, "train" or "val".
        orientation: of the labels, see `LabelledImage`.
        account: to which what was read is added.

    Raises:
        DataError: a path does not exist or holds no labels, no photograph has readable labels, or labels are
            made for a photograph of another shape or differ from those before. With `strict`: any problem.
    """
    from lensbox.evaluation.data.coco import annotation_file, read_coco
    from lensbox.evaluation.data.wider_face import read_wider_face
    from lensbox.evaluation.data.yolo import description_file, read_yolo

    account = Account() if account is None else account
    images: list[LabelledImage] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"data path must be a folder, a tar file or labels that exist, got {path}")
        if (annotations := annotation_file(path)) is not None:
            images += read_coco(annotations, account)
        elif (description := description_file(path)) is not None:
            images += read_yolo(description, account, split)
        else:
            images += read_wider_face(path, account)
    found: dict[tuple[Path, int], LabelledImage] = {}
    for image in images:
        account.add("photographs found")
        place = image.path.resolve(), image.offset
        settled = _settled(replace(image, orientation=orientation), account)
        if settled is not None and (earlier := found.setdefault(place, settled)) is not settled:
            line = f"{image.origin}: {image.name} is named again, at first in {earlier.origin}"
            both = len(earlier.boxes) and len(settled.boxes)
            if both and not np.array_equal(earlier.boxes, settled.boxes):
                raise DataError(f"{line}, with other boxes: give all boxes of a photograph once")
            account.skip("names given twice", f"{line}; counted once")
            found[place] = earlier if len(earlier.boxes) else settled
    if strict and account.problems:
        raise DataError(account.problems[0])
    if not found:
        raise none_readable("labelled image", ", ".join(map(str, paths)), account.problems)
    for image in found.values():
        account.add("photographs used")
        account.add("photographs without boxes", int(not len(image.boxes)))
        account.add("boxes used", int((~image.ignore).sum()))
        account.add("boxes to ignore", int(image.ignore.sum()))
        moved = np.abs(clipped(image.boxes, image) - image.boxes)
        beyond = int((moved > 0.5).any(1).sum())  # less is rounding
        account.add("boxes clipped", beyond, f"{image.origin}: {image.name}")
    return list(found.values()), account.problems


def _settled(image: LabelledImage, account: Account) -> LabelledImage | None:
    """Return a photograph with its size, and its boxes in pixels; None if it cannot be read."""
    try:
        width, height, orientation = read_header(image.read_bytes(), Reading(image.orientation))
    except (OSError, InputError) as error:
        line = f"{image.origin}: image {image.name} cannot be read: {error}"
        account.skip("photographs skipped: they cannot be read", line)
        return None
    if orientation != 1:
        pixels = "the upright photograph" if image.orientation == "exif" else "the pixels as stored"
        line = f"{image.path}: boxes of {pixels} (--orientation {image.orientation})"
        account.add("photographs with an EXIF orientation", 1, line)
    image = replace(image, width=width, height=height)
    if image.labelled_size is not None:
        wide, high = image.labelled_size
        if image.labelled_size not in (SHARES, (width, height)):
            line = f"{image.path} has {width} x {height} pixels, its labels are for {wide:g} x {high:g}"
            if not _same_aspect((width, height), (wide, high)):
                raise DataError(
                    f"{image.origin}: {line}: the shapes must agree (--orientation says which way a turned "
                    "photograph is labelled)"
                )
            account.add("photographs of another size: boxes scaled", 1, line)
        x, y = width / wide, height / high
        image = replace(image, boxes=image.boxes * [x, y, x, y], areas=image.areas * (x * y))
    within = clipped(image.boxes, image)
    inside: npt.NDArray[np.bool_] = np.all(within[:, 2:] > within[:, :2], 1)
    if inside.all():
        return image
    count = int((~inside).sum())
    line = (
        f"{image.origin}: {count} of {len(inside)} boxes outside of the photograph, {width} x {height} pixels"
    )
    skip_box(account, "outside of the photograph", line, count)
    classes = tuple(name for name, kept in zip(image.classes, inside, strict=True) if kept)
    rest = {name: getattr(image, name)[inside] for name in ("boxes", "ignore", "areas")}
    return replace(image, classes=classes, **rest)


def _same_aspect(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Return whether one size is the other one scaled, a side rounded by up to a pixel."""
    (width, height), (wide, high) = sorted([first, second])
    return abs(wide * height / high - width) <= 1 or abs(high * width / wide - height) <= 1


def clipped(boxes: Array, image: LabelledImage) -> Array:
    """Return boxes [n, 4] cut at the edges of a photograph: labels and detections alike."""
    sides = np.array([image.width, image.height] * 2, np.float64)
    return np.asarray(np.minimum(np.maximum(boxes, 0.0), sides))


def none_readable(what: str, where: str, problems: Sequence[str]) -> DataError:
    """Return the error for data without anything readable, with the first problem."""
    first = f"; {problems[0]}" if problems else ""
    return DataError(f"data must hold at least one {what} ({LAYOUT}), got none in {where}{first}")
