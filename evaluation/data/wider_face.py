"""Read photographs labelled in the WIDER FACE layout, from folders or uncompressed tar shards.

A shard or folder holds `images/<source>/<file>` and a `*_bbx_gt.txt` beside `images`: a file name, a count,
then a line `x y w h blur expression illumination invalid occlusion pose` per box (pixels; a line of zeros
where the count is 0). The text after these ten numbers names the class of the box, for detectors with
classes. The published archives (`wider_face_split/wider_face_train_bbx_gt.txt` beside
`WIDER_train/images`) are understood as well. `invalid` = 1 marks a box to ignore.
"""

import re
import tarfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path, PurePath, PurePosixPath

from lensbox.common.errors import reading
from lensbox.common.files import open_regular
from lensbox.common.pictures import IMAGE_SUFFIXES
from lensbox.evaluation.data.account import MISSING, TWICE, Account
from lensbox.evaluation.data.files import files_below, find_file
from lensbox.evaluation.data.labels import (
    ANNOTATION_PATTERN,
    LAYOUT,
    QUOTED,
    DataError,
    LabelledImage,
    Row,
    read_rows,
    read_text,
)

_NUMBERS = 10  # of a row; the name of a class follows
COUNT = "photographs skipped: their count does not fit their rows"

Entry = tuple[int, list[tuple[str, str]]]  # the line of an image, and its rows with their places
Part = tuple[Path, int, int]  # a file, where bytes start in it, and how many they are


def read_wider_face(path: Path, account: Account) -> Iterator[LabelledImage]:
    """Yield the labelled images of a folder or tar shard. Add to the account.

    Raise DataError if the path holds no annotation file, or is no folder and no uncompressed tar file.
    """
    is_shard = not path.is_dir()
    members = _members(path) if is_shard else {}
    names: Iterable[PurePath] = members
    if not is_shard:
        with reading(f"folder {path}", DataError):
            next(path.iterdir(), None)  # rglob passes over folders that cannot be read
        names = files_below(path)
    # macOS keeps attributes of a file beside it, in one whose name begins with "._".
    annotations = [one for one in names if one.match(ANNOTATION_PATTERN) and not one.name.startswith("._")]
    if not annotations:
        what = f"{path} must hold a {ANNOTATION_PATTERN} file" if is_shard else _expected(path)
        raise DataError(f"{what} ({LAYOUT})")
    for annotation in annotations:
        roots = [annotation.parent / "images"]
        file, origin, where = members.get(annotation), f"{path}:{annotation}", "the shard"
        if file is None:
            splits = (split for split in ("train", "val") if split in annotation.name)
            roots += [annotation.parent.parent / f"WIDER_{split}" / "images" for split in splits]
            file, origin, where = (Path(annotation), 0, -1), str(annotation), ", ".join(map(str, roots))
        for name, (line, rows) in parse_annotations(read_text(*file), origin, account).items():
            found = None if is_shard else find_file(list(map(Path, roots)), name)
            photo = (found[1], 0, -1) if found else members.get(roots[0] / name)
            place = f"{origin}:{line}"
            if photo is None:
                account.skip(MISSING, f"{place}: image {name[:300]} is not in {where}", photographs=1)
                continue
            yield LabelledImage(name, photo[0], *read_rows(rows, _parse_row, account), place, *photo[1:])


def _members(shard: Path) -> dict[PurePath, Part]:
    """Return the files of an uncompressed tar file by name."""
    try:
        with (
            reading(shard, DataError),
            open_regular(shard) as file,
            tarfile.open(fileobj=file, mode="r:") as archive,
        ):
            files = [member for member in archive.getmembers() if member.isfile()]
    except tarfile.TarError as error:
        message = f"{shard} must be a folder or an uncompressed tar file of photographs and labels ({LAYOUT})"
        raise DataError(f"{message}, got {error}") from error
    # `tar -C photos -cf x.tar .` begins every name with "./".
    return {PurePosixPath(one.name): (shard, one.offset_data, one.size) for one in files}


def _expected(folder: Path) -> str:
    """Return what a folder without labels of its own should hold, and the label files near it."""
    patterns = ("*.json", "annotations/*.json", "*/_annotations.coco.json", "*/data.y*ml")
    if near := [str(file) for pattern in patterns for file in sorted(folder.glob(pattern))]:
        return f"folder {folder} must hold one label file; name one of {', '.join(near)}"
    what = f"one COCO file (*.json), data.yaml of YOLO, or a {ANNOTATION_PATTERN} file at any depth"
    return f"folder {folder} must hold {what}"


def parse_annotations(text: str, origin: str, account: Account) -> dict[str, Entry]:
    """Return the images of a `*_bbx_gt.txt` by name. origin: the file, for messages.

    Skip and report an image whose count cannot be read or does not fit its rows: an image with unlabelled
    faces would teach the wrong thing.
    """
    found: dict[str, Entry] = {}
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    starts = [index for index, (_, line) in enumerate(lines) if line.lower().endswith(IMAGE_SUFFIXES)]
    if lines and (not starts or starts[0] > 0):
        message = f"{origin}:{lines[0][0]}: expected an image name, got {lines[0][1][:QUOTED]!r}"
        account.skip("rows skipped: no image name", message)
    for start, end in pairwise([*starts, len(lines)]):
        number, name = lines[start][0], lines[start][1].replace("\\", "/")  # Windows
        count = lines[start + 1][1] if start + 1 < end else ""
        rows = [] if count == "0" else lines[start + 2 : end]  # after a 0 stands a line of zeros
        if name in found:
            message = f"image {name} is listed again, at first in line {found[name][0]}"
        elif not re.fullmatch("[0-9]+", count):
            message = f"expected the number of boxes of {name}, got {count[:QUOTED]!r}"
        elif int(count) != len(rows):
            message = f"{name} announces {int(count)} boxes and has {len(rows)}"
        else:
            found[name] = number, [(f"{origin}:{line}", row) for line, row in rows]
            continue
        row = TWICE if name in found else COUNT
        account.skip(row, f"{origin}:{number}: {message}; image skipped", photographs=1)
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
