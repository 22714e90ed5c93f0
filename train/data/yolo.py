"""Read photographs labelled in YOLO's layout: `data.yaml`, and a text file of normalised boxes per image."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from lensbox.common.errors import system_reason
from lensbox.common.fields import Orientation
from lensbox.runtime.images.orientation import orientation_of, upright_size
from lensbox.train.data.labels import (
    IMAGE_SUFFIXES,
    QUOTED,
    DataError,
    ImagesAndProblems,
    LabelledImage,
    Problem,
    Row,
    arrays_of,
    box_problem,
    spellings,
)

NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")

logger = logging.getLogger(__name__)


def description_file(path: Path) -> Path | None:
    """Return the `data.yaml` that a path names or a folder holds; else None."""
    if path.is_file():
        return path if path.suffix.lower() in (".yaml", ".yml") else None
    try:
        return next((path / name for name in NAMES if (path / name).is_file()), None)
    except OSError:  # a folder without permission: the reader of folders reports it
        return None


def read_yolo(path: Path, split: str = "train", orientation: Orientation = "exif") -> ImagesAndProblems:
    """Return the labelled images of one split of a YOLO data set, and the problems.

    `data.yaml` names the classes (`names`, a list or a mapping). For each split it names folders of images,
    or text files that list images. The labels of `…/images/a.jpg` are `…/labels/a.txt`. A row is
    `class x y width height` (the centre, as shares of the image), or a class and the corners of a polygon.
    With `kpt_shape: [K, D]` a box may be followed by K landmarks of D numbers, which are skipped. An image
    without a label file has no boxes; warn if most images have none.

    Args:
        orientation: of the picture that the shares refer to, see `LabelledImage`.

    Raises:
        DataError: `data.yaml` is missing or wrong, an image folder is not there, no image has a label file,
            or rows may be polygons as well as boxes with landmarks.
    """
    file = description_file(path)
    if file is None:
        raise DataError(f"{path} must be a YOLO data.yaml, or a folder that holds one")
    content = _load_yaml(file)
    names, landmarks = _names(file, content), _landmark_numbers(file, content)
    problems: list[Problem] = []
    read: list[tuple[Path, Path, tuple[int, int], list[_ParsedRow]]] = []
    missing: list[Path] = []
    for image in _images(file, content, split):
        try:
            size = _size(image.read_bytes(), orientation)
        except Exception as error:  # decoders raise a dozen types on broken files
            problems.append(Problem(str(image), f"image cannot be read: {error}"))
            continue
        labels = _labels_of(image)
        if not labels.is_file():
            missing.append(labels)
        read.append((image, labels, size, _parse_rows(labels, names, problems) if labels.is_file() else []))
    _check_missing(f"{file}: {split}", missing, len(read))
    if landmarks is None:
        _refuse_ambiguous(file, [row for *_, rows in read for row in rows])
    found = []
    for image, labels, size, rows in read:
        boxes = []
        for row in rows:
            box = _box_of(row.values, landmarks or 0, size)
            if isinstance(box, str):
                problems.append(Problem(row.origin, f"{box}, got {row.text!r}; box skipped"))
            else:
                boxes.append(Row(box, False, row.name, row.origin))
        array, ignore, classes = arrays_of(boxes, problems)
        found.append(LabelledImage(image.name, image, 0, -1, array, ignore, str(labels), classes))
    return found, problems


class _ParsedRow(NamedTuple):
    origin: str
    text: str
    name: str
    values: list[float]


def _load_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        # Every scalar stays text: the class `no` must not become False, nor `1` a number.
        content = yaml.load(file.read_text(encoding="utf-8-sig"), Loader=yaml.BaseLoader)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {system_reason(error)}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{file} must be YAML: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} must be a mapping with names, train and val, got {type(content).__name__}")
    return content


def _names(file: Path, content: Mapping[str, Any]) -> dict[float, str]:
    """Return the names of the classes by number."""
    given = content.get("names")
    pairs = enumerate(given) if isinstance(given, list) else given.items() if isinstance(given, dict) else ()
    names: dict[float, str]
    try:
        names = {int(label): name for label, name in pairs}
    except ValueError:
        names = {}
    if not names or not all(isinstance(name, str) for name in names.values()):
        raise DataError(f"{file}: names must list the classes, got {given!r}")
    return names


def _landmark_numbers(file: Path, content: Mapping[str, Any]) -> int | None:
    """Return how many numbers follow a box; 0 for polygons, None if `kpt_shape` is missing."""
    shape = content.get("kpt_shape")
    if shape is None:
        return None
    if isinstance(shape, list) and len(shape) == 2 and all(map(str.isdecimal, map(str, shape))):
        landmarks, numbers = map(int, shape)
        if not landmarks or numbers in (2, 3):
            return landmarks * numbers
    raise DataError(f"{file}: kpt_shape must be [landmarks, 2 or 3 numbers of each], got {shape!r}")


def _images(file: Path, content: Mapping[str, Any], split: str) -> list[Path]:
    places = content.get(split)
    places = places if isinstance(places, list) else [places]
    if not all(isinstance(place, str) for place in places):
        raise DataError(f"{file}: {split} must name a folder of images, got {content.get(split)!r}")
    root = file.parent / spellings(str(content.get("path") or ""))[-1]
    images: list[Path] = []
    for name in places:
        # Some tools write `../train/images` for a folder beside data.yaml.
        place = _first([root, file.parent], [*spellings(name), spellings(name)[-1].removeprefix("../")])
        if place is None:
            raise DataError(f"{file}: {split} must name a folder that exists, got {name!r}")
        if place.is_dir():
            images += sorted(image for image in place.rglob("*") if image.suffix.lower() in IMAGE_SUFFIXES)
        else:
            lines = [line.strip() for line in _lines(place) if line.strip()]
            images += [_first([place.parent, root], spellings(line)) or place.parent / line for line in lines]
    return images


def _first(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    """Return the first of these paths that exists."""
    return next((path for name in names for path in (one / name for one in folders) if path.exists()), None)


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8-sig", errors="replace").splitlines()


def _size(content: bytes, orientation: Orientation) -> tuple[int, int]:
    """Return width and height of an image file's picture, upright or as stored."""
    with Image.open(io.BytesIO(content)) as picture:
        size = picture.size
    return upright_size(size, orientation_of(content)) if orientation == "exif" else size


def _labels_of(image: Path) -> Path:
    """Return the label file of an image: `labels` in the place of the last folder `images`."""
    parts = list(image.parent.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts, f"{image.stem}.txt")


def _check_missing(where: str, missing: Sequence[Path], images: int) -> None:
    """Raise DataError if all images lack a label file; warn if most do."""
    if not missing or 2 * len(missing) <= images:
        return
    message = f"{len(missing)} of {images} photographs have no label file, such as {missing[0]}"
    if len(missing) == images:
        raise DataError(f"{where}: {message}; a photograph without objects needs an empty file")
    logger.warning("%s: %s; they are background", where, message)


def _parse_rows(labels: Path, names: Mapping[float, str], problems: list[Problem]) -> list[_ParsedRow]:
    """Return the rows of a label file. Skip and report rows that are no numbers, or of an unknown class."""
    rows = []
    for line, text in enumerate(map(str.strip, _lines(labels)), 1):
        if not text:
            continue
        origin = f"{labels}:{line}"
        try:
            label, *values = map(float, text.split())
        except ValueError:
            rule = "a row must be numbers: class x y width height"
        else:
            if label in names:
                rows.append(_ParsedRow(origin, text[:QUOTED], names[label], values))
                continue
            rule = f"the class must be one of the {len(names)} names of data.yaml"
        problems.append(Problem(origin, f"{rule}, got {text[:QUOTED]!r}; box skipped"))
    return rows


def _refuse_ambiguous(file: Path, rows: Sequence[_ParsedRow]) -> None:
    """Raise DataError if the longer rows may be boxes with landmarks as well as polygons.

    All rows with landmarks are equally long, and begin with a box within the picture. Most sets of polygons
    are not: the first corners as centre and size of a box give boxes that reach beyond the picture.
    """
    long = [row for row in rows if len(row.values) >= 6 and len(row.values) % 2 == 0]
    fitting = [row for row in long if _is_share(*_corners(row.values))]
    if len({len(row.values) for row in long}) == 1 and 2 * len(fitting) > len(long):
        count = len(long[0].values)
        raise DataError(
            f"{fitting[0].origin}: {count} numbers after the class may be a box with landmarks or a polygon; "
            f"{file} must say which: kpt_shape: [{(count - 4) // 2}, 2] for landmarks of two numbers, [0, 0] "
            f"for polygons, got none"
        )


def _corners(values: Sequence[float]) -> list[float]:
    """Return xyxy of the box whose centre and size the values begin with."""
    x, y, width, height = values[:4]
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def _is_share(*values: float) -> bool:
    return all(-0.01 <= value <= 1.01 for value in values)  # false for NaN; tools round


def _box_of(
    values: Sequence[float], landmarks: int, size: tuple[int, int]
) -> tuple[float, float, float, float] | str:
    """Return a box (xyxy, pixels), or the rule that the row breaks.

    landmarks: numbers that may follow a box; 0 if longer rows are polygons.
    """
    if landmarks and len(values) == 4 + landmarks:
        values = values[:4]
    if len(values) == 4:
        corners = _corners(values)
    elif landmarks:
        return f"a row must be class x y width height, and {landmarks} numbers of landmarks (kpt_shape)"
    elif len(values) >= 6 and len(values) % 2 == 0:
        corners = [min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])]
    else:
        return "a row must be class x y width height, or a class and the corners of a polygon"
    if not _is_share(*values):
        return "coordinates must be shares of the image, from 0 to 1"
    x1, y1, x2, y2 = (value * side for value, side in zip(corners, size * 2, strict=True))
    return box_problem(x1, y1, x2 - x1, y2 - y1) or (x1, y1, x2, y2)
