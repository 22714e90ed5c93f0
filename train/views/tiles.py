"""Choose which photograph each tile of a view shows, how large and where, and paint it.

A tile's map is separable, so it is rendered as `rows @ (pixels @ columnsᵀ)`. The two matrices hold the
triangle filter of an antialiased resize, and tensor cores multiply them. `ops.letterbox` cannot replace this:
crops and mosaics lie at fractions of pixels, and the host does not know the sizes that the device draws. The
filter is the same, with whole gray levels between its passes. A whole view therefore equals the canvas of
`fit_to_canvases`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE
from lensbox.train.photographs import StoreTensors
from lensbox.train.settings import TrainConfig

TILE_DRAWS = 12
CROP_WINDOW = (0.4, 1.4)  # side of a crop as a share of the photograph's long side
CROP_ON_FACE = 0.85  # share of crops placed around a face
ASPECT = 0.1  # range of the logarithm of a crop's stretching: 0.1 is ± 10 %
MOSAIC_SCALE = (0.8, 1.7)  # scale of a mosaic's photograph against fitting its tile
SOFTEST = 3.0  # the filter is widened by this factor at most: a face of 100 px gets the detail of one of 33


class ViewCounts(NamedTuple):
    """Number of views of each kind in a batch, in this order: mosaics, whole photographs, crops."""

    mosaic: int
    whole: int
    crop: int

    @property
    def tiles(self) -> int:
        return 4 * self.mosaic + self.whole + self.crop

    @property
    def views(self) -> int:
        return self.mosaic + self.whole + self.crop


def view_counts(config: TrainConfig) -> ViewCounts:
    """Split a batch into kinds by the shares of the configuration."""
    mosaic = round(config.batch_size * config.mosaic_share)
    whole = round((config.batch_size - mosaic) * config.whole_share)
    return ViewCounts(mosaic, whole, config.batch_size - mosaic - whole)


class TileMaps(NamedTuple):
    """Maps of T tiles: image [T] index into the store; scale, offset [T, 2] for x and y (scale x < 0
    mirrors); rectangle [T, 4] xyxy of the canvas that the tile may paint; softness [T], a factor of at
    least 1 by which the filter is widened, None for 1."""

    image: Tensor
    scale: Tensor
    offset: Tensor
    rectangle: Tensor
    softness: Tensor | None = None


def place_tiles(store: StoreTensors, u: Tensor, mosaic_on: Tensor, config: TrainConfig) -> TileMaps:
    """Choose photograph, scale and place of every tile: mosaic tiles first (four of a view together).

    u: [tiles, TILE_DRAWS] uniform draws. mosaic_on: scalar, 1 for mosaics, 0 for crops instead.
    """
    counts = view_counts(config)
    image = _choose_images(store, u[:, 0], counts)
    size = store.sizes[image]
    mosaic = slice(0, 4 * counts.mosaic)
    whole = slice(mosaic.stop, mosaic.stop + counts.whole)
    crop = slice(whole.stop, None)

    parts = []
    if counts.mosaic:
        tiled = _mosaic_map(size[mosaic], u[mosaic])
        # With mosaics off, the first of four tiles is a crop and the other three paint nothing.
        first = torch.arange(4 * counts.mosaic, device=u.device) % 4 == 0
        single = _crop_map(store, image[mosaic], size[mosaic], u[mosaic])
        single = (single[0], single[1], single[2] * first[:, None])
        parts.append(tuple(torch.where(mosaic_on > 0.5, a, b) for a, b in zip(tiled, single, strict=True)))
    if counts.whole:
        parts.append(letterbox_map(size[whole]))
    if counts.crop:
        parts.append(_crop_map(store, image[crop], size[crop], u[crop]))
    scale, offset, rectangle = (torch.cat(group) for group in zip(*parts, strict=True))

    mirrored = u[:, 1] < 0.5
    reflected = rectangle[:, 0] + rectangle[:, 2] - offset[:, 0]
    offset = torch.stack([torch.where(mirrored, reflected, offset[:, 0]), offset[:, 1]], dim=1)
    scale = torch.stack([torch.where(mirrored, -scale[:, 0], scale[:, 0]), scale[:, 1]], dim=1)
    softness = None
    if (chance := config.soft_chance) > 0:
        softness = torch.where(u[:, 10] < chance, _log_uniform(u[:, 11], (1.0, SOFTEST)), 1.0)
    return TileMaps(image, scale, offset, rectangle, softness)


def _choose_images(store: StoreTensors, u: Tensor, counts: ViewCounts) -> Tensor:
    """Return the index [T] of each tile's photograph, drawn by weight; view v draws from fold v mod K."""
    views = torch.arange(counts.views, device=u.device)
    views = torch.cat([views[: counts.mosaic].repeat_interleave(4), views[counts.mosaic :]])
    fold = views % (store.folds.shape[0] - 1)
    low, high = store.folds[fold], store.folds[fold + 1]
    last = store.sizes.shape[0] - 1
    return torch.searchsorted(store.cumulative, low + u * (high - low), right=True).clamp(max=last)


def letterbox_map(size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scale, offset and rectangle of photographs of `size` [T, 2], as in `fit_to_canvases`."""
    fitted = (size * (CANVAS_SIZE / size.amax(1, keepdim=True))).round().clamp(min=1)
    offset = ((CANVAS_SIZE - fitted) / 2).floor()
    return fitted / size, offset, _whole_canvas(size)


def _whole_canvas(like: Tensor) -> Tensor:
    # Made on the device: a list would be copied there, which a captured step must not do.
    return torch.cat([torch.zeros_like(like), torch.full_like(like, CANVAS_SIZE)], dim=1)


def _log_uniform(u: Tensor, bounds: tuple[float, float]) -> Tensor:
    low, high = bounds
    return low * (high / low) ** u


def _stretched(scale: Tensor, u: Tensor) -> Tensor:
    stretch = torch.exp((u - 0.5) * ASPECT)
    return torch.stack([scale * stretch, scale / stretch], dim=1)


def _crop_map(store: StoreTensors, image: Tensor, size: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return maps of windows of random size, mostly placed with a face in the middle of the canvas."""
    count = store.counts[image]
    chosen = (u[:, 2] * count).long().clamp(max=store.boxes.shape[1] - 1)
    face = store.boxes[image, chosen]
    on_face = (u[:, 3] < CROP_ON_FACE) & (count > 0)
    center = torch.where(on_face[:, None], (face[:, :2] + face[:, 2:]) / 2, u[:, 4:6] * size)

    scale = CANVAS_SIZE / size.amax(1) / _log_uniform(u[:, 6], CROP_WINDOW)
    # A face must not outgrow the canvas.
    largest = (face[:, 2:] - face[:, :2]).amax(1).clamp(min=1)
    scale = torch.where(on_face, torch.minimum(scale, 0.85 * CANVAS_SIZE / largest), scale)
    scales = _stretched(scale, u[:, 7])
    place = CANVAS_SIZE * (0.15 + 0.7 * u[:, 8:10])
    # Slide the photograph back so that no more of the canvas is padding than its size makes necessary.
    slack = CANVAS_SIZE - scales * size
    offset = (place - scales * center).clamp(slack.clamp(max=0), slack.clamp(min=0))
    return scales, offset, _whole_canvas(size)


def _mosaic_map(size: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return maps of four rectangles that meet in a random point, each showing most of a photograph."""
    cross = (CANVAS_SIZE * (0.3 + 0.4 * u[:, 2:4])).round().reshape(-1, 4, 2)[:, :1]  # the first tile's draw
    edges = torch.cat([torch.zeros_like(cross), cross, torch.full_like(cross, CANVAS_SIZE)], dim=1)
    # Left, right, left, right; above, above, below, below.
    low, high = (
        torch.stack([part[..., 0].repeat(1, 2), part[..., 1].repeat_interleave(2, 1)], dim=2).flatten(0, 1)
        for part in (edges[:, :2], edges[:, 1:])
    )
    scale = ((high - low) / size).amin(1) * _log_uniform(u[:, 6], MOSAIC_SCALE)
    scales = _stretched(scale, u[:, 7])
    return scales, low + u[:, 8:10] * (high - low - scales * size), torch.cat([low, high], dim=1)


def filter_matrices(size: Tensor, tiles: TileMaps, source: int) -> tuple[Tensor, Tensor]:
    """Return the resizes of both axes as matrices: triangle filter, widened by the shrink factor as torch's
    `interpolate(mode="bilinear", antialias=True)` does, normalised inside the photograph. Softness widens it
    further, as bad focus or a photograph enlarged before does.

    size: [T, 2], width and height of the photographs. source: number of source pixels stored.
    Returns weights [T, 2, 256, source], for columns and rows; painted bool [T, 2, 256].
    """
    pixel = torch.arange(CANVAS_SIZE, device=size.device, dtype=torch.float32) + 0.5
    low, high = tiles.rectangle[:, :2, None], tiles.rectangle[:, 2:, None]
    center = (pixel - tiles.offset[..., None]) / tiles.scale[..., None]
    painted = (center >= 0) & (center <= size[..., None]) & (pixel >= low) & (pixel <= high)
    support = (1 / tiles.scale.abs()).clamp(min=1)
    if tiles.softness is not None:
        support = support * tiles.softness[:, None]
    taps = torch.arange(source, device=size.device, dtype=torch.float32) + 0.5
    # In place: uncompiled, each new [T, 2, CANVAS_SIZE, source] costs more to allocate than to compute.
    weights = (taps - center[..., None]).abs_().div_(-support[..., None, None]).add_(1).clamp_(min=0)
    weights.mul_(taps < size[..., None, None])
    total = weights.sum(3, keepdim=True).clamp(min=1e-6)
    return weights.mul_(painted[..., None] / total), painted


def render_tiles(images: Tensor, sizes: Tensor, tiles: TileMaps) -> tuple[Tensor, Tensor]:
    """Paint tiles. Return pixels float [T, 256, 256] (0 to 255) and mask bool of that shape."""
    # Half precision keeps 11 bits: sums of weighted bytes are exact to a tenth of a gray level.
    kind = torch.float16 if images.is_cuda else torch.float32
    weights, painted = filter_matrices(sizes[tiles.image], tiles, images.shape[2])
    columns, rows = weights.to(kind).unbind(1)
    pixels = torch.bmm(images[tiles.image].to(kind), columns.transpose(1, 2)).round_()
    return torch.bmm(rows, pixels), painted[:, 1, :, None] & painted[:, 0, None, :]


def compose(rendered: tuple[Tensor, Tensor], mosaics: int) -> tuple[Tensor, Tensor]:
    """Join every four mosaic tiles. Return canvas float32 [B, 256, 256] and mask likewise."""
    pixels, mask = rendered[0].float(), rendered[1].float()
    if not mosaics:
        return pixels, mask
    cut, shape = 4 * mosaics, (mosaics, 4, CANVAS_SIZE, CANVAS_SIZE)
    return (
        torch.cat([pixels[:cut].reshape(shape).sum(1), pixels[cut:]]),
        torch.cat([mask[:cut].reshape(shape).amax(1), mask[cut:]]),
    )
