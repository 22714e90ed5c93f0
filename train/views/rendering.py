"""Paints tiles: resizes photographs into their places on the canvas, as products of matrices.

A tile's map is separable, so it is rendered as `rows @ (pixels @ columnsᵀ)`, where the two matrices hold the
triangle filter of an antialiased resize: tensor cores do the work, and any scale is antialiased. This is not
`ops.letterbox`, since crops and mosaics lie at fractions of pixels, and the host does not know the sizes that
are drawn on the device. But it is the same filter with whole gray levels between its passes, so a whole view
is what `FaceDetector.preprocess` would show.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE
from lensbox.train.views.draws import ViewCounts
from lensbox.train.views.tiles import Tiles


def filter_matrix(
    size: Tensor,
    scale: Tensor,
    offset: Tensor,
    low: Tensor,
    high: Tensor,
    source: int,
    softness: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The resize of one axis as a matrix: triangle filter, widened by the shrink factor as torch's
    `interpolate(mode="bilinear", antialias=True)` does, normalised inside the photograph.

    Args:
        size, scale, offset, low, high: [T] photograph's length, map, and range of canvas pixels painted.
        source: number of source pixels stored.
        softness: [T], widens the filter further, as bad focus or a photograph enlarged before does.

    Returns:
        weights [T, 256, source]; painted bool [T, 256].
    """
    pixel = torch.arange(CANVAS_SIZE, device=size.device, dtype=torch.float32) + 0.5
    center = (pixel - offset[:, None]) / scale[:, None]
    painted = (center >= 0) & (center <= size[:, None]) & (pixel >= low[:, None]) & (pixel <= high[:, None])
    support = (1 / scale.abs()).clamp(min=1)
    if softness is not None:
        support = support * softness
    taps = torch.arange(source, device=size.device, dtype=torch.float32) + 0.5
    # In place: uncompiled, each new [T, CANVAS_SIZE, source] costs more to allocate than to compute.
    weights = (taps - center[..., None]).abs_().div_(-support[:, None, None]).add_(1).clamp_(min=0)
    weights.mul_(taps < size[:, None, None])
    total = weights.sum(2, keepdim=True).clamp(min=1e-6)
    return weights.mul_(painted[..., None] / total), painted


def render_tiles(images: Tensor, sizes: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor]:
    """Paints tiles. Returns pixels float [T, 256, 256] (0 to 255) and content bool of that shape."""
    # Half precision keeps 11 bits: sums of weighted bytes are exact to a tenth of a gray level.
    kind = torch.float16 if images.is_cuda else torch.float32
    size = sizes[tiles.image]
    rectangle = tiles.rectangle
    columns, rows = (
        filter_matrix(
            size[:, axis],
            tiles.scale[:, axis],
            tiles.offset[:, axis],
            rectangle[:, axis],
            rectangle[:, axis + 2],
            images.shape[2 - axis],
            tiles.softness,
        )
        for axis in (0, 1)
    )
    pixels = torch.bmm(images[tiles.image].to(kind), columns[0].to(kind).transpose(1, 2)).round_()
    pixels = torch.bmm(rows[0].to(kind), pixels)
    return pixels, rows[1][:, :, None] & columns[1][:, None, :]


def compose(rendered: tuple[Tensor, Tensor], counts: ViewCounts) -> tuple[Tensor, Tensor]:
    """Joins every four mosaic tiles. Returns canvas float32 [B, 256, 256] and content likewise."""
    pixels, content = rendered[0].float(), rendered[1].float()
    if not counts.mosaic:
        return pixels, content
    cut = 4 * counts.mosaic
    shape = (counts.mosaic, 4, CANVAS_SIZE, CANVAS_SIZE)
    return (
        torch.cat([pixels[:cut].reshape(shape).sum(1), pixels[cut:]]),
        torch.cat([content[:cut].reshape(shape).amax(1), content[cut:]]),
    )
