"""Labelled photographs: rows of label files, checked alike in every layout, and the choice of the reader."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import InputError, reading
from lensbox.common.fields import Orientation
from lensbox.common.files import open_regular
from lensbox.evaluation.data.account import TWICE, Account
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.decoder import read_header

LAYOUT = "docs/training.md#your-photographs; examples/train.py converts a table"
FURTHEST = 1e6  # pixels; no photograph is as large
ANNOTATION_PATTERN = "*_bbx_gt.txt"  # of WIDER FACE
DESCRIPTIONS = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")  # of YOLO
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

    name: path below the folder of images, e.g. `13--Interview/x.jpg`. path: the image file, or the tar shard
    that holds it. boxes: float64 [n, 4], xyxy, pixels of the photograph; they may reach beyond it. ignore:
    bool [n]. classes: name of each box's class; "" where it has none. areas: float64 [n], labelled areas in
    pixels; NaN if the box's own area counts. origin: `file:line` or `file: image ID` of its labels, for
    messages. offset, size: where its bytes start in `path`, and how many they are; size -1 is the whole file.
    orientation: "exif" if the boxes are of the upright photograph, "stored" if of its pixels as stored.
    width, height: of that photograph. labelled_size: width and height that the labels are made for; None if
    they do not say.
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
        return read_part(self.path, self.offset, self.size)


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
    """Return boxes, ignore, classes and areas of a `LabelledImage`. Skip bad and repeated rows.

    rows: the place of each row, for messages, and its content. parse: returns a row; raises ValueError, whose
    message is the rule that the row breaks.
    """
    kept: dict[Row, tuple[str, Row]] = {}
    for origin, content in rows:
        try:
            row = parse(content)
            if not all(abs(value) <= FURTHEST for value in row[:4]) or min(row.width, row.height) <= 0:
                rule = f"width and height must be above 0, and all within {FURTHEST:.0f} pixels"
                raise ValueError(rule)  # NaN is not within
        except ValueError as error:
            quoted = repr(content.strip() if isinstance(content, str) else content)[: QUOTED + 2]
            account.skip_box(str(error), f"{origin}: {error}, got {quoted}; box skipped")
            continue
        entry, rule = (origin, row), "same box and class"
        if (first := kept.setdefault(row._replace(area=None), entry)) is not entry:
            account.skip_box(rule, f"{origin}: {rule} as {first[0]}; box skipped")
    corners = [(row.x, row.y, row.x + row.width, row.y + row.height) for row in kept]
    areas = np.array([np.nan if row.area is None else row.area for _, row in kept.values()], np.float64)
    ignore = np.array([row.ignore for row in kept], bool)
    return np.array(corners, np.float64).reshape(-1, 4), ignore, tuple(row.name for row in kept), areas


def read_text(path: Path, offset: int = 0, size: int = -1) -> str:
    """Return a text file, or part of a file, without Windows' byte order mark. Raise DataError."""
    with reading(path, DataError):
        return read_part(path, offset, size).decode("utf-8-sig", errors="replace")


def read_part(path: Path, offset: int, size: int) -> bytes:
    """Return bytes of a file; size -1: all from the offset on."""
    with open_regular(path) as file:
        file.seek(offset)
        return file.read(size)


def read_labels(
    paths: Sequence[str | Path],
    strict: bool = False,
    split: str = "train",
    orientation: Orientation = "exif",
    account: Account | None = None,
) -> tuple[list[LabelledImage], list[str]]:
    """Return the labelled photographs of all paths, and a line for each row or photograph left out.

    The files decide between COCO (one JSON file), YOLO (`data.yaml`) and the WIDER FACE layout. split: of a
    YOLO data set, "train" or "val". orientation: of the labels. account: to which what was read is added.

    Raise DataError if a path does not exist or holds no labels, no photograph has readable labels, or labels
    are made for a photograph of another shape or differ from those before; with `strict`, for any problem.
    """
    from lensbox.evaluation.data.coco import read_coco
    from lensbox.evaluation.data.wider_face import read_wider_face
    from lensbox.evaluation.data.yolo import read_yolo

    account = Account() if account is None else account
    images: list[LabelledImage] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"data path must be a folder, a tar file or labels that exist, got {path}")
        if (file := _label_file(path)) is None:
            images += read_wider_face(path, account)
        else:
            is_coco = file.suffix.lower() == ".json"
            images += read_coco(file, account) if is_coco else read_yolo(file, account, split)
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
            account.skip(TWICE, f"{line}; counted once")
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
        beyond = (np.abs(clipped(image.boxes, image) - image.boxes) > 0.5).any(1)  # less is rounding
        account.add("boxes clipped", int(beyond.sum()), f"{image.origin}: {image.name}")
    return list(found.values()), account.problems


def _label_file(path: Path) -> Path | None:
    """Return the COCO JSON file (also in `annotations/`) or the `data.yaml` that a path names or holds; None
    for the WIDER FACE layout, and for a folder without permission, which its reader reports."""
    if path.is_file():
        return path if path.suffix.lower() in (".json", ".yaml", ".yml") else None
    try:
        files = [*path.glob("*.json"), *path.glob("annotations/*.json")]
        if len(files) == 1 and not any(path.glob(ANNOTATION_PATTERN)):
            return files[0]
        return next((path / name for name in DESCRIPTIONS if (path / name).is_file()), None)
    except OSError:
        return None


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
    wide, high = image.labelled_size or (width, height)
    if (wide, high) not in (SHARES, (width, height)):
        line = f"{image.path} has {width} x {height} pixels, its labels are for {wide:g} x {high:g}"
        # One size is the other one scaled, a side rounded by up to a pixel.
        (short, low), (long, tall) = sorted([(width, height), (wide, high)])
        if abs(long * low / tall - short) > 1 and abs(tall * short / long - low) > 1:
            hint = "--orientation says which way a turned photograph is labelled"
            raise DataError(f"{image.origin}: {line}: the shapes must agree ({hint})")
        account.add("photographs of another size: boxes scaled", 1, line)
    x, y = width / wide, height / high
    boxes, areas = image.boxes * [x, y, x, y], image.areas * (x * y)
    image = replace(image, width=width, height=height, boxes=boxes, areas=areas)
    within = clipped(boxes, image)
    inside: npt.NDArray[np.bool_] = np.all(within[:, 2:] > within[:, :2], 1)
    if inside.all():
        return image
    rule, lost = "outside of the photograph", int((~inside).sum())
    line = f"{image.origin}: {lost} of {len(inside)} boxes {rule}, {width} x {height} pixels"
    account.skip_box(rule, line, lost)
    classes = tuple(np.array(image.classes, object)[inside])
    kept = {name: getattr(image, name)[inside] for name in ("boxes", "areas", "ignore")}
    return replace(image, classes=classes, **kept)


def clipped(boxes: Array, image: LabelledImage) -> Array:
    """Return boxes [n, 4] cut at the edges of a photograph: labels and detections alike."""
    return np.asarray(np.clip(boxes, 0.0, [image.width, image.height] * 2))


def none_readable(what: str, where: str, problems: Sequence[str]) -> DataError:
    """Return the error for data without anything readable, with the first problem."""
    first = f"; {problems[0]}" if problems else ""
    return DataError(f"data must hold at least one {what} ({LAYOUT}), got none in {where}{first}")
