"""Read photographs labelled in a COCO JSON file: boxes with categories, crowds as boxes to ignore."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lensbox.common.errors import system_reason
from lensbox.train.data.labels import (
    DataError,
    ImagesAndProblems,
    LabelledImage,
    Problem,
    box_problem,
    is_number,
)

Rows = list[dict[str, Any]]

_TABLES = ("images", "annotations", "categories")


def annotation_file(path: Path) -> Path | None:
    """Return the COCO JSON file that a path names or a folder holds (also in `annotations/`); else None."""
    if path.is_file():
        return path if path.suffix == ".json" else None
    try:
        files = sorted([*path.glob("*.json"), *path.glob("annotations/*.json")])
        return files[0] if len(files) == 1 and not any(path.glob("*_bbx_gt.txt")) else None
    except OSError:  # a folder without permission: the reader of folders reports it
        return None


def read_coco(path: Path) -> ImagesAndProblems:
    """Return the labelled images of a COCO JSON file, or of the folder that holds one, and the problems.

    A file `x.json` names images relative to its folder, to `images/` beside it, or to the folder above. It
    may also name a folder there, as `annotations/instances_val2017.json` does beside `val2017/`.

    Raises:
        DataError: there is no such file, or it is not what COCO describes.
    """
    file = annotation_file(path)
    if file is None:
        raise DataError(f"{path} must be a COCO JSON file, or a folder that holds exactly one")
    images, annotations, categories, problems = load_tables(file)
    names = {row["id"]: str(row.get("name", "")) for row in categories}
    boxes: defaultdict[Any, list[tuple[list[float], bool, str]]] = defaultdict(list)
    for row in annotations:
        if rule := box_problem(*row["bbox"]):
            message = f"bbox: {rule}, got {row['bbox']!r}; box skipped"
            problems.append(Problem(f"{file}: annotation {row.get('id')!r}", message))
            continue
        x, y, width, height = map(float, row["bbox"])
        box = [x, y, x + width, y + height]
        boxes[row["image_id"]].append((box, bool(row["iscrowd"]), names[row["category_id"]]))
    folders = [file.parent, file.parent / "images", file.parent.parent]
    folders += sorted(folder for folder in file.parent.parent.iterdir() if folder.is_dir())
    found = []
    for row in images:
        origin, name = f"{file}: image {row.get('id')}", str(row.get("file_name", ""))
        photo = next((folder / name for folder in folders if name and (folder / name).is_file()), None)
        if photo is None:
            problems.append(Problem(origin, f"file_name {name!r} is not beside {file.name}; image skipped"))
            continue
        of_image = boxes[row.get("id")]
        found.append(
            LabelledImage(
                name,
                photo,
                0,
                -1,
                np.array([box for box, _, _ in of_image], np.float32).reshape(-1, 4),
                np.array([crowd for _, crowd, _ in of_image], np.bool_),
                origin,
                tuple(category for _, _, category in of_image),
            )
        )
    return found, problems


def load_tables(file: Path) -> tuple[Rows, Rows, Rows, list[Problem]]:
    """Return images, annotations and categories of a COCO file, and a problem for each malformed annotation.

    `iscrowd` of the annotations is 0 or 1, also where the file has none.

    Raises:
        DataError: the file cannot be read, lacks one of the three lists, has bad or repeated ids of images or
            categories, or an `iscrowd` that is neither 0 nor 1.
    """
    content = load_json(file)
    tables = [content.get(name) if isinstance(content, dict) else None for name in _TABLES]
    if not all(isinstance(table, list) and all(isinstance(row, dict) for row in table) for table in tables):
        raise DataError(f"{file} must hold lists of objects: {', '.join(_TABLES)}")
    images, annotations, categories = (list(table or []) for table in tables)
    for name, table in (("images", images), ("categories", categories)):
        ids = set()
        for row in table:
            if not isinstance(row.get("id"), int) or not is_number(row["id"]) or row["id"] in ids:
                raise DataError(
                    f"{file}: {name} must have an integer id each, all different, got {row.get('id')!r}"
                )
            ids.add(row["id"])
    known, labels = ({row["id"] for row in table} for table in (images, categories))
    problems, good = [], []
    for row in annotations:
        place = f"{file}: annotation {row.get('id')!r}"
        crowd = row.get("iscrowd")
        if wrong := _wrong(row, known, labels):
            problems.append(Problem(place, f"{wrong}; box skipped"))
        elif crowd not in (None, 0, 1):
            raise DataError(f"{place}: iscrowd must be 0 or 1, got {crowd!r}")
        else:
            good.append({**row, "iscrowd": int(crowd or 0)})
    return images, good, categories, problems


def load_json(file: Path) -> Any:
    """Return the content of a JSON file. Raise DataError that names the file and the line."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {system_reason(error)}") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{file}:{error.lineno}: expected JSON, got {error.msg}") from error
    except ValueError as error:
        raise DataError(f"{file} must be JSON in UTF-8: {error}") from error


def _wrong(row: Mapping[str, Any], images: set[Any], categories: set[Any]) -> str | None:
    """Return the rule that an annotation breaks; None for a well-formed one."""
    image, category, box = (row.get(name) for name in ("image_id", "category_id", "bbox"))
    if not is_number(image) or image not in images:
        return f"image_id must be the id of an image, got {image!r}"
    if not is_number(category) or category not in categories:
        return f"category_id must be the id of a category, got {category!r}"
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        return f"bbox must be [x, y, width, height], all finite numbers, got {box!r}"
    return None
