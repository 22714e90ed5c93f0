"""Tiles: detect small objects in large photographs with overlapping windows.

The rule, which C++ implements too:

1. Tiles have the aspect ratio of the canvas and `size` pixels on their longer side. Along each axis, as few
   tiles as possible cover the photograph with at least the overlap, evenly spaced. The whole photograph is
   one more view, for objects larger than a tile.
2. A box is cut if it lies within 1/64 of a tile's side of an edge of the tile that is not an edge of the
   photograph. A cut box is dropped if a larger box of the same class, with at least half of its score, covers
   more than half of it (intersection over the smaller box).
3. `padded_nms` merges the remaining boxes by IoU.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lensbox.common.detect_options import TileSpec
from lensbox.common.errors import InputError
from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.file.metadata import Canvas
from lensbox.runtime.images.photo import Photo

Window = tuple[int, int, int, int]

MAX_TILES = 4096
_LARGEST_SIZE = 1 << 31  # larger than any photograph; the product with a canvas side fits into 64 bits
_CUT_MARGIN = 1 / 64
_COVERED = 0.5
_SCORE = 0.5  # a weak box of the whole photograph must not replace a part with a high score
_GROUP = 64  # cut boxes compared at once: small groups cost calls, large groups have more boxes near them


def tile_windows(width: int, height: int, canvas: Canvas, spec: TileSpec) -> list[Window]:
    """Return the windows x1, y1, x2, y2 of a photograph: the whole one first if requested, then row by row.

    A photograph that fits into one tile has one window. Raise InputError for more than MAX_TILES tiles.
    """
    longer = max(canvas.width, canvas.height)
    size = min(spec.size or longer, _LARGEST_SIZE)
    columns = _spans(width, max(1, round(size * canvas.width / longer)), spec.overlap)
    rows = _spans(height, max(1, round(size * canvas.height / longer)), spec.overlap)
    if len(rows) * len(columns) > MAX_TILES:
        raise InputError(
            f"tiles must be at most {MAX_TILES}, got {len(columns)} x {len(rows)} of size {size} "
            f"for {width} x {height} pixels"
        )
    whole = 0, 0, width, height
    if len(rows) == len(columns) == 1:
        return [whole]
    tiles = [(x1, y1, x2, y2) for y1, y2 in rows for x1, x2 in columns]
    return [whole, *tiles] if spec.whole else tiles


def require_whole(photo: Photo) -> None:
    """Raise ValueError unless the pixels show the whole photograph at full size."""
    if not photo.is_whole:
        raise ValueError(
            "image must be a whole photograph at full size for tiles; read_photo(path, full_size=True) "
            "reads one"
        )


def views_of(photo: Photo, windows: Sequence[Window]) -> list[Photo]:
    """Return the parts of a photograph, without a copy. Raise ValueError unless the photograph is whole."""
    require_whole(photo)
    cut = zip(windows, cut_windows(photo.pixels, windows), strict=True)
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
    found: Detections,
    counts: Sequence[int],
    windows: Sequence[Window],
    width: int,
    height: int,
    iou_threshold: float,
) -> Detections:
    """Return the detections of a photograph of width x height, best first.

    found: the detections in all windows, the first counts[0] of them in windows[0], and so on.
    """
    if len(windows) == 1:
        return dataclasses.replace(found, width=width, height=height)
    boxes, scores, labels = found.boxes, found.scores, found.labels
    is_cut = _is_cut(boxes.numpy(), counts, windows, width, height)
    covered = _is_covered(boxes.numpy(), scores.numpy(), is_cut, None if labels is None else labels.numpy())
    kept = torch.from_numpy(np.flatnonzero(~covered))
    if len(kept) > 0:
        categories = None if labels is None else labels[kept][None]
        count = len(kept)
        indices = torch.ops.lensbox.padded_nms(
            boxes[kept][None], scores[kept][None], iou_threshold, -math.inf, count, count, categories
        )[2][0]
        kept = kept[indices[indices >= 0]]
    return Detections(
        boxes[kept],
        scores[kept],
        None if labels is None else labels[kept],
        {name: values[kept] for name, values in found.extras.items()},
        width,
        height,
    )


def _spans(length: int, side: int, overlap: float) -> list[tuple[int, int]]:
    """Return begin and end of each tile along an axis: evenly spaced, with at least this overlap."""
    if length <= side:
        return [(0, length)]
    gaps = math.ceil((length - side) / max(1, math.floor(side * (1 - overlap))))
    starts = [(length - side) * index // gaps for index in range(gaps + 1)]
    return [(start, start + side) for start in starts]


# numpy: torch would split these small arrays among threads, whose start takes milliseconds on many cores.


def _is_cut(
    boxes: NDArray[np.float32], counts: Sequence[int], windows: Sequence[Window], width: int, height: int
) -> NDArray[np.bool_]:
    """Return whether an edge of its window cuts each box, [N, 4]. counts: number of boxes of each window."""
    edges = np.array(windows, np.float64)
    margins = (edges[:, 2:] - edges[:, :2]) * _CUT_MARGIN
    first = np.where(edges[:, :2] <= 0, -np.inf, edges[:, :2] + margins).astype(np.float32)
    last = np.where(edges[:, 2:] >= (width, height), np.inf, edges[:, 2:] - margins).astype(np.float32)
    before, behind = boxes[:, :2] < first.repeat(counts, 0), boxes[:, 2:] > last.repeat(counts, 0)
    is_cut: NDArray[np.bool_] = np.any(before | behind, axis=1)
    return is_cut


def _is_covered(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    is_cut: NDArray[np.bool_],
    labels: NDArray[np.int64] | None,
) -> NDArray[np.bool_]:
    """Return whether each box is cut, and more than half covered by a larger box with half of its score.

    Boxes are in the order of their windows, so a group of cut boxes is compared only with boxes near it.
    """
    x1, y1, x2, y2 = boxes.T.copy()
    areas = (x2 - x1) * (y2 - y1)
    cuts = np.flatnonzero(is_cut)
    covered = np.zeros_like(is_cut)
    for start in range(0, len(cuts), _GROUP):
        cut = cuts[start : start + _GROUP]
        is_near = (x1 < x2[cut].max()) & (x2 > x1[cut].min())
        is_near &= (y1 < y2[cut].max()) & (y2 > y1[cut].min())
        near = np.flatnonzero(is_near)
        a = cut[:, None]
        width = np.minimum(x2[a], x2[near]) - np.maximum(x1[a], x1[near])
        height = np.minimum(y2[a], y2[near]) - np.maximum(y1[a], y1[near])
        covers = width.clip(0) * height.clip(0) > np.float32(_COVERED) * areas[a]
        covers &= areas[near] > areas[a]
        covers &= scores[near] >= np.float32(_SCORE) * scores[a]
        if labels is not None:
            covers &= labels[near] == labels[a]
        covered[cut] = covers.any(1)
    return covered
