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
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath, PurePosixPath

from lensbox.common.errors import reading
from lensbox.common.pictures import IMAGE_SUFFIXES
from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import (
    LAYOUT,
    MISSING,
    QUOTED,
    DataError,
    LabelledImage,
    Row,
    read_rows,
    read_text,
)

ANNOTATION_PATTERN = "*_bbx_gt.txt"
_NUMBERS = 10  # of a row; the name of a class follows
TWICE = "names given twice"
COUNT = "photographs skipped: their count does not fit their rows"

Entry = tuple[int, list[tuple[str, str]]]  # the line of an image, and its rows with their places
File = tuple[Path, int, int]  # that holds an image, where its bytes start, and how many they are
# Name and text of a label file, what finds an image by its name, and where that looks, in words.
LabelFile = tuple[str, str, Callable[[str], File | None], str]


def read_wider_face(path: Path, account: Account) -> list[LabelledImage]:
    """Return the labelled images of a folder or tar shard. Add to the account.

    Raises:
        DataError: the path holds no annotation file, or is no folder and no uncompressed tar file.
    """
    images: list[LabelledImage] = []
    for origin, text, find, where in (_folder if path.is_dir() else _shard)(path):
        for name, (line, rows) in parse_annotations(text, origin, account).items():
            place = f"{origin}:{line}"
            file = find(name)
            if file is None:
                account.add("photographs found")
                account.skip(MISSING, f"{place}: image {name} is not in {where}")
                continue
            boxes = read_rows(rows, _parse_row, account)
            images.append(LabelledImage(name, file[0], *boxes, place, *file[1:]))
    return images


def parse_annotations(text: str, origin: str, account: Account) -> dict[str, Entry]:
    """Return the images of a `*_bbx_gt.txt` by name. origin: the file, for messages.

    Skip and report an image whose count cannot be read or does not fit its rows: an image with unlabelled
    faces would teach the wrong thing.
    """
    found: dict[str, Entry] = {}
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    starts = [index for index, (_, line) in enumerate(lines) if line.lower().endswith(IMAGE_SUFFIXES)]
    if lines and (not starts or starts[0] > 0):
        number, line = lines[0]
        line = f"{origin}:{number}: expected an image name, got {line[:QUOTED]!r}"
        account.skip("rows skipped: no image name", line)
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        number, name = lines[start][0], lines[start][1].replace("\\", "/")  # Windows
        count = lines[start + 1][1] if start + 1 < end else ""
        rows = [] if count == "0" else lines[start + 2 : end]  # after a 0 stands a line of zeros
        if name in found:
            row, message = TWICE, f"image {name} is listed again, at first in line {found[name][0]}"
        elif not re.fullmatch("[0-9]+", count):
            row, message = COUNT, f"expected the number of boxes of {name}, got {count[:QUOTED]!r}"
        elif int(count) != len(rows):
            row, message = COUNT, f"{name} announces {int(count)} boxes and has {len(rows)}"
        else:
            found[name] = number, [(f"{origin}:{line}", row) for line, row in rows]
            continue
        account.add("photographs found")
        account.skip(row, f"{origin}:{number}: {message}; image skipped")
    return found


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


def _folder(path: Path) -> Iterator[LabelFile]:
    with reading(f"folder {path}", DataError):
        next(path.iterdir(), None)  # rglob passes over folders that cannot be read
    annotations = sorted(filter(_is_annotation, path.rglob(ANNOTATION_PATTERN)))
    if not annotations:
        raise DataError(f"folder {path} must hold {_expected(path)} ({LAYOUT})")
    for annotation in annotations:
        above = annotation.parent.parent
        published = [above / f"WIDER_{split}" for split in ("train", "val") if split in annotation.name]
        roots = [folder / "images" for folder in (annotation.parent, *published)]

        def find(name: str, roots: list[Path] = roots) -> File | None:
            return next(((root / name, 0, -1) for root in roots if (root / name).is_file()), None)

        yield str(annotation), read_text(annotation), find, ", ".join(map(str, roots))


def _expected(folder: Path) -> str:
    """Return what a folder without labels of its own should hold, and the label files near it."""
    near = [
        file
        for pattern in ("*.json", "annotations/*.json", "*/_annotations.coco.json", "*/data.y*ml")
        for file in sorted(folder.glob(pattern))
    ]
    if near:
        return f"one label file; name one of {', '.join(map(str, near))}"
    return f"one COCO file (*.json), data.yaml of YOLO, or a {ANNOTATION_PATTERN} file at any depth"


def _shard(path: Path) -> Iterator[LabelFile]:
    try:
        with tarfile.open(path, "r:") as archive:
            # `tar -C photos -cf x.tar .` begins every name with "./".
            members = {PurePosixPath(one.name): one for one in archive.getmembers() if one.isfile()}
            annotations = list(filter(_is_annotation, members))
            files = [archive.extractfile(members[name]) for name in annotations]
            contents = [file.read() for file in files if file is not None]  # all are regular files
    except tarfile.TarError as error:
        message = f"{path} must be a folder or an uncompressed tar file of photographs and labels ({LAYOUT})"
        raise DataError(f"{message}, got {error}") from error
    if not annotations:
        raise DataError(f"{path} must hold a {ANNOTATION_PATTERN} file ({LAYOUT})")
    for annotation, content in zip(annotations, contents, strict=True):

        def find(name: str, images: PurePosixPath = annotation.parent / "images") -> File | None:
            member = members.get(images / name)
            return (path, member.offset_data, member.size) if member is not None else None

        text = content.decode("utf-8-sig", errors="replace")
        yield f"{path}:{annotation}", text, find, "the shard"


def _is_annotation(path: PurePath) -> bool:
    # macOS keeps attributes of a file beside it, in one whose name begins with "._".
    return path.match(ANNOTATION_PATTERN) and not path.name.startswith("._")
