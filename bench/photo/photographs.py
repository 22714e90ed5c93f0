"""The photographs that are timed, made of the two portraits of `lensbox.common.samples`.

One portrait fills the left; copies of both stand in rows to its right. Edges are sharpened and every pixel
gets noise. A JPEG file then has as many bits per pixel, and takes as long to decode, as one from a camera.
"""

import functools
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageFilter
import PIL.ImageOps

from lensbox.common.samples import Pixels, save_photos

_ROWS = 3  # of small portraits
_NOISE = 3.0  # standard deviation in gray levels: 1.6 bits a pixel of 4000 x 3000 at quality 90
_FILTER = PIL.Image.Resampling.LANCZOS
_SHARPENING = PIL.ImageFilter.UnsharpMask(radius=2, percent=80, threshold=0)


@dataclass(frozen=True)
class Photograph:
    """A JPEG file in memory. width, height: of its stored pixels."""

    file: bytes
    width: int
    height: int

    @property
    def name(self) -> str:
        return f"JPEG {self.width} x {self.height}"


def jpeg_photograph(width: int, height: int) -> Photograph:
    """Return a baseline JPEG of quality 90, 4:2:0, as most cameras write."""
    return Photograph(_jpeg(photo_pixels(width, height)), width, height)


def small_photographs(side: int, count: int) -> list[bytes]:
    """Return different square JPEG files: the portraits in turn, mirrored, brighter or darker, with noise."""
    portraits = _portraits()
    found = []
    for index in range(count):
        random = np.random.default_rng(index)
        picture = PIL.ImageOps.fit(portraits[index % len(portraits)], (side, side), _FILTER)
        if random.random() < 0.5:
            picture = PIL.ImageOps.mirror(picture)
        pixels = np.asarray(picture) * random.uniform(0.75, 1.1)
        found.append(_jpeg(_with_noise(pixels, random)))
    return found


def photo_pixels(width: int, height: int, variant: int = 0) -> Pixels:
    """Return uint8 [height, width, 3]. variant: an even one has one portrait large, an odd one the other."""
    large, small = _portraits()[:: 1 if variant % 2 else -1]
    picture = PIL.Image.new("RGB", (width, height))
    side = min(height, width)
    picture.paste(PIL.ImageOps.fit(large, (side, height), _FILTER), (0, 0))
    row_height = -(-height // _ROWS)
    columns = round((width - side) / row_height)
    for column in range(columns):
        left, right = (side + (width - side) * edge // columns for edge in (column, column + 1))
        for row in range(_ROWS):
            portrait = (small, PIL.ImageOps.mirror(large), PIL.ImageOps.mirror(small))[(column + row) % 3]
            cell = PIL.ImageOps.fit(portrait, (right - left, row_height), _FILTER)
            picture.paste(cell, (left, row * row_height))
    return _with_noise(np.asarray(picture.filter(_SHARPENING)), np.random.default_rng(variant))


@functools.cache
def _portraits() -> tuple[PIL.Image.Image, ...]:
    with tempfile.TemporaryDirectory() as folder:
        return tuple(PIL.Image.open(path).convert("RGB") for path in save_photos(Path(folder)))


def _with_noise(pixels: Any, random: np.random.Generator) -> Pixels:
    """Add the same noise to all channels: JPEG keeps color at a quarter of the resolution anyway."""
    noise = random.standard_normal((*pixels.shape[:2], 1), dtype=np.float32) * _NOISE
    noisy: Pixels = np.rint(pixels + noise).clip(0, 255).astype(np.uint8)
    return noisy


def _jpeg(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "JPEG", quality=90, subsampling="4:2:0")
    return buffer.getvalue()
