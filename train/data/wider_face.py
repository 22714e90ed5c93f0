"""Read photographs labelled in the WIDER FACE layout, from folders or uncompressed tar shards.

A shard or folder holds `images/<source>/<file>` and a `*_bbx_gt.txt` beside `images`: a file name, a count,
then a line `x y w h blur expression illumination invalid occlusion pose` per box (pixels; a line of zeros
where the count is 0). The text after these ten numbers names the class of the box, for detectors with
classes. The published archives (`wider_face_split/wider_face_train_bbx_gt.txt` beside
`WIDER_train/images`) are understood as well. `invalid` = 1 marks a box to ignore.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple

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
    read_rows,
    read_text,
)

ANNOTATION_PATTERN = "*_bbx_gt.txt"
_NUMBERS = 10  # of a row; the name of a class follows

File = tuple[Path, int, int]  # that holds an image, where its bytes start, and how many they are


class Entry(NamedTuple):
    """An image of a label file: its name and the line of it, and its rows with their places."""

    name: str
    line: int
    rows: list[tuple[str, str]]


def read_wider_face(path: Path) -> ImagesAndProblems:
    """Return the labelled images of a folder or tar shard, and the problems.

    Raises:
        DataError: the path holds no annotation file, or is no folder and no uncompressed tar file.
    """
    images: list[LabelledImage] = []
    problems: list[Problem] = []
    for annotation, text, files in (_folder if path.is_dir() else _shard)(path):
        for entry in parse_annotations(text, annotation, problems):
            place = f"{annotation}:{entry.line}"
            file = files.find(entry.name)
            if file is None:
                problems.append(Problem(place, f"image {entry.name} is not in {files}"))
                continue
            labels = read_rows(entry.rows, _parse_row, problems)
            images.append(LabelledImage(entry.name, file[0], *labels, place, *file[1:]))
    return images, problems


def parse_annotations(text: str, origin: str, problems: list[Problem]) -> list[Entry]:
    """Return the images of a `*_bbx_gt.txt`, each once. origin: the file, for messages.

    Skip and report an image whose count cannot be read or does not fit its rows: an image with unlabelled
    faces would teach the wrong thing.
    """
    found: dict[str, Entry] = {}
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    starts = [index for index, (_, line) in enumerate(lines) if line.lower().endswith(IMAGE_SUFFIXES)]
    if lines and (not starts or starts[0] > 0):
        number, line = lines[0]
        problems.append(Problem(f"{origin}:{number}", f"expected an image name, got {line[:QUOTED]!r}"))
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        number, name = lines[start][0], lines[start][1].replace("\\", "/")  # Windows
        count = lines[start + 1][1] if start + 1 < end else ""
        rows = [] if count == "0" else lines[start + 2 : end]  # after a 0 stands a line of zeros
        if name in found:
            message = f"image {name} is listed again, at first in line {found[name].line}"
        elif not re.fullmatch("[0-9]+", count):
            message = f"expected the number of boxes of {name}, got {count[:QUOTED]!r}"
        elif int(count) != len(rows):
            message = f"{name} announces {int(count)} boxes and has {len(rows)}"
        else:
            found[name] = Entry(name, number, [(f"{origin}:{line}", row) for line, row in rows])
            continue
        problems.append(Problem(f"{origin}:{number}", f"{message}; image skipped"))
    return list(found.values())


def _parse_row(text: str) -> Row:
    fields = text.split(maxsplit=_NUMBERS)
    name = " ".join(fields.pop().split()) if len(fields) > _NUMBERS else ""
    if len(fields) < 4:
        raise ValueError("a box needs at least x y w h")
    try:
        x, y, width, height, *others = map(float, fields)
    except ValueError:
        raise ValueError("a box must be numbers") from None
    return Row(x, y, width, height, len(others) > 3 and others[3] != 0, name)


class _Folders(NamedTuple):
    """Folders in which images may lie: beside the label file, or as the published archives unpack."""

    roots: list[Path]

    def find(self, name: str) -> File | None:
        return next(((root / name, 0, -1) for root in self.roots if (root / name).is_file()), None)

    def __str__(self) -> str:
        return ", ".join(map(str, self.roots))


class _Members(NamedTuple):
    """The files of a tar shard, and the folder in it with a label file."""

    path: Path
    members: dict[str, tarfile.TarInfo]
    folder: PurePosixPath

    def find(self, name: str) -> File | None:
        member = self.members.get(str(self.folder / "images" / name))
        return (self.path, member.offset_data, member.size) if member is not None else None

    def __str__(self) -> str:
        return "the shard"


def _folder(path: Path) -> Iterator[tuple[str, str, _Folders]]:
    try:
        next(path.iterdir(), None)  # rglob passes over folders that cannot be read
    except OSError as error:
        raise DataError(f"folder {path} cannot be read: {system_reason(error)}") from error
    annotations = sorted(filter(_is_annotation, path.rglob(ANNOTATION_PATTERN)))
    if not annotations:
        raise DataError(f"folder {path} must hold a {ANNOTATION_PATTERN} file, at any depth ({LAYOUT})")
    for annotation in annotations:
        above = annotation.parent.parent
        published = [above / f"WIDER_{split}" for split in ("train", "val") if split in annotation.name]
        roots = [folder / "images" for folder in (annotation.parent, *published)]
        yield str(annotation), read_text(annotation), _Folders(roots)


def _shard(path: Path) -> Iterator[tuple[str, str, _Members]]:
    try:
        with tarfile.open(path, "r:") as archive:
            # `tar -C photos -cf x.tar .` begins every name with "./".
            members = {str(PurePosixPath(one.name)): one for one in archive.getmembers() if one.isfile()}
            annotations = [name for name in members if _is_annotation(PurePosixPath(name))]
            files = [archive.extractfile(members[name]) for name in annotations]
            contents = [file.read() for file in files if file is not None]  # all are regular files
    except tarfile.TarError as error:
        message = f"{path} must be a folder or an uncompressed tar file of photographs and labels ({LAYOUT})"
        raise DataError(f"{message}, got {error}") from error
    if not annotations:
        raise DataError(f"{path} must hold a {ANNOTATION_PATTERN} file ({LAYOUT})")
    for name, content in zip(annotations, contents, strict=True):
        text = content.decode("utf-8-sig", errors="replace")
        yield f"{path}:{name}", text, _Members(path, members, PurePosixPath(name).parent)


def _is_annotation(path: PurePath) -> bool:
    # macOS keeps attributes of a file beside it, in one whose name begins with "._".
    return path.match(ANNOTATION_PATTERN) and not path.name.startswith("._")
