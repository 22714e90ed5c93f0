"""COCO results of `lensbox detect`: what pycocotools and `lensbox evaluate --detections` score."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lensbox.cli.source import Answer
from lensbox.common.errors import InputError, system_reason


class CocoResults:
    """Collect the detections of files; `text` is COCO's list of results.

    Classes are matched to categories by name; a detector without classes needs a file with one category.
    Detections of other classes, and with numbers that are not finite, are left out.
    """

    def __init__(self, ids: Path, files: Sequence[Path], classes: Sequence[str]) -> None:
        """Read the ids. Raise InputError for a bad COCO file, UsageError for images that it does not name."""
        images, categories = _tables(ids)
        self._images = {
            file: next((images[name] for name in _names(file) if name in images), None) for file in files
        }
        unknown = [file for file, number in self._images.items() if number is None]
        if unknown:
            raise click.UsageError(
                f"--coco-file must name every image as file_name, {ids} lacks {unknown[0]}"
            )
        if not classes and len(categories) != 1:
            raise click.UsageError(
                f"--coco-file must have one category for a detector without classes, got {len(categories)}"
            )
        self._categories = categories if classes else {None: next(iter(categories.values()))}
        self._rows: list[dict[str, Any]] = []

    def __call__(self, file: Path, result: Answer | str) -> str:
        """Add the detections of a file; return no line."""
        for one in () if isinstance(result, str) else result["detections"]:
            category = self._categories.get(one.get("label"))
            if category is not None and None not in (*one["box"], one["score"]):
                x1, y1, x2, y2 = one["box"]
                place = {"image_id": self._images[file], "category_id": category}
                self._rows.append({**place, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": one["score"]})
        return ""

    def text(self) -> str:
        """Return all results as JSON, one a line."""
        return "[" + ",\n ".join(map(json.dumps, self._rows)) + "]\n"


def _names(file: Path) -> list[str]:
    """Return the possible `file_name`s of a photograph: its path, and all shorter ends of the path."""
    return ["/".join(file.parts[first:]) for first in range(len(file.parts))]


def _tables(file: Path) -> tuple[dict[str, Any], dict[str | None, Any]]:
    """Return the ids of images by `file_name` and of categories by `name`."""
    try:
        document = json.loads(file.read_bytes())
        # Windows separates folders with a backslash.
        names = [str(row["file_name"]).replace("\\", "/").removeprefix("./") for row in document["images"]]
        images = {name: row["id"] for name, row in zip(names, document["images"], strict=True)}
        return images, {str(row["name"]): row["id"] for row in document["categories"]}
    except OSError as error:
        raise InputError(f"--coco-file {file} cannot be read: {system_reason(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--coco-file {file} must be COCO JSON with images (id, file_name) and categories (id, name): "
            f"{error or type(error).__name__}"
        ) from error
