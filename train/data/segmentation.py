"""The box around a segmentation of a COCO file, for annotations without `bbox`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from lensbox.train.data.labels import is_number

# Base 48, five bits a character; the sixth bit, in "P" to "o", says that the number goes on.
_COMPRESSED = re.compile(r"[P-o]{0,6}[0-O]")


def enclosing_box(segmentation: Any) -> list[float]:
    """Return [x, y, width, height] of the box around a segmentation.

    Args:
        segmentation: polygons ([[x1, y1, x2, y2, x3, y3, …], …], pixels), or a run-length encoding
            ({"size": [height, width], "counts"}, compressed text or a list).

    Raises:
        ValueError: the segmentation is malformed or covers no pixel; the message is the rule.
    """
    if isinstance(segmentation, dict):
        size: Any = segmentation.get("size")
        counts: Any = segmentation.get("counts")
        runs: Any = _decompressed(counts) if isinstance(counts, str) else counts
        if not (_are_lengths(size) and _are_lengths(runs)):
            raise ValueError("segmentation must have size [height, width] and counts, the lengths of runs")
        if len(size) != 2 or sum(runs) != size[0] * size[1]:
            raise ValueError("counts must be the lengths of runs that fill the size of the segmentation")
        return _box_of_runs(runs, size[0])
    polygons = segmentation if segmentation and isinstance(segmentation[0], list) else [segmentation]
    points = [value for polygon in polygons for value in polygon]
    if not all(len(one) >= 6 and len(one) % 2 == 0 for one in polygons) or not all(map(is_number, points)):
        raise ValueError("polygons must be lists [x1, y1, x2, y2, x3, y3, …]")
    x, y = points[::2], points[1::2]
    return [min(x), min(y), max(x) - min(x), max(y) - min(y)]


def _are_lengths(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _box_of_runs(runs: Sequence[int], height: int) -> list[float]:
    """Return the box around runs of 0 and 1 in turn, column by column."""
    ends = list(accumulate(runs))
    ones = [(end - run, end - 1) for run, end in zip(runs[1::2], ends[1::2], strict=True) if run]
    if not ones:
        raise ValueError("the segmentation must cover pixels of the photograph")
    x1, x2 = min(first // height for first, _ in ones), max(last // height for _, last in ones)
    # A run over two columns has pixels in the first row and in the last.
    whole = any(first // height != last // height for first, last in ones)
    y1 = 0 if whole else min(first % height for first, _ in ones)
    y2 = height - 1 if whole else max(last % height for _, last in ones)
    return [x1, y1, x2 - x1 + 1, y2 - y1 + 1]


def _decompressed(text: str) -> list[int]:
    """Return the runs of COCO's compressed text, which has differences to the run before the last."""
    runs: list[int] = []
    for number in _COMPRESSED.findall(text):
        digits = [ord(character) - 48 for character in number]
        value = sum((digit & 31) << 5 * place for place, digit in enumerate(digits))
        if digits[-1] & 16:  # the sign
            value -= 1 << 5 * len(digits)
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
    return runs if "".join(_COMPRESSED.findall(text)) == text else [-1]
