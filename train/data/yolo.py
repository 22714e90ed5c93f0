"""Read photographs labelled in YOLO's layout: `data.yaml`, and a text file of normalised boxes per image."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from lensbox.common.fields import Orientation
from lensbox.runtime.images.orientation import orientation_of, upright_size
from lensbox.train.data.labels import (
    IMAGE_SUFFIXES,
    DataError,
    LabelledImage,
    Row,
    read_rows,
    read_text,
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


def read_yolo(file: Path, problems: list[str], split: str, orientation: Orientation) -> list[LabelledImage]:
    """Return the labelled images of one split of a YOLO data set. Add to `problems`.

    file: a `data.yaml`. It names the classes (`names`, a list or a mapping). For each split it names folders
    of images, or text files that list images. The labels of `…/images/a.jpg` are `…/labels/a.txt`. A row is
    `class x y width height` (the centre, as shares of the image), or a class and the corners of a polygon.
    With `kpt_shape: [K, D]` a box may be followed by K landmarks of D numbers, which are skipped. Longer rows
    need `kpt_shape`, [0, 0] for polygons: a box with landmarks could be taken for a polygon. An image
    without a label file has no boxes; warn if most images have none.

    Args:
        orientation: of the picture that the shares refer to, see `LabelledImage`.

    Raises:
        DataError: the file is wrong, a folder is missing, or no image has a label file.
    """
    description = _load_yaml(file)
    names, landmarks = _names(file, description), _landmark_numbers(file, description)
    found: list[LabelledImage] = []
    missing: list[Path] = []
    for image in _images(file, description, split):
        try:
            content = image.read_bytes()
            with Image.open(io.BytesIO(content)) as picture:
                size = picture.size
            size = upright_size(size, orientation_of(content)) if orientation == "exif" else size
        except Exception as error:  # decoders raise a dozen types on broken files
            problems.append(f"{image}: image cannot be read: {error}")
            continue
        labels = _labels_of(image)
        if not labels.is_file():
            missing.append(labels)
        lines = read_text(labels).splitlines() if labels.is_file() else []
        rows = [(f"{labels}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
        if landmarks is None and (long := next((row for row in rows if len(row[1].split()) > 6), None)):
            rule = f"{file} must say what follows the class in rows of more than four numbers"
            raise DataError(f"{long[0]}: {rule}: kpt_shape: [landmarks, numbers], or [0, 0] for polygons")
        boxes = read_rows(
            rows, partial(_parse_row, names=names, landmarks=landmarks or 0, size=size), problems
        )
        found.append(LabelledImage(image.name, image, *boxes, str(labels)))
    if 2 * len(missing) > len(found):
        message = f"{len(missing)} of {len(found)} photographs have no label file, such as {missing[0]}"
        if len(missing) == len(found):
            raise DataError(f"{file}: {split}: {message}; a photograph without objects needs an empty file")
        logger.warning("%s: %s: %s; they are background", file, split, message)
    return found


def _load_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        # Every scalar stays text: the class `no` must not become False, nor `1` a number.
        content = yaml.load(read_text(file), Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise DataError(f"{file} must be YAML: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} must be a mapping with names, train and val, got {type(content).__name__}")
    return content


def _names(file: Path, content: Mapping[str, Any]) -> dict[float, str]:
    """Return the names of the classes by number."""
    given = content.get("names")
    pairs = enumerate(given) if isinstance(given, list) else given.items() if isinstance(given, dict) else ()
    try:
        if names := {float(label): str(name) for label, name in pairs}:
            return names
    except ValueError:
        pass
    raise DataError(f"{file}: names must list the classes, got {given!r}")


def _landmark_numbers(file: Path, content: Mapping[str, Any]) -> int | None:
    """Return how many numbers may follow a box: 0 if longer rows are polygons, None if the file is silent."""
    shape = content.get("kpt_shape")
    if shape is None:
        return None
    if isinstance(shape, list) and len(shape) == 2 and all(map(str.isdecimal, map(str, shape))):
        return int(shape[0]) * int(shape[1])
    raise DataError(f"{file}: kpt_shape must be [landmarks, numbers of each], got {shape!r}")


def _images(file: Path, content: Mapping[str, Any], split: str) -> list[Path]:
    places = content.get(split)
    places = places if isinstance(places, list) else [places]
    if not all(isinstance(place, str) for place in places):
        raise DataError(f"{file}: {split} must name a folder of images, got {content.get(split)!r}")
    folders = [file.parent / _local(str(content.get("path") or "")), file.parent]
    images: list[Path] = []
    for name in map(_local, places):
        # Some tools write `../train/images` for a folder beside data.yaml.
        place = _first(folders, name) or _first(folders, name.removeprefix("../"))
        if place is None:
            raise DataError(f"{file}: {split} must name a folder that exists, got {name!r}")
        if place.is_dir():
            images += sorted(image for image in place.rglob("*") if image.suffix.lower() in IMAGE_SUFFIXES)
        else:
            lines = [_local(line.strip()) for line in read_text(place).splitlines() if line.strip()]
            images += [_first([place.parent, *folders], line) or place.parent / line for line in lines]
    return images


def _local(name: str) -> str:
    return name.replace("\\", "/")  # Windows


def _first(folders: Sequence[Path], name: str) -> Path | None:
    """Return the first path of this name that exists."""
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _labels_of(image: Path) -> Path:
    """Return the label file of an image: `labels` in the place of the last folder `images`."""
    parts = list(image.parent.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts, f"{image.stem}.txt")


def _parse_row(text: str, names: Mapping[float, str], landmarks: int, size: tuple[int, int]) -> Row:
    """Return a box in pixels. landmarks: numbers that may follow a box; 0 if longer rows are polygons."""
    try:
        label, *values = map(float, text.split())
    except ValueError:
        raise ValueError("a row must be numbers: class x y width height") from None
    if label not in names:
        raise ValueError(f"the class must be one of the {len(names)} names of data.yaml")
    if landmarks and len(values) == 4 + landmarks:
        values = values[:4]
    if len(values) == 4:
        x, y, width, height = values
        corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    elif not landmarks and len(values) >= 6 and len(values) % 2 == 0:
        corners = [min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])]
    else:
        longer = f"{landmarks} numbers of landmarks" if landmarks else "a class and the corners of a polygon"
        raise ValueError(f"a row must be class x y width height, or {longer}")
    if not all(-0.01 <= value <= 1.01 for value in values):  # false for NaN; tools round
        raise ValueError("coordinates must be shares of the image, from 0 to 1")
    x1, y1, x2, y2 = (value * side for value, side in zip(corners, size * 2, strict=True))
    return Row(x1, y1, x2 - x1, y2 - y1, name=names[label])
