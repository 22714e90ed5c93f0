"""Draws augmented 256x256 views from an image store, entirely on the device and in fixed shapes.

A view is one tile (a whole letterboxed photograph, or a crop) or four (a mosaic). A tile maps a photograph
onto the canvas by `canvas = scale · source + offset` per axis (scale < 0 mirrors) inside a rectangle of the
canvas. Such a map is separable, so a tile is rendered as `rows @ pixels @ columnsᵀ`, where the two matrices
hold the triangle filter of an antialiased resize: tensor cores do the work, any scale is antialiased, and a
whole view is what `FaceDetector.preprocess` would show.

All random numbers come in as arguments: the functions are pure, hence compile and capture into CUDA graphs.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.train.config.config import TrainConfig
from lensbox.train.data.image_store import StoreTensors
from lensbox.train.views.box_selection import MappedBoxes, judge_boxes, select_boxes
from lensbox.train.views.photometric import (
    COVER_DRAWS,
    LIGHT_DRAWS,
    PHOTOMETRIC_DRAWS,
    light_from_a_side,
    paint_covers,
    photometric,
)
from lensbox.train.views.rotation import TURN_DRAWS, Turn, draw_turn, turn_boxes, turn_pixels

CANVAS = 256
SOFTEST = 3.0  # what the filter is widened by at most: a face of 100 px with the detail of one of 33
TILE_DRAWS = 12
PIXEL_DRAWS = (PHOTOMETRIC_DRAWS, TURN_DRAWS, LIGHT_DRAWS, COVER_DRAWS)  # columns of `Draws.view`, in order
VIEW_DRAWS = sum(PIXEL_DRAWS)


class ViewCounts(NamedTuple):
    """How many views of each kind a batch holds, in this order: mosaics, whole photographs, crops."""

    mosaic: int
    whole: int
    crop: int

    @property
    def tiles(self) -> int:
        return 4 * self.mosaic + self.whole + self.crop

    @property
    def views(self) -> int:
        return self.mosaic + self.whole + self.crop


class Draws(NamedTuple):
    """Random numbers of one batch: tile [tiles, TILE_DRAWS] and view [views, VIEW_DRAWS] uniform in [0, 1),
    noise [views, CANVAS, CANVAS] standard normal, mosaic_on: scalar, 1 for mosaics, 0 for crops instead."""

    tile: Tensor
    view: Tensor
    noise: Tensor
    mosaic_on: Tensor


class Views(NamedTuple):
    """A batch for training.

    Attributes:
        images: float32 [B, 1, CANVAS, CANVAS], 0 to 255.
        targets: float32 [B, max_targets, 4], xyxy in canvas pixels; unused slots are zero (y2 = 0).
        ignored: float32 [B, max_ignored, 4], boxes that are neither faces to find nor background.
    """

    images: Tensor
    targets: Tensor
    ignored: Tensor


class Tiles(NamedTuple):
    """Maps of T tiles: image [T] index into the store; scale, offset [T, 2] for x and y (scale x < 0
    mirrors); rectangle [T, 4] xyxy of the canvas that the tile may paint; softness [T], a factor of at
    least 1 by which the filter is widened, None for 1."""

    image: Tensor
    scale: Tensor
    offset: Tensor
    rectangle: Tensor
    softness: Tensor | None = None


def view_counts(config: TrainConfig) -> ViewCounts:
    """Splits a batch into kinds by the shares of the configuration."""
    mosaic = round(config.batch_size * config.mosaic_share)
    whole = round((config.batch_size - mosaic) * config.whole_share)
    return ViewCounts(mosaic, whole, config.batch_size - mosaic - whole)


def plain_views(config: TrainConfig) -> TrainConfig:
    """The configuration with whole photographs for views, only mirrored and otherwise unchanged."""
    return dataclasses.replace(
        config,
        mosaic_share=0.0,
        whole_share=1.0,
        photometric=0.0,
        soft_chance=0.0,
        light_chance=0.0,
        cover_chance=0.0,
        rotate_chance=0.0,
    )


def draw(
    counts: ViewCounts,
    mosaic_on: Tensor,
    device: torch.device | str,
    generator: torch.Generator | None = None,
) -> Draws:
    """Draws a batch's random numbers, from the device's default generator if no other is given."""
    noise_type = torch.float16 if torch.device(device).type == "cuda" else torch.float32
    shape = (counts.views, CANVAS, CANVAS)
    return Draws(
        torch.rand(counts.tiles, TILE_DRAWS, device=device, generator=generator),
        torch.rand(counts.views, VIEW_DRAWS, device=device, generator=generator),
        torch.randn(shape, device=device, dtype=noise_type, generator=generator),
        mosaic_on,
    )


def make_views(store: StoreTensors, draws: Draws, counts: ViewCounts, config: TrainConfig) -> Views:
    """Returns a batch of augmented views with their targets."""
    tiles = place_tiles(store, draws, counts, config)
    canvas, content = _compose(render_tiles(store.images, store.sizes, tiles), counts)
    tones, turning, lighting, covering = draws.view.split_with_sizes(PIXEL_DRAWS, dim=1)
    # A change that is switched off costs nothing, not even compiled.
    turn = None
    if config.rotate_chance > 0:
        turn = draw_turn(turning, config.rotate_chance, config.rotate_degrees)
        canvas, content = turn_pixels(canvas, content, turn)
    targets, ignored = _view_boxes(map_boxes(store, tiles), turn, counts, config)
    if config.cover_chance > 0:
        canvas = paint_covers(canvas, content, targets, covering, config.cover_chance)
    if config.light_chance > 0:
        canvas = light_from_a_side(canvas, lighting, config.light_chance)
    images = photometric(canvas, content, tones, draws.noise, config.photometric)
    return Views(images[:, None], targets, ignored)


# Where tiles go


def place_tiles(store: StoreTensors, draws: Draws, counts: ViewCounts, config: TrainConfig) -> Tiles:
    """Chooses photograph, scale and place of every tile: mosaic tiles first (four of a view together)."""
    u = draws.tile
    image = _choose_images(store, u[:, 0], counts)
    size = store.sizes[image]
    mosaic = slice(0, 4 * counts.mosaic)
    whole = slice(mosaic.stop, mosaic.stop + counts.whole)
    crop = slice(whole.stop, None)

    parts = []
    if counts.mosaic:
        tiled = _mosaic_map(size[mosaic], u[mosaic], config)
        # With mosaics off, the first of four tiles is a crop and the others paint nothing.
        first = torch.arange(4 * counts.mosaic, device=u.device) % 4 == 0
        single = _crop_map(store, image[mosaic], size[mosaic], u[mosaic], config)
        single = (single[0], single[1], single[2] * first[:, None])
        on = draws.mosaic_on > 0.5
        parts.append(tuple(torch.where(on, a, b) for a, b in zip(tiled, single, strict=True)))
    if counts.whole:
        parts.append(letterbox_map(size[whole]))
    if counts.crop:
        parts.append(_crop_map(store, image[crop], size[crop], u[crop], config))
    scale, offset, rectangle = (torch.cat(group) for group in zip(*parts, strict=True))

    mirrored = u[:, 1] < 0.5
    reflected = rectangle[:, 0] + rectangle[:, 2] - offset[:, 0]
    offset = torch.stack([torch.where(mirrored, reflected, offset[:, 0]), offset[:, 1]], dim=1)
    scale = torch.stack([torch.where(mirrored, -scale[:, 0], scale[:, 0]), scale[:, 1]], dim=1)
    softness = None
    if config.soft_chance > 0:
        softness = torch.where(u[:, 10] < config.soft_chance, _log_uniform(u[:, 11], (1.0, SOFTEST)), 1.0)
    return Tiles(image, scale, offset, rectangle, softness)


def _choose_images(store: StoreTensors, u: Tensor, counts: ViewCounts) -> Tensor:
    """Index [T] of each tile's photograph, by its weight; all of view v lie in fold v mod K of `store`."""
    views = torch.arange(counts.views, device=u.device)
    views = torch.cat([views[: counts.mosaic].repeat_interleave(4), views[counts.mosaic :]])
    fold = views % (store.folds.shape[0] - 1)
    low, high = store.folds[fold], store.folds[fold + 1]
    last = store.sizes.shape[0] - 1
    return torch.searchsorted(store.cumulative, low + u * (high - low), right=True).clamp(max=last)


def letterbox_map(size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale, offset and rectangle of whole photographs of `size` [T, 2], as in `FaceDetector.preprocess`."""
    fitted = (size * (CANVAS / size.amax(1, keepdim=True))).round().clamp(min=1)
    offset = ((CANVAS - fitted) / 2).floor()
    return fitted / size, offset, _whole_canvas(size)


def _whole_canvas(like: Tensor) -> Tensor:
    # Made on the device: a list would be copied there, which a captured step must not do.
    return torch.cat([torch.zeros_like(like), torch.full_like(like, CANVAS)], dim=1)


def _log_uniform(u: Tensor, bounds: tuple[float, float]) -> Tensor:
    low, high = bounds
    return low * (high / low) ** u


def _crop_map(
    store: StoreTensors, image: Tensor, size: Tensor, u: Tensor, config: TrainConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """A window of random size, mostly placed so that some face lies in the middle part of the canvas."""
    count = store.counts[image]
    chosen = (u[:, 2] * count).long().clamp(max=store.boxes.shape[1] - 1)
    face = store.boxes[image, chosen]
    on_face = (u[:, 3] < config.crop_on_face) & (count > 0)
    center = torch.where(on_face[:, None], (face[:, :2] + face[:, 2:]) / 2, u[:, 4:6] * size)

    scale = CANVAS / size.amax(1) / _log_uniform(u[:, 6], config.crop_window)
    # A face must not outgrow the canvas.
    largest = (face[:, 2:] - face[:, :2]).amax(1).clamp(min=1)
    scale = torch.where(on_face, torch.minimum(scale, 0.85 * CANVAS / largest), scale)
    stretch = torch.exp((u[:, 7] - 0.5) * config.crop_aspect)
    scales = torch.stack([scale * stretch, scale / stretch], dim=1)

    place = CANVAS * (0.15 + 0.7 * u[:, 8:10])
    # Slide the photograph back so that no more of the canvas is padding than its size makes necessary.
    slack = CANVAS - scales * size
    offset = torch.maximum(torch.minimum(place - scales * center, slack.clamp(min=0)), slack.clamp(max=0))
    return scales, offset, _whole_canvas(size)


def _mosaic_map(size: Tensor, u: Tensor, config: TrainConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Four rectangles that meet in a random point, each showing most of a photograph."""
    cross = (CANVAS * (0.3 + 0.4 * u[:, 2:4])).round().reshape(-1, 4, 2)[:, :1]  # the first tile's draw
    zero, full = torch.zeros_like(cross), torch.full_like(cross, CANVAS)
    (left, top), (x, y), (right, bottom) = (part.unbind(-1) for part in (zero, cross, full))
    rectangle = torch.stack(
        [
            torch.cat([left, x, left, x], dim=1),
            torch.cat([top, top, y, y], dim=1),
            torch.cat([x, right, x, right], dim=1),
            torch.cat([y, y, bottom, bottom], dim=1),
        ],
        dim=2,
    ).reshape(-1, 4)
    room = rectangle[:, 2:] - rectangle[:, :2]
    scale = (room / size).amin(1) * _log_uniform(u[:, 6], config.mosaic_scale)
    stretch = torch.exp((u[:, 7] - 0.5) * config.crop_aspect)
    scales = torch.stack([scale * stretch, scale / stretch], dim=1)
    return scales, rectangle[:, :2] + u[:, 8:10] * (room - scales * size), rectangle


# Pixels


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
        weights [T, CANVAS, source]; painted bool [T, CANVAS].
    """
    pixel = torch.arange(CANVAS, device=size.device, dtype=torch.float32) + 0.5
    center = (pixel - offset[:, None]) / scale[:, None]
    painted = (center >= 0) & (center <= size[:, None]) & (pixel >= low[:, None]) & (pixel <= high[:, None])
    support = (1 / scale.abs()).clamp(min=1)
    if softness is not None:
        support = support * softness
    taps = torch.arange(source, device=size.device, dtype=torch.float32) + 0.5
    # In place: uncompiled, each new [T, CANVAS, source] costs more to allocate than to compute.
    weights = (taps - center[..., None]).abs_().div_(-support[:, None, None]).add_(1).clamp_(min=0)
    weights.mul_(taps < size[:, None, None])
    total = weights.sum(2, keepdim=True).clamp(min=1e-6)
    return weights.mul_(painted[..., None] / total), painted


def render_tiles(images: Tensor, sizes: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor]:
    """Paints tiles. Returns pixels float [T, CANVAS, CANVAS] (0 to 255) and content bool of that shape."""
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
    pixels = torch.bmm(rows[0].to(kind), images[tiles.image].to(kind))
    pixels = torch.bmm(pixels, columns[0].to(kind).transpose(1, 2))
    return pixels, rows[1][:, :, None] & columns[1][:, None, :]


def _compose(rendered: tuple[Tensor, Tensor], counts: ViewCounts) -> tuple[Tensor, Tensor]:
    """Joins every four mosaic tiles. Returns canvas float32 [B, CANVAS, CANVAS] and content likewise."""
    pixels, content = rendered[0].float(), rendered[1].float()
    if not counts.mosaic:
        return pixels, content
    cut = 4 * counts.mosaic
    shape = (counts.mosaic, 4, CANVAS, CANVAS)
    return (
        torch.cat([pixels[:cut].reshape(shape).sum(1), pixels[cut:]]),
        torch.cat([content[:cut].reshape(shape).amax(1), content[cut:]]),
    )


# Boxes


def _view_boxes(
    mapped: MappedBoxes, turn: Turn | None, counts: ViewCounts, config: TrainConfig
) -> tuple[Tensor, Tensor]:
    """Joins the boxes of every four mosaic tiles, turns them with their views and selects."""
    cut, mosaics = 4 * counts.mosaic, slice(0, counts.mosaic)
    groups = []
    if counts.mosaic:
        joined = (x[:cut].reshape(counts.mosaic, -1, *x.shape[2:]) for x in mapped)
        groups.append((MappedBoxes(*joined), mosaics))
    if counts.tiles > cut:
        groups.append((MappedBoxes(*(x[cut:] for x in mapped)), slice(counts.mosaic, None)))
    parts = []
    for group, views in groups:
        if turn is not None:
            # Before selecting: what left the view must not take a slot.
            clipped, visible = turn_boxes(*group[:3], Turn(*(x[views] for x in turn)))
            group = group._replace(clipped=clipped, visible=visible)
        parts.append(select_boxes(*judge_boxes(group, config), config))
    targets, ignored = (torch.cat(group) for group in zip(*parts, strict=True))
    return targets, ignored


def map_boxes(store: StoreTensors, tiles: Tiles) -> MappedBoxes:
    """Maps the boxes of every tile's photograph onto the canvas and clips them to the tile's rectangle."""
    source = store.boxes[tiles.image]
    scale = torch.cat([tiles.scale, tiles.scale], dim=1)[:, None]
    offset = torch.cat([tiles.offset, tiles.offset], dim=1)[:, None]
    mapped = source * scale + offset
    low = torch.minimum(mapped[..., :2], mapped[..., 2:])  # mirrored boxes have their sides swapped
    high = torch.maximum(mapped[..., :2], mapped[..., 2:])
    corner, far = tiles.rectangle[:, None, :2], tiles.rectangle[:, None, 2:]
    clipped_low = torch.minimum(torch.maximum(low, corner), far)
    clipped_high = torch.minimum(torch.maximum(high, corner), far)
    visible = (clipped_high - clipped_low).prod(2) / (high - low).prod(2).clamp(min=1e-6)

    slot = torch.arange(source.shape[1], device=source.device)
    used = slot < store.totals[tiles.image][:, None]
    labelled = slot < store.counts[tiles.image][:, None]
    whole, clipped = torch.cat([low, high], dim=2), torch.cat([clipped_low, clipped_high], dim=2)
    return MappedBoxes(whole, clipped, visible, used, labelled)
