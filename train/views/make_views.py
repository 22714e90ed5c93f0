"""Draw augmented 256x256 views from an image store, entirely on the device and in fixed shapes.

A view is one tile (a whole letterboxed photograph, or a crop) or four (a mosaic). A tile fills a rectangle of
the canvas. It maps a photograph by `canvas = scale · source + offset` per axis; scale < 0 mirrors.

All random numbers are arguments: the functions are pure, so they can be compiled and captured.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE
from lensbox.train.photographs import StoreTensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views.boxes import map_boxes, view_boxes
from lensbox.train.views.changes import (
    COVER_DRAWS,
    LIGHT_DRAWS,
    PHOTOMETRIC_DRAWS,
    TURN_DRAWS,
    draw_turn,
    light_from_a_side,
    paint_covers,
    photometric,
    turn_pixels,
)
from lensbox.train.views.tiles import TILE_DRAWS, compose, place_tiles, render_tiles, view_counts

PIXEL_DRAWS = (PHOTOMETRIC_DRAWS, TURN_DRAWS, LIGHT_DRAWS, COVER_DRAWS)  # columns of `Draws.view`, in order


class Draws(NamedTuple):
    """Random numbers of one batch: tile [tiles, TILE_DRAWS] and view [views, sum(PIXEL_DRAWS)] uniform in
    [0, 1), noise [views, 256, 256] standard normal, mosaic_on: scalar, 1 for mosaics, 0 for crops instead."""

    tile: Tensor
    view: Tensor
    noise: Tensor
    mosaic_on: Tensor


class Views(NamedTuple):
    """A batch for training: images float32 [B, 1, 256, 256], 0 to 255; targets float32 [B, max_targets, 4],
    xyxy in canvas pixels, unused slots zero (y2 = 0); ignored float32 [B, max_ignored, 4], boxes that are
    neither faces to find nor background."""

    images: Tensor
    targets: Tensor
    ignored: Tensor


def plain_views(config: TrainConfig) -> TrainConfig:
    """Return the configuration with whole photographs for views, only mirrored and otherwise unchanged."""
    chances = ("photometric", "soft_chance", "light_chance", "cover_chance", "rotate_chance")
    return config.replace(whole_share=1.0, **dict.fromkeys(("mosaic_share", *chances), 0.0))


def draw(config: TrainConfig, mosaic_on: Tensor, generator: torch.Generator | None = None) -> Draws:
    """Draw a batch's random numbers on the device of `mosaic_on`, by default from its own generator."""
    counts, device = view_counts(config), mosaic_on.device
    noise_type = torch.float16 if device.type == "cuda" else torch.float32
    shape = (counts.views, CANVAS_SIZE, CANVAS_SIZE)
    return Draws(
        torch.rand(counts.tiles, TILE_DRAWS, device=device, generator=generator),
        torch.rand(counts.views, sum(PIXEL_DRAWS), device=device, generator=generator),
        torch.randn(shape, device=device, dtype=noise_type, generator=generator),
        mosaic_on,
    )


def make_views(store: StoreTensors, draws: Draws, config: TrainConfig) -> Views:
    """Return a batch of augmented views with their targets."""
    tiles = place_tiles(store, draws.tile, draws.mosaic_on, config)
    canvas, mask = compose(render_tiles(store.images, store.sizes, tiles), view_counts(config).mosaic)
    tones, turning, lighting, covering = draws.view.split_with_sizes(PIXEL_DRAWS, dim=1)
    # A change that is switched off costs nothing, not even compiled.
    turn = None
    if config.rotate_chance > 0:
        turn = draw_turn(turning, config.rotate_chance)
        canvas, mask = turn_pixels(canvas, mask, turn)
    targets, ignored = view_boxes(map_boxes(store, tiles), turn, config)
    if config.cover_chance > 0:
        canvas = paint_covers(canvas, mask, targets, covering, config.cover_chance)
    if config.light_chance > 0:
        canvas = light_from_a_side(canvas, lighting, config.light_chance)
    images = photometric(canvas, mask, tones, draws.noise, config.photometric)
    return Views(images[:, None], targets, ignored)
