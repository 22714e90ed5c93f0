"""The number of views of each kind in a batch, and the random numbers that they are drawn with."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE
from lensbox.train.settings import TrainConfig
from lensbox.train.views.photometric import COVER_DRAWS, LIGHT_DRAWS, PHOTOMETRIC_DRAWS
from lensbox.train.views.rotation import TURN_DRAWS

TILE_DRAWS = 12
PIXEL_DRAWS = (PHOTOMETRIC_DRAWS, TURN_DRAWS, LIGHT_DRAWS, COVER_DRAWS)  # columns of `Draws.view`, in order
VIEW_DRAWS = sum(PIXEL_DRAWS)


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


class Draws(NamedTuple):
    """Random numbers of one batch: tile [tiles, TILE_DRAWS] and view [views, VIEW_DRAWS] uniform in [0, 1),
    noise [views, 256, 256] standard normal, mosaic_on: scalar, 1 for mosaics, 0 for crops instead."""

    tile: Tensor
    view: Tensor
    noise: Tensor
    mosaic_on: Tensor


def view_counts(config: TrainConfig) -> ViewCounts:
    """Split a batch into kinds by the shares of the configuration."""
    mosaic = round(config.batch_size * config.mosaic_share)
    whole = round((config.batch_size - mosaic) * config.whole_share)
    return ViewCounts(mosaic, whole, config.batch_size - mosaic - whole)


def plain_views(config: TrainConfig) -> TrainConfig:
    """Return the configuration with whole photographs for views, only mirrored and otherwise unchanged."""
    chances = ("photometric", "soft_chance", "light_chance", "cover_chance", "rotate_chance")
    return config.replace(whole_share=1.0, **dict.fromkeys(("mosaic_share", *chances), 0.0))


def draw(
    counts: ViewCounts,
    mosaic_on: Tensor,
    device: torch.device | str,
    generator: torch.Generator | None = None,
) -> Draws:
    """Draw a batch's random numbers, from the device's default generator if no other is given."""
    noise_type = torch.float16 if torch.device(device).type == "cuda" else torch.float32
    shape = (counts.views, CANVAS_SIZE, CANVAS_SIZE)
    return Draws(
        torch.rand(counts.tiles, TILE_DRAWS, device=device, generator=generator),
        torch.rand(counts.views, VIEW_DRAWS, device=device, generator=generator),
        torch.randn(shape, device=device, dtype=noise_type, generator=generator),
        mosaic_on,
    )
