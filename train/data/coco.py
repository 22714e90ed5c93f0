"""Read photographs labelled in a COCO JSON file: boxes with categories, crowds as boxes to ignore."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from lensbox.common.errors import system_reason
from lensbox.train.data.labels import (
    DataError,
    ImagesAndProblems,
    LabelledImage,
    Problem,
    Row,
    arrays_of,
    box_problem,
    is_number,
    spellings,
)
from lensbox.train.data.segmentation import enclosing_box

Rows = list[dict[str, Any]]

_TABLES = ("images", "annotations", "categories")
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("val", "valid", "validation"), "val")


def annotation_file(path: Path) -> Path | None:
    """Return the COCO JSON file that a path names or a folder holds (also in `annotations/`); else None."""
    if path.is_file():
        return path if path.suffix.lower() == ".json" else None
    try:
        files = sorted([*path.glob("*.json"), *path.glob("annotations/*.json")])
        return files[0] if len(files) == 1 and not any(path.glob("*_bbx_gt.txt")) else None
    except OSError:  # a folder without permission: the reader of folders reports it
        return None


def read_coco(path: Path) -> ImagesAndProblems:
    """Return the labelled images of a COCO JSON file, or of the folder that holds one, and the problems.

    `CocoFolders` says where the photographs are looked for.

    Raises:
        DataError: there is no such file, it is not what COCO describes, or a `file_name` fits two files.
    """
    file = annotation_file(path)
    if file is None:
        raise DataError(f"{path} must be a COCO JSON file, or a folder that holds exactly one")
    images, annotations, categories, problems = load_tables(file)
    names = {row["id"]: str(row.get("name", "")) for row in categories}
    rows: defaultdict[int, list[Row]] = defaultdict(list)
    for row in annotations:
        place = f"{file}: annotation {row.get('id')!r}"
        x, y, width, height = map(float, row["bbox"])
        if rule := box_problem(x, y, width, height):
            problems.append(Problem(place, f"bbox: {rule}, got {row['bbox']!r}; box skipped"))
            continue
        box = (x, y, x + width, y + height)
        rows[row["image_id"]].append(Row(box, bool(row["iscrowd"]), names[row["category_id"]], place))
    folders = CocoFolders(file)
    found = []
    for row in images:
        origin, name = f"{file}: image {row['id']}", str(row.get("file_name", ""))
        photo = folders.find(name)
        if photo is None:
            problems.append(Problem(origin, f"file_name {name!r} is not beside {file.name}; image skipped"))
            continue
        boxes, ignore, classes = arrays_of(rows[row["id"]], problems)
        found.append(LabelledImage(*photo, 0, -1, boxes, ignore, origin, classes, row["id"]))
    return found, problems


class CocoFolders:
    """Find the photographs of a COCO file, in groups of folders; the first group that has one decides.

    Folders are: the folder of the file and `images` in it, then the folder above and `images` in it, then
    all folders there. A folder with the split in its name, such as `train` or `val2017`, goes before these if
    the split is also in the name of the file, and is left out if another split is.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._splits = file, _splits_of(file.stem)

    def find(self, name: str) -> tuple[str, Path] | None:
        """Return name and path of a photograph. Raise DataError if two folders of a group have it."""
        for spelling in spellings(name) if name else []:
            for group in self._groups:
                paths = [folder / spelling for folder in group]
                found = {path.resolve(): path for path in paths if path.is_file()}
                if len(found) > 1:
                    raise DataError(
                        f"{self._file}: file_name {name!r} must be of one photograph, got "
                        f"{', '.join(map(str, found.values()))}"
                    )
                if found:
                    return spelling, next(iter(found.values()))
        return None

    @cached_property
    def _groups(self) -> list[list[Path]]:
        groups: list[list[Path]] = []
        for base in (self._file.parent, self._file.parent.parent):
            here = [base, base / "images"]
            own = [folder for place in here for folder in self._below(place) if _splits_of(folder.name)]
            own = own if self._splits else []
            words = re.split("[^a-z0-9]+", self._file.stem.lower())
            groups += [[folder for folder in own if folder.name.lower() in words], own, here]
        return [*groups, self._below(self._file.parent.parent)]

    def _below(self, place: Path) -> list[Path]:
        """Return the subfolders of `place`, but none of another split."""
        folders = sorted(one for one in place.iterdir() if one.is_dir()) if place.is_dir() else []
        return [one for one in folders if not self._splits or _splits_of(one.name) <= self._splits]


def _splits_of(name: str) -> set[str]:
    return {_SPLITS[word] for word in re.findall("[a-z]+", name.lower()) if word in _SPLITS}


def load_tables(file: Path) -> tuple[Rows, Rows, Rows, list[Problem]]:
    """Return images, annotations and categories of a COCO file, and a problem for each malformed annotation.

    `iscrowd` of the annotations is 0 or 1, also where the file has none. A missing `bbox` is computed from
    the segmentation.

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
    known, labels = ({row["id"]: row for row in table} for table in (images, categories))
    problems, good = [], []
    for row in annotations:
        place = f"{file}: annotation {row.get('id')!r}"
        crowd = row.get("iscrowd")
        wrong = _wrong_id(row, known, labels)
        if not wrong:
            try:
                row = {**row, "bbox": _box_of(row, known[row["image_id"]])}
            except ValueError as error:
                wrong = str(error)
        if wrong:
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


def _wrong_id(row: Mapping[str, Any], images: Mapping[Any, Any], categories: Mapping[Any, Any]) -> str | None:
    """Return the rule that an annotation breaks; None if its ids are known."""
    image, category = row.get("image_id"), row.get("category_id")
    if not is_number(image) or image not in images:
        return f"image_id must be the id of an image, got {image!r}"
    if not is_number(category) or category not in categories:
        return f"category_id must be the id of a category, got {category!r}"
    return None


def _box_of(row: Mapping[str, Any], image: Mapping[str, Any]) -> list[float]:
    """Return `bbox` of an annotation, or the box around its segmentation. Raise ValueError."""
    box, segmentation = row.get("bbox"), row.get("segmentation")
    if box in (None, []) and isinstance(segmentation, (list, dict)) and segmentation:
        try:
            return enclosing_box(segmentation, image.get("width"), image.get("height"))
        except ValueError as error:
            raise ValueError(f"without bbox, segmentation: {error}") from error
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        raise ValueError(f"bbox must be [x, y, width, height], all finite numbers, got {box!r}")
    return list(map(float, box))
