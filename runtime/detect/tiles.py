"""Tiles: detect small objects in large photographs with overlapping windows.

docs/tiles.md has the rule. The op library computes it, for the C++ runtime too.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lensbox.common.canvas import Canvas
from lensbox.common.detections import TileSpec
from lensbox.common.errors import InputError
from lensbox.common.pictures import LONGEST_SIDE
from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.images.photo import Photo

Window = tuple[int, int, int, int]


def tile_windows(width: int, height: int, canvas: Canvas, spec: TileSpec) -> list[Window]:
    """Return the windows x1, y1, x2, y2 of a photograph: the whole one first if requested, then row by row.

    A photograph that fits into one tile has one window. Raise InputError for more than 4,096 tiles.
    """
    import lensbox.ops  # noqa: F401 (late: front ends of a service need the ops for tiles alone)

    size = min(spec.size or 0, LONGEST_SIDE)
    try:
        edges = torch.ops.lensbox_runtime.tile_windows(
            width, height, canvas.width, canvas.height, size, spec.overlap, spec.whole
        )
    except ValueError as error:
        raise InputError(str(error)) from None
    return [(x1, y1, x2, y2) for x1, y1, x2, y2 in zip(*[iter(edges)] * 4, strict=True)]


def tile_batch(device: torch.device, canvas: Canvas) -> int:
    """Return how many tiles of one photograph are computed together. The op library must be loaded."""
    batch: int = torch.ops.lensbox_runtime.tile_batch(device.type != "cpu", canvas.width, canvas.height)
    return batch


def require_whole(photo: Photo) -> None:
    """Raise ValueError unless the pixels show the whole photograph at full size."""
    if not photo.is_whole:
        raise ValueError(
            "image must be a whole photograph at full size for tiles; read_photo(path, full_size=True) "
            "reads one"
        )


def part_of(photo: Photo, windows: Sequence[Window]) -> Photo:
    """Return the smallest part of a whole photograph that holds the windows, without a copy.

    Raise ValueError unless the photograph is whole.
    """
    require_whole(photo)
    lefts, tops, rights, bottoms = zip(*windows, strict=True)
    edges = min(lefts), min(tops), max(rights), max(bottoms)
    return Photo(cut_windows(photo.pixels, [edges])[0], photo.width, photo.height, edges)


def views_of(photo: Photo, windows: Sequence[Window]) -> list[Photo]:
    """Return windows of a photograph, without a copy. photo: the whole one, or a `part_of` it."""
    left, top = map(int, photo.window[:2])
    inside = [(x1 - left, y1 - top, x2 - left, y2 - top) for x1, y1, x2, y2 in windows]
    cut = zip(windows, cut_windows(photo.pixels, inside), strict=True)
    return [Photo(pixels, photo.width, photo.height, window) for window, pixels in cut]


def cut_windows(pixels: Tensor, windows: Sequence[Window]) -> list[Tensor]:
    """Return views of pixels, [C, H, W], without a copy."""
    channels, (plane, row, column) = pixels.shape[0], pixels.stride()
    first = pixels.storage_offset()
    # as_strided is one call of torch per window; slices are two.
    return [
        pixels.as_strided((channels, y2 - y1, x2 - x1), (plane, row, column), first + y1 * row + x1 * column)
        for x1, y1, x2, y2 in windows
    ]


def merge_tiles(
    found: Sequence[Detections[NDArray[Any]]],
    windows: Sequence[Window],
    width: int,
    height: int,
    iou_threshold: float,
) -> Detections[NDArray[Any]]:
    """Return the detections of a photograph of width x height, best first. found: of each window."""
    boxes = np.concatenate([one.boxes for one in found])
    scores = np.concatenate([one.scores for one in found])
    labels = [one.labels for one in found if one.labels is not None]
    joined = np.concatenate(labels) if labels else None
    kept = torch.ops.lensbox_runtime.merge_tiles(
        torch.from_numpy(boxes),
        torch.from_numpy(scores),
        None if joined is None else torch.from_numpy(joined),
        [len(one.scores) for one in found],
        list(itertools.chain.from_iterable(windows)),
        width,
        height,
        iou_threshold,
    ).numpy()
    return Detections(
        boxes[kept],
        scores[kept],
        None if joined is None else joined[kept],
        {name: np.concatenate([one.extras[name] for one in found])[kept] for name in found[0].extras},
        width,
        height,
    )
