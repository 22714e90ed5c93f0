"""Reads photographs labelled in the WIDER FACE layout, from folders or uncompressed tar shards.

A shard or folder holds `images/<source>/<file>` and a `*_bbx_gt.txt` beside `images`: a file name, a count,
then a line `x y w h blur expression illumination invalid occlusion pose` per box (pixels; a line of zeros
where the count is 0). What follows these ten numbers names the class of the box, for detectors that have
several. The published archives (`wider_face_split/wider_face_train_bbx_gt.txt` beside
`WIDER_train/images`) are understood as well. `invalid` = 1 marks a box to ignore.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import InputError, system_reason

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
ANNOTATION_PATTERN = "*_bbx_gt.txt"
_ENCODING = "utf-8-sig"  # Windows begins a file with a byte order mark
_NUMBERS = 10  # of a row; the name of a class follows
_QUOTED = 80  # characters of a line that is no label
_FURTHEST = 1e6  # pixels; no photograph is as large
_LAYOUT = "docs/training.md#your-photographs; examples/train.py makes it of a table"


class DataError(InputError):
    """Data that cannot be read, or a problem met under `strict`."""


@dataclass(frozen=True)
class LabelledImage:
    """One photograph, not yet decoded: where its bytes are, and its boxes.

    Attributes:
        name: path below `images`, e.g. `13--Interview/x.jpg`.
        path: the image file, or the tar shard that holds it.
        offset, size: where its bytes start in `path`, and how many they are; size -1 is the whole file.
        boxes: float32 [n, 4], xyxy, pixels of the photograph.
        ignore: bool [n].
        origin: `annotation file:line`, for messages.
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
        """First folder of the name: a WIDER FACE event or the name of a collection."""
        return self.name.split("/", 1)[0] if "/" in self.name else ""

    def read_bytes(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def shared_photographs(images: Sequence[LabelledImage], others: Sequence[LabelledImage]) -> list[str]:
    """Names of the photographs of `images` that are among `others` too, by name and boxes, for a copy lies
    elsewhere. Of those without boxes, which may be others of the same name, nothing is said."""
    known = {(image.name, image.boxes.tobytes()) for image in others if len(image.boxes)}
    return [image.name for image in images if (image.name, image.boxes.tobytes()) in known]


@dataclass(frozen=True)
class Problem:
    """Something in the data that was skipped, with the file and line it stands in."""

    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.message}"


def read_wider_face(
    paths: Sequence[str | Path], strict: bool = False
) -> tuple[list[LabelledImage], list[Problem]]:
    """Returns the labelled images of all folders and tar shards, and what had to be skipped.

    Raises:
        DataError: a path does not exist or holds no annotation file, no image has labels that can be read;
            with `strict`, on the first problem.
    """
    images: list[LabelledImage] = []
    problems: list[Problem] = []
    for path in map(Path, paths):
        if path.is_dir():
            _read_folder(path, images, problems)
        elif path.is_file():
            _read_tar(path, images, problems)
        else:
            raise DataError(f"data path must be a folder or a tar file that exists, got {path}")
        if strict and problems:
            raise DataError(str(problems[0]))
    if not images:
        raise none_readable("labelled image", ", ".join(map(str, paths)), problems)
    return images, problems


def none_readable(what: str, where: str, problems: Sequence[Problem]) -> DataError:
    """The error of data of which nothing is left, with the first of what was skipped."""
    first = f"; {problems[0]}" if problems else ""
    return DataError(f"data must hold at least one {what} ({_LAYOUT}), got none in {where}{first}")


@dataclass(frozen=True)
class _Entry:
    name: str
    line: int
    boxes: npt.NDArray[np.float32]
    ignore: npt.NDArray[np.bool_]
    classes: tuple[str, ...]

    def says_the_same_as(self, other: _Entry) -> bool:
        """Whether both have the same boxes, in the same order."""
        return (
            np.array_equal(self.boxes, other.boxes)
            and np.array_equal(self.ignore, other.ignore)
            and self.classes == other.classes
        )


def parse_annotations(text: str, file_name: str) -> tuple[list[_Entry], list[Problem]]:
    """Parses the text of a `*_bbx_gt.txt`. Bad rows are left out and reported. An entry whose count cannot be
    read or does not fit its rows, and all entries of an image that has several with different boxes, are left
    out as a whole, for an image with unknown faces teaches the wrong thing."""
    lines = text.splitlines()
    entries: list[_Entry] = []
    problems: list[Problem] = []
    position = 0

    def report(line: int, message: str) -> None:
        problems.append(Problem(f"{file_name}:{line + 1}", message))

    while position < len(lines):
        name = lines[position].strip()
        start = position
        position += 1
        if not name:
            continue
        if not _is_image_name(name):
            report(start, f"expected an image file name, got {name[:_QUOTED]!r}")
            continue
        count_text = lines[position].strip() if position < len(lines) else ""
        if not count_text.isdecimal():
            report(
                position,
                f"expected the number of boxes of {name}, got {count_text[:_QUOTED]!r}; image skipped",
            )
            continue
        position += 1
        count = int(count_text)
        rows = lines[position : position + count]
        short = next((i for i, row in enumerate(rows) if _is_image_name(row.strip())), len(rows))
        if short < count:
            report(start, f"{name} announces {count} boxes and has {short}; image skipped")
            position += short
            continue
        boxes, ignore, classes = [], [], []
        for index, row in enumerate(rows):
            parsed = _parse_row(row)
            if isinstance(parsed, str):
                report(position + index, f"{parsed}; box skipped")
            else:
                boxes.append(parsed.box)
                ignore.append(parsed.ignore)
                classes.append(parsed.name)
        position += count
        if count == 0 and position < len(lines) and not _is_image_name(lines[position].strip()):
            position += 1  # the line of zeros
        array = np.array(boxes, np.float32).reshape(-1, 4)
        entries.append(_Entry(name, start + 1, array, np.array(ignore, np.bool_), tuple(classes)))
    return _without_contradictions(entries, file_name, problems), problems


def _without_contradictions(
    entries: Sequence[_Entry], file_name: str, problems: list[Problem]
) -> list[_Entry]:
    """One entry an image. Those of an image that is listed again with other boxes are all left out."""
    first: dict[str, _Entry] = {}
    contradicted: set[str] = set()
    for entry in entries:
        before = first.setdefault(entry.name, entry)
        if before is entry:
            continue
        message = f"image {entry.name} is listed again, at first in line {before.line}"
        if not entry.says_the_same_as(before):
            contradicted.add(entry.name)
            message += ", with other boxes; image skipped"
        problems.append(Problem(f"{file_name}:{entry.line}", message))
    return [entry for name, entry in first.items() if name not in contradicted]


def _is_image_name(text: str) -> bool:
    return text.lower().endswith(IMAGE_SUFFIXES)


class _Row(NamedTuple):
    box: tuple[float, float, float, float]
    ignore: bool
    name: str


def _parse_row(row: str) -> _Row | str:
    """A labelled box, or what is wrong with the row."""
    fields = row.split(maxsplit=_NUMBERS)
    name = " ".join(fields.pop().split()) if len(fields) > _NUMBERS else ""
    if len(fields) < 4:
        return f"a box needs at least x y w h, got {row.strip()!r}"
    try:
        values = [float(field) for field in fields]
    except ValueError:
        return f"a box must be numbers, got {row.strip()!r}"
    x, y, width, height = values[:4]
    is_near = all(abs(value) <= _FURTHEST for value in values[:4])  # false for NaN
    if not is_near or width <= 0 or height <= 0:
        rule = f"width and height must be above 0, and all within {_FURTHEST:.0f} pixels"
        return f"{rule}, got {row.strip()!r}"
    return _Row((x, y, x + width, y + height), len(values) > 7 and values[7] != 0, name)


def _read_tar(path: Path, images: list[LabelledImage], problems: list[Problem]) -> None:
    try:
        with tarfile.open(path, "r:") as archive:
            # Without "./" before each name, as `tar -C photos .` writes them.
            members = {str(PurePosixPath(member.name)): member for member in archive if member.isfile()}
            names = [name for name in members if _is_annotation(PurePosixPath(name))]
            texts = {}
            for name in names:
                file = archive.extractfile(members[name])
                assert file is not None  # isfile() above
                texts[name] = file.read().decode(_ENCODING, errors="replace")
    except tarfile.TarError as error:
        raise DataError(
            f"{path} must be a folder or an uncompressed tar file of photographs and labels ({_LAYOUT}), "
            f"got {error}"
        ) from error
    if not texts:
        raise DataError(f"{path} must hold a {ANNOTATION_PATTERN} file ({_LAYOUT})")
    for annotation, text in texts.items():
        origin = f"{path}:{annotation}"
        entries, found = parse_annotations(text, origin)
        problems.extend(found)
        folder = PurePosixPath(annotation).parent
        for entry in entries:
            member = members.get(str(folder / "images" / entry.name))
            if member is None:
                problems.append(Problem(f"{origin}:{entry.line}", f"image {entry.name} is not in the shard"))
                continue
            images.append(_labelled(entry, path, member.offset_data, member.size, origin))


def _read_folder(path: Path, images: list[LabelledImage], problems: list[Problem]) -> None:
    try:
        next(path.iterdir(), None)  # rglob passes over folders that cannot be read
    except OSError as error:
        raise DataError(f"folder {path} cannot be read: {system_reason(error)}") from error
    annotations = sorted(filter(_is_annotation, path.rglob(ANNOTATION_PATTERN)))
    if not annotations:
        raise DataError(f"folder {path} must hold a {ANNOTATION_PATTERN} file, at any depth ({_LAYOUT})")
    for annotation in annotations:
        entries, found = parse_annotations(
            annotation.read_text(encoding=_ENCODING, errors="replace"), str(annotation)
        )
        problems.extend(found)
        roots = _image_roots(annotation)
        for entry in entries:
            file = next((root / entry.name for root in roots if (root / entry.name).is_file()), None)
            if file is None:
                where = ", ".join(str(root) for root in roots)
                message = f"image {entry.name} is not in {where}"
                problems.append(Problem(f"{annotation}:{entry.line}", message))
                continue
            images.append(_labelled(entry, file, 0, -1, str(annotation)))


def _is_annotation(path: PurePath) -> bool:
    # macOS keeps attributes of a file beside it, in one whose name begins with "._".
    return path.match(ANNOTATION_PATTERN) and not path.name.startswith("._")


def _image_roots(annotation: Path) -> Sequence[Path]:
    """Where the images of an annotation file may lie: beside it, or as the published archives unpack."""
    roots = [annotation.parent / "images"]
    for split in ("train", "val"):
        if split in annotation.name:
            roots.append(annotation.parent.parent / f"WIDER_{split}" / "images")
    return roots


def _labelled(entry: _Entry, path: Path, offset: int, size: int, origin: str) -> LabelledImage:
    return LabelledImage(
        entry.name, path, offset, size, entry.boxes, entry.ignore, f"{origin}:{entry.line}", entry.classes
    )
