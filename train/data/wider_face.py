"""Read photographs labelled in the WIDER FACE layout, from folders or uncompressed tar shards.

A shard or folder holds `images/<source>/<file>` and a `*_bbx_gt.txt` beside `images`: a file name, a count,
then a line `x y w h blur expression illumination invalid occlusion pose` per box (pixels; a line of zeros
where the count is 0). The text after these ten numbers names the class of the box, for detectors with
classes. The published archives (`wider_face_split/wider_face_train_bbx_gt.txt` beside
`WIDER_train/images`) are understood as well. `invalid` = 1 marks a box to ignore.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

import numpy as np
import numpy.typing as npt

from lensbox.common.errors import system_reason
from lensbox.train.data.labels import (
    IMAGE_SUFFIXES,
    LAYOUT,
    QUOTED,
    DataError,
    ImagesAndProblems,
    LabelledImage,
    Problem,
    Row,
    arrays_of,
    box_problem,
)

ANNOTATION_PATTERN = "*_bbx_gt.txt"
_ENCODING = "utf-8-sig"  # Windows begins a file with a byte order mark
_NUMBERS = 10  # of a row; the name of a class follows


def read_wider_face(path: Path) -> ImagesAndProblems:
    """Return the labelled images of a folder or tar shard, and the problems.

    Raises:
        DataError: the path holds no annotation file, or is no folder and no uncompressed tar file.
    """
    images: list[LabelledImage] = []
    problems: list[Problem] = []
    (_read_folder if path.is_dir() else _read_tar)(path, images, problems)
    return images, problems


@dataclass(frozen=True)
class _Entry:
    name: str
    line: int
    boxes: npt.NDArray[np.float32]
    ignore: npt.NDArray[np.bool_]
    classes: tuple[str, ...]

    def says_the_same_as(self, other: _Entry) -> bool:
        """Return whether both have the same boxes, in the same order."""
        return (
            np.array_equal(self.boxes, other.boxes)
            and np.array_equal(self.ignore, other.ignore)
            and self.classes == other.classes
        )


def parse_annotations(text: str, file_name: str) -> tuple[list[_Entry], list[Problem]]:
    """Parse the text of a `*_bbx_gt.txt`. Skip and report bad rows.

    Skip an entry if its count cannot be read or does not fit its rows. Skip all entries of an image that is
    listed with different boxes. An image with unlabelled faces would teach the wrong thing.
    """
    lines = text.splitlines()
    entries: list[_Entry] = []
    problems: list[Problem] = []
    position = 0

    def report(line: int, message: str) -> None:
        problems.append(Problem(f"{file_name}:{line + 1}", message))

    while position < len(lines):
        name = lines[position].strip().replace("\\", "/")  # Windows
        start = position
        position += 1
        if not name:
            continue
        if not _is_image_name(name):
            report(start, f"expected an image file name, got {name[:QUOTED]!r}")
            continue
        count_text = lines[position].strip() if position < len(lines) else ""
        if not count_text.isdecimal():
            report(
                position,
                f"expected the number of boxes of {name}, got {count_text[:QUOTED]!r}; image skipped",
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
        parsed = []
        for index, text_row in enumerate(rows):
            row = _parse_row(text_row, f"{file_name}:{position + index + 1}")
            if isinstance(row, str):
                report(position + index, f"{row}; box skipped")
            else:
                parsed.append(row)
        position += count
        if count == 0 and position < len(lines) and not _is_image_name(lines[position].strip()):
            position += 1  # the line of zeros
        entries.append(_Entry(name, start + 1, *arrays_of(parsed, problems)))
    return _without_contradictions(entries, file_name, problems), problems


def _without_contradictions(
    entries: Sequence[_Entry], file_name: str, problems: list[Problem]
) -> list[_Entry]:
    """Return one entry per image. Skip all entries of an image that is listed with different boxes."""
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


def _parse_row(row: str, origin: str) -> Row | str:
    """Return a labelled box, or the rule that the row breaks."""
    fields = row.split(maxsplit=_NUMBERS)
    name = " ".join(fields.pop().split()) if len(fields) > _NUMBERS else ""
    if len(fields) < 4:
        return f"a box needs at least x y w h, got {row.strip()!r}"
    try:
        values = [float(field) for field in fields]
    except ValueError:
        return f"a box must be numbers, got {row.strip()!r}"
    x, y, width, height = values[:4]
    if rule := box_problem(x, y, width, height):
        return f"{rule}, got {row.strip()!r}"
    return Row((x, y, x + width, y + height), len(values) > 7 and values[7] != 0, name, origin)


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
            f"{path} must be a folder or an uncompressed tar file of photographs and labels ({LAYOUT}), "
            f"got {error}"
        ) from error
    if not texts:
        raise DataError(f"{path} must hold a {ANNOTATION_PATTERN} file ({LAYOUT})")
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
        raise DataError(f"folder {path} must hold a {ANNOTATION_PATTERN} file, at any depth ({LAYOUT})")
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
    """Return the folders where images may lie: beside the file, or as the published archives unpack."""
    roots = [annotation.parent / "images"]
    for split in ("train", "val"):
        if split in annotation.name:
            roots.append(annotation.parent.parent / f"WIDER_{split}" / "images")
    return roots


def _labelled(entry: _Entry, path: Path, offset: int, size: int, origin: str) -> LabelledImage:
    return LabelledImage(
        entry.name, path, offset, size, entry.boxes, entry.ignore, f"{origin}:{entry.line}", entry.classes
    )
