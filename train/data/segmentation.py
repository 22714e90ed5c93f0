"""The box around a segmentation of a COCO file, for annotations without `bbox`."""

from __future__ import annotations

import math
import re
from typing import Any

from lensbox.train.data.labels import FURTHEST, is_number

# Base 48, five bits a character; the sixth bit, in "P" to "o", says that the number goes on.
_COMPRESSED = re.compile(r"([P-o]{0,6}[0-O])+")


def enclosing_box(segmentation: Any, width: Any, height: Any) -> list[float]:
    """Return [x, y, width, height] of the box around a segmentation, as pycocotools computes it.

    Args:
        segmentation: polygons ([[x1, y1, x2, y2, x3, y3, …], …], pixels), or a run-length encoding
            ({"size": [height, width], "counts"}, compressed text or a list).
        width, height: of the photograph, to which polygons are clipped; not clipped if they are no lengths.

    Raises:
        ValueError: the segmentation is malformed or covers no pixel; the message is the rule.
    """
    from pycocotools import mask  # type: ignore[import, unused-ignore]

    # pycocotools checks nothing: malformed runs make it read and write beyond its memory.
    if isinstance(segmentation, dict):
        size, counts = segmentation.get("size"), segmentation.get("counts")
        if not isinstance(size, list) or len(size) != 2 or not all(map(_is_length, size)):
            raise ValueError("size must be [height, width], integers above 0")
        height, width = size
        if isinstance(counts, str) and _COMPRESSED.fullmatch(counts):
            encoded = {"size": size, "counts": counts.encode()}
        elif isinstance(counts, list) and all(map(_is_count, counts)) and sum(counts) == height * width:
            encoded = mask.frPyObjects(segmentation, height, width)
        else:
            raise ValueError("counts must be the lengths of runs that fill the size, as a list or compressed")
    else:
        polygons = segmentation if segmentation and isinstance(segmentation[0], list) else [segmentation]
        if not all(map(_is_polygon, polygons)):
            raise ValueError(
                "polygons must be lists [x1, y1, x2, y2, x3, y3, …], with outlines up to "
                f"{FURTHEST:.0f} pixels"
            )
        if not (_is_length(width) and _is_length(height)):
            width, height = (math.ceil(max(max(one[axis::2]) for one in polygons)) + 1 for axis in (0, 1))
        encoded = mask.merge(mask.frPyObjects(polygons, max(height, 1), max(width, 1)))
    x, y, across, down = mask.toBbox(encoded).tolist()
    if not (across > 0 and down > 0 and x + across <= width and y + down <= height):
        raise ValueError("the segmentation must cover pixels of the photograph")
    return [x, y, across, down]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_length(value: object) -> bool:
    return isinstance(value, int) and _is_count(value) and 0 < value <= FURTHEST


def _is_polygon(points: object) -> bool:
    """Return whether points are three corners or more, and near each other: longer lines take much memory."""
    if not isinstance(points, list) or len(points) < 6 or len(points) % 2 or not all(map(is_number, points)):
        return False
    ahead = [*points[2:], *points[:2]]
    outline = sum(abs(one - other) for one, other in zip(points, ahead, strict=True))
    return bool(outline <= FURTHEST and max(map(abs, points)) <= FURTHEST)
