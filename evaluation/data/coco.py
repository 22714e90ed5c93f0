"""Read photographs labelled in a COCO JSON file: boxes with categories, crowds as boxes to ignore."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from lensbox.evaluation.data.account import MISSING, Account
from lensbox.evaluation.data.files import find_file
from lensbox.evaluation.data.labels import DataError, LabelledImage, Row, read_rows, read_text

Id = int | str | None
Object = dict[str, Any]

_TABLES = ("images", "categories", "annotations")
# Numbers of at most 32 bits, 5 in each character; after "P" to "o", a further character follows.
_ENCODED_RUNS = re.compile(r"([P-o]{0,6}[0-O])+")


def read_coco(file: Path, account: Account) -> Iterator[LabelledImage]:
    """Yield the labelled images of a COCO JSON file, in the order of their ids. Add to the account.

    Categories without annotations, such as the root category of Roboflow's exports, are left out. Raise
    DataError if the file is not what COCO describes, or two categories have the same name.
    """
    images, categories, annotations = _load_tables(file)
    rows: defaultdict[Id, list[tuple[str, Object]]] = defaultdict(list)
    for row in annotations:
        origin = f"{file}: annotation {row.get('id')!r}"
        if (key := _key(row.get("image_id"))) in images:
            rows[key].append((origin, row))
        else:
            rule = f"image_id must be the id of an image, got {row.get('image_id')!r}"
            account.skip_box(rule, f"{origin}: {rule}; box skipped")
    used = {_key(row.get("category_id")) for row in annotations}
    names = {id_: str(row.get("name", "")) for id_, row in categories.items()}
    if empty := [repr(names.pop(id_)) for id_ in categories.keys() - used]:
        line = f"{file}: {', '.join(sorted(empty)[:9])}{', ...' if len(empty) > 9 else ''}"
        account.add("categories without annotations", len(empty), line)
    if twice := [name for name, count in Counter(names.values()).items() if count > 1]:
        ids = [categories[id_]["id"] for id_, name in names.items() if name == twice[0]]
        raise DataError(f"{file}: categories must have different names, got {twice[0]!r} for the ids {ids}")
    folders = _folders(file)
    for id_, image in images.items():
        origin, given = f"{file}: image {id_}", str(image.get("file_name") or "")
        if (found := find_file(folders, given)) is None:
            line = f"{origin}: file_name {given!r:.200} is not beside {file.name}; image skipped"
            account.skip(MISSING, line, photographs=1)
            continue
        name, photo = found
        size = cast(Any, (image.get("width"), image.get("height")))
        size = size if all(map(_is_number, size)) and min(size) > 0 else None
        boxes = read_rows(rows[id_], partial(_parse_row, names=names), account)
        yield LabelledImage(name, photo, *boxes, origin, labelled_size=size)


def _folders(file: Path) -> list[Path]:
    """Return the folders in which to look for the photographs of a COCO file, in this order.

    First come folders that the name of the file contains: `val2017` for `instances_val2017.json`,
    `images/val` for `val.json`. Then come the folder of the file, its `images`, and the same one folder up.
    """
    words = re.split("[^a-z0-9]+", file.stem.lower())
    places = [place / name for place in (file.parent, file.parent.parent) for name in ("", "images")]
    entries = [entry for place in places if place.is_dir() for entry in sorted(place.iterdir())]
    return [*(entry for entry in entries if entry.is_dir() and entry.name.lower() in words), *places]


def _key(value: Any) -> Id:
    """Return an id for comparison: 7, 7.0 and "7" are one. Return None for other values."""
    if _is_number(value) and value == int(value):
        return int(value)
    if isinstance(value, str):
        return int(value) if re.fullmatch("0|-?[1-9][0-9]{0,17}", value) else value
    return None


def _load_tables(file: Path) -> tuple[dict[Id, Object], dict[Id, Object], list[Object]]:
    """Return images and categories by id, in the order of their ids, and the annotations. Raise DataError."""
    try:
        content = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}:{getattr(error, 'lineno', 1)}: expected JSON, got {error}") from error
    tables: list[Any] = [content.get(name) for name in _TABLES] if isinstance(content, dict) else [None]
    if not all(isinstance(table, list) and all(isinstance(row, dict) for row in table) for table in tables):
        raise DataError(f"{file} must hold lists of objects: {', '.join(_TABLES)}")
    known: list[dict[Id, Object]] = []
    for name, table in zip(_TABLES[:2], tables[:2], strict=True):
        by_id: dict[Id, Object] = {}
        for row in table:
            if (key := _key(row.get("id"))) is None or by_id.setdefault(key, row) is not row:
                rule = f"{name} must have an id each, a number or text, all different, got {row.get('id')!r}"
                raise DataError(f"{file}: {rule}")
        # pycocotools takes the images in this order, which decides between detections of equal scores.
        known.append(dict(sorted(by_id.items(), key=lambda pair: (isinstance(pair[0], str), pair[0]))))
    return known[0], known[1], tables[2]


def _parse_row(row: Object, names: Mapping[Id, str]) -> Row:
    box, area, crowd = row.get("bbox"), row.get("area"), row.get("iscrowd") or 0
    if (category := _key(row.get("category_id"))) not in names:
        raise ValueError(f"category_id must be the id of a category, got {row.get('category_id')!r}")
    if not box and row.get("segmentation"):
        box = _enclosing_box(row["segmentation"])
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        raise ValueError(f"bbox must be [x, y, width, height], all finite numbers, got {box!r}")
    if crowd not in (0, 1):
        raise ValueError(f"iscrowd must be 0 or 1, got {crowd!r}")
    if area is not None and not (_is_number(area) and area >= 0):
        raise ValueError(f"area must be a number of at least 0, got {area!r}")
    x, y, width, height = map(float, box)
    return Row(x, y, width, height, bool(crowd), names[category], area)


def _enclosing_box(segmentation: Any) -> list[float]:
    """Return [x, y, width, height] of the box around polygons, or around a run-length encoding (RLE).

    Raise ValueError with the rule that the segmentation breaks.
    """
    if not isinstance(segmentation, dict):
        is_nested = isinstance(segmentation, list) and isinstance(segmentation[0], list)
        polygons = segmentation if is_nested else [segmentation]
        if not all(map(_is_polygon, polygons)):
            raise ValueError("polygons must be lists [x1, y1, x2, y2, x3, y3, …]")
        x, y = ([value for one in polygons for value in one[axis::2]] for axis in (0, 1))
        return [min(x), min(y), max(x) - min(x), max(y) - min(y)]

    from pycocotools import mask  # type: ignore[import, unused-ignore]

    size, counts = cast(Any, (segmentation.get("size"), segmentation.get("counts")))
    # pycocotools divides by the height, takes any numbers for runs, and reads beyond the end of other texts.
    if not (_are_lengths(size) and len(size) == 2 and min(size) > 0):
        raise ValueError(f"segmentation must have size [height, width], got {size!r}")
    is_text = isinstance(counts, str) and _ENCODED_RUNS.fullmatch(counts)
    if not is_text and not (_are_lengths(counts) and sum(counts) == size[0] * size[1]):
        rule = "runs that fill the size of the segmentation, as a list or in COCO's encoding"
        raise ValueError(f"counts must be the lengths of {rule}, got {counts!r:.42}")
    runs = {"size": size, "counts": counts.encode() if is_text else counts}
    x, y, width, height = mask.toBbox(runs if is_text else mask.frPyObjects(runs, *size)).tolist()
    if not (width > 0 < height and x + width <= size[1] and y + height <= size[0]):
        raise ValueError("the segmentation must cover pixels of the photograph")
    return [x, y, width, height]


def _is_polygon(values: Any) -> bool:
    return (
        isinstance(values, list) and 6 <= len(values) // 2 * 2 == len(values) and all(map(_is_number, values))
    )


def _are_lengths(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 31 for value in values)


def _is_number(value: object) -> bool:
    """Return whether a value of a file is a finite number. True and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
