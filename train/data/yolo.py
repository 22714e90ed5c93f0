"""Read photographs labelled in YOLO's layout: `data.yaml`, and a text file of normalised boxes per image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lensbox.common.errors import system_reason
from lensbox.train.data.labels import (
    IMAGE_SUFFIXES,
    QUOTED,
    DataError,
    ImagesAndProblems,
    LabelledImage,
    Problem,
    box_problem,
)

NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")


def description_file(path: Path) -> Path | None:
    """Return the `data.yaml` that a path names or a folder holds; else None."""
    if path.is_file():
        return path if path.suffix in (".yaml", ".yml") else None
    try:
        return next((path / name for name in NAMES if (path / name).is_file()), None)
    except OSError:  # a folder without permission: the reader of folders reports it
        return None


def read_yolo(path: Path, split: str = "train") -> ImagesAndProblems:
    """Return the labelled images of one split of a YOLO data set, and the problems.

    `data.yaml` names the classes (`names`, a list or a mapping). For each split it names folders of images,
    or text files that list images. The labels of `…/images/a.jpg` are `…/labels/a.txt`. A row is
    `class x y width height` (the centre, as shares of the image), or a class and the corners of a polygon. An
    image without such a file has no boxes.

    Raises:
        DataError: `data.yaml` is missing or wrong, or an image folder is not there.
    """
    file = description_file(path)
    if file is None:
        raise DataError(f"{path} must be a YOLO data.yaml, or a folder that holds one")
    content = _load_yaml(file)
    names = content.get("names")
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not all(isinstance(label, int) for label in names):
        raise DataError(f"{file}: names must list the classes, got {names!r}")
    found: list[LabelledImage] = []
    problems: list[Problem] = []
    for image in _images(file, content, split):
        try:
            with Image.open(image) as picture:
                size = picture.size
        except Exception as error:  # decoders raise a dozen types on broken files
            problems.append(Problem(str(image), f"image cannot be read: {error}"))
            continue
        labels = _labels_of(image)
        boxes, classes = [], []
        for line, row in enumerate(_lines(labels) if labels.is_file() else [], 1):
            if not row.strip():
                continue
            parsed = _parse_row(row, names, size)
            if isinstance(parsed, str):
                problems.append(
                    Problem(f"{labels}:{line}", f"{parsed}, got {row.strip()[:QUOTED]!r}; box skipped")
                )
            else:
                boxes.append(parsed[0])
                classes.append(parsed[1])
        array = np.array(boxes, np.float32).reshape(-1, 4)
        ignore = np.zeros(len(boxes), np.bool_)
        found.append(LabelledImage(image.name, image, 0, -1, array, ignore, str(labels), tuple(classes)))
    return found, problems


def _load_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {system_reason(error)}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{file} must be YAML: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} must be a mapping with names, train and val, got {type(content).__name__}")
    return content


def _images(file: Path, content: Mapping[str, Any], split: str) -> list[Path]:
    places = content.get(split)
    places = places if isinstance(places, list) else [places]
    if not all(isinstance(place, str) for place in places):
        raise DataError(f"{file}: {split} must name a folder of images, got {content.get(split)!r}")
    root = file.parent / str(content.get("path") or "")
    images: list[Path] = []
    for name in places:
        # Some tools write `../train/images` for a folder beside data.yaml.
        options = [root / name, file.parent / name, file.parent / name.removeprefix("../")]
        place = next((option for option in options if option.exists()), None)
        if place is None:
            raise DataError(f"{file}: {split} must name a folder that exists, got {name!r}")
        if place.is_dir():
            images += sorted(image for image in place.rglob("*") if image.suffix.lower() in IMAGE_SUFFIXES)
        else:
            images += [place.parent / line.strip() for line in _lines(place) if line.strip()]
    return images


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8-sig", errors="replace").splitlines()


def _labels_of(image: Path) -> Path:
    """Return the label file of an image: `labels` in the place of the last folder `images`."""
    parts = list(image.parent.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts, f"{image.stem}.txt")


def _parse_row(row: str, names: Mapping[int, Any], size: tuple[int, int]) -> tuple[list[float], str] | str:
    """Return box (xyxy, pixels) and class name, or the rule that the row breaks."""
    try:
        label, *values = map(float, row.split())
    except ValueError:
        return "a row must be numbers: class x y width height"
    if label not in names:
        return f"the class must be one of the {len(names)} names of data.yaml"
    if len(values) == 4:
        x, y, width, height = values
        corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    elif len(values) >= 6 and len(values) % 2 == 0:
        corners = [min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])]
    else:
        return "a row must be class x y width height, or a class and the corners of a polygon"
    if not all(-0.01 <= value <= 1.01 for value in values):  # false for NaN; tools round
        return "coordinates must be shares of the image, from 0 to 1"
    x1, y1, x2, y2 = (value * side for value, side in zip(corners, size * 2, strict=True))
    if rule := box_problem(x1, y1, x2 - x1, y2 - y1):
        return rule
    return [x1, y1, x2, y2], str(names[int(label)])
