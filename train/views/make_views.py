"""Draw augmented 256x256 views from an image store, entirely on the device and in fixed shapes.

A view is one tile (a whole letterboxed photograph, or a crop) or four (a mosaic). A tile fills a rectangle of
the canvas. It maps a photograph by `canvas = scale · source + offset` per axis; scale < 0 mirrors.

All random numbers are arguments: the functions are pure, so they can be compiled and captured.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lensbox.train.data.image_store import StoreTensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views.boxes import map_boxes, view_boxes
from lensbox.train.views.draws import PIXEL_DRAWS, Draws, ViewCounts
from lensbox.train.views.photometric import light_from_a_side, paint_covers, photometric
from lensbox.train.views.rotation import draw_turn, turn_pixels
from lensbox.train.views.tiles import compose, place_tiles, render_tiles


class Views(NamedTuple):
    """A batch for training.

    Attributes:
        images: float32 [B, 1, 256, 256], 0 to 255.
        targets: float32 [B, max_targets, 4], xyxy in canvas pixels; unused slots are zero (y2 = 0).
        ignored: float32 [B, max_ignored, 4], boxes that are neither faces to find nor background.
    """

    images: Tensor
    targets: Tensor
    ignored: Tensor


def make_views(store: StoreTensors, draws: Draws, counts: ViewCounts, config: TrainConfig) -> Views:
    """Return a batch of augmented views with their targets."""
    tiles = place_tiles(store, draws, counts, config)
    canvas, content = compose(render_tiles(store.images, store.sizes, tiles), counts)
    tones, turning, lighting, covering = draws.view.split_with_sizes(PIXEL_DRAWS, dim=1)
    # A change that is switched off costs nothing, not even compiled.
    turn = None
    if config.rotate_chance > 0:
        turn = draw_turn(turning, config.rotate_chance)
        canvas, content = turn_pixels(canvas, content, turn)
    targets, ignored = view_boxes(map_boxes(store, tiles), turn, counts, config)
    if config.cover_chance > 0:
        canvas = paint_covers(canvas, content, targets, covering, config.cover_chance)
    if config.light_chance > 0:
        canvas = light_from_a_side(canvas, lighting, config.light_chance)
    images = photometric(canvas, content, tones, draws.noise, config.photometric)
    return Views(images[:, None], targets, ignored)
