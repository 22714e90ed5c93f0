"""Read photographs labelled in a COCO JSON file: boxes with categories, crowds as boxes to ignore."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from lensbox.train.data.labels import (
    DataError,
    LabelledImage,
    Row,
    is_number,
    read_rows,
    read_text,
    spellings,
)

Rows = list[dict[str, Any]]

_TABLES = ("images", "categories", "annotations")
# Numbers of at most 32 bits, 5 in each character; after "P" to "o", a further character follows. pycocotools
# reads beyond the end of other texts.
_ENCODED_RUNS = re.compile(r"([P-o]{0,6}[0-O])+")


class CocoTables(NamedTuple):
    """The rows of a COCO file: images and categories by id; the sound annotations, whose `bbox` are four
    finite numbers and whose `iscrowd` is 0 or 1; a line for each other annotation."""

    images: dict[int, dict[str, Any]]
    categories: dict[int, dict[str, Any]]
    annotations: Rows
    problems: list[str]


def annotation_file(path: Path) -> Path | None:
    """Return the COCO JSON file that a path names or a folder holds (also in `annotations/`); else None."""
    if path.is_file():
        return path if path.suffix.lower() == ".json" else None
    try:
        files = sorted([*path.glob("*.json"), *path.glob("annotations/*.json")])
        return files[0] if len(files) == 1 and not any(path.glob("*_bbx_gt.txt")) else None
    except OSError:  # a folder without permission: the reader of folders reports it
        return None


def read_coco(file: Path, problems: list[str]) -> list[LabelledImage]:
    """Return the labelled images of a COCO JSON file. Add to `problems`.

    Raises:
        DataError: the file is not what COCO describes.
    """
    tables = load_tables(file)
    problems += tables.problems
    images = []
    rows: defaultdict[int, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for row in tables.annotations:
        rows[row["image_id"]].append((f"{file}: annotation {row.get('id')!r}", row))

    def parse(row: dict[str, Any]) -> Row:
        name = str(tables.categories[row["category_id"]].get("name", ""))
        x, y, width, height = row["bbox"]
        return Row(x, y, width, height, bool(row["iscrowd"]), name)

    folders = _folders(file)
    for id_, image in tables.images.items():
        origin = f"{file}: image {id_}"
        given = str(image.get("file_name") or "")
        places = ((name, folder / name) for name in spellings(given) for folder in folders)
        name, photo = next((place for place in places if place[1].is_file()), (given, None))
        if photo is None:
            problems.append(f"{origin}: file_name {name!r} is not beside {file.name}; image skipped")
            continue
        boxes = read_rows(rows[id_], parse, problems)
        images.append(LabelledImage(name, photo, *boxes, origin, coco_id=id_))
    return images


def _folders(file: Path) -> list[Path]:
    """Return the folders in which to look for the photographs of a COCO file, in this order.

    First come folders that the name of the file contains: `val2017` for `instances_val2017.json`,
    `images/val` for `val.json`. Then come the folder of the file, its `images`, and the same one folder up.
    """
    words = re.split("[^a-z0-9]+", file.stem.lower())
    places = [place / name for place in (file.parent, file.parent.parent) for name in ("", "images")]
    entries = [entry for place in places if place.is_dir() for entry in sorted(place.iterdir())]
    return [*(entry for entry in entries if entry.is_dir() and entry.name.lower() in words), *places]


def load_tables(file: Path) -> CocoTables:
    """Return the rows of a COCO file.

    Raises:
        DataError: the file cannot be read, lacks one of the three lists, or has bad or repeated ids of images
            or categories.
    """
    content = load_json(file)
    tables = [content.get(name) for name in _TABLES] if isinstance(content, dict) else [None]
    if not all(isinstance(table, list) and all(isinstance(row, dict) for row in table) for table in tables):
        raise DataError(f"{file} must hold lists of objects: {', '.join(_TABLES)}")
    for name in _TABLES[:2]:
        ids = [row.get("id") for row in content[name]]
        if not all(type(id_) is int for id_ in ids) or len(set(ids)) < len(ids):
            raise DataError(f"{file}: {name} must have an integer id each, all different, got {ids[:9]}")
    images, categories = ({row["id"]: row for row in content[name]} for name in _TABLES[:2])
    sound, problems = [], []
    for row in content["annotations"]:
        try:
            sound.append(_sound(row, images, categories))
        except ValueError as error:
            problems.append(f"{file}: annotation {row.get('id')!r}: {error}; box skipped")
    return CocoTables(images, categories, sound, problems)


def _sound(row: dict[str, Any], images: dict[Any, Any], categories: dict[Any, Any]) -> dict[str, Any]:
    """Return an annotation with `bbox` and `iscrowd`. Raise ValueError with the rule that it breaks."""
    image, category, box, area = (row.get(name) for name in ("image_id", "category_id", "bbox", "area"))
    crowd = row.get("iscrowd") or 0
    if not is_number(image) or image not in images:
        raise ValueError(f"image_id must be the id of an image, got {image!r}")
    if not is_number(category) or category not in categories:
        raise ValueError(f"category_id must be the id of a category, got {category!r}")
    if not box and row.get("segmentation"):
        box = _enclosing_box(row["segmentation"])
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        raise ValueError(f"bbox must be [x, y, width, height], all finite numbers, got {box!r}")
    if crowd not in (0, 1):
        raise ValueError(f"iscrowd must be 0 or 1, got {crowd!r}")
    if area is not None and not (is_number(area) and area >= 0):
        raise ValueError(f"area must be a number of at least 0, got {area!r}")
    return {**row, "bbox": list(map(float, box)), "iscrowd": int(crowd)}


def _enclosing_box(segmentation: Any) -> list[float]:
    """Return [x, y, width, height] of the box around polygons, or around a run-length encoding (RLE).

    Raise ValueError with the rule that the segmentation breaks.
    """
    if isinstance(segmentation, dict):
        return _box_of_runs(segmentation.get("size"), segmentation.get("counts"))
    polygons = segmentation if isinstance(segmentation[0], list) else [segmentation]
    points = [value for polygon in polygons for value in polygon]
    if not all(len(one) >= 6 and len(one) % 2 == 0 for one in polygons) or not all(map(is_number, points)):
        raise ValueError("polygons must be lists [x1, y1, x2, y2, x3, y3, …]")
    x, y = points[::2], points[1::2]
    return [min(x), min(y), max(x) - min(x), max(y) - min(y)]


def _box_of_runs(size: Any, counts: Any) -> list[float]:
    from pycocotools import mask  # type: ignore[import, unused-ignore]

    # pycocotools divides by the height, and takes any numbers for runs.
    if not (_are_lengths(size) and len(size) == 2 and min(size) > 0):
        raise ValueError(f"segmentation must have size [height, width], got {size!r}")
    if isinstance(counts, str):
        if not _ENCODED_RUNS.fullmatch(counts):
            raise ValueError(f"counts must be a list of runs or runs in COCO's encoding, got {counts[:40]!r}")
        runs = {"size": size, "counts": counts.encode()}
    else:
        if not (_are_lengths(counts) and sum(counts) == size[0] * size[1]):
            raise ValueError("counts must be the lengths of runs that fill the size of the segmentation")
        runs = mask.frPyObjects({"size": size, "counts": counts}, *size)
    x, y, width, height = mask.toBbox(runs).tolist()
    if not (width > 0 < height and x + width <= size[1] and y + height <= size[0]):
        raise ValueError("the segmentation must cover pixels of the photograph")
    return [x, y, width, height]


def _are_lengths(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 31 for value in values)


def load_json(file: Path) -> Any:
    """Return the content of a JSON file. Raise DataError that names the file and the line."""
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise DataError(f"{file}:{error.lineno}: expected JSON, got {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} must be JSON: {error}") from error
