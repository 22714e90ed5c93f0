"""The pixels of an opened image as a tensor."""

from collections.abc import Callable, Iterator

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from lensbox.runtime.orientation import Box, upright_box, upright_image, upright_size

_TILE_PIXELS = 1 << 19  # converted at a time: fits the caches, and keeps the GIL for a millisecond or so


def upright_pixels(
    image: PIL.Image.Image, mode: str, orientation: int, before_each_tile: Callable[[], None]
) -> Tensor:
    """An image turned upright: uint8 [C, H, W], C = 1 (gray), 3 (RGB) or 4 (RGBA), over interleaved memory.

    mode: "L", "RGB" or "RGBA". Converted and turned tile by tile: a large image is never held a third time.
    before_each_tile: may raise.
    """
    image.info.pop("transparency", None)  # of a palette; `convert` would spend time on it for nothing
    width, height = upright_size(image.size, orientation)
    pixels = torch.empty((height, width, len(mode)), dtype=torch.uint8)
    upright = pixels.numpy()
    for box in _tiles(image.width, image.height):
        before_each_tile()
        part = image if box == (0, 0, *image.size) else image.crop(box)
        tile = upright_image(converted(part, mode), orientation)
        left, top, right, bottom = upright_box(box, image.size, orientation)
        values = np.frombuffer(tile.tobytes(), np.uint8)
        upright[top:bottom, left:right] = values.reshape(tile.height, tile.width, len(mode))
    return pixels.permute(2, 0, 1)


def _tiles(width: int, height: int) -> Iterator[Box]:
    """Boxes that cover an image, each of at most _TILE_PIXELS."""
    tile_width = min(width, _TILE_PIXELS)
    tile_height = _TILE_PIXELS // tile_width
    for top in range(0, height, tile_height):
        for left in range(0, width, tile_width):
            yield left, top, min(left + tile_width, width), min(top + tile_height, height)


def target_mode(mode: str) -> str:
    """What to convert an image of a mode of Pillow to; each letter of its name is a channel."""
    if mode in ("L", "RGB", "RGBA"):
        return mode
    return "L" if mode in ("1", "LA", "La", "F") or mode.startswith("I") else "RGB"


def converted(image: PIL.Image.Image, mode: str) -> PIL.Image.Image:
    """An image in the mode "L", "RGB" or "RGBA"; the same one if it is in this mode."""
    if image.mode.startswith("I"):
        # 16-bit gray. Pillow's own conversion would clip at 255 instead of dropping the low byte.
        image = PIL.Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    return image if image.mode == mode else image.convert(mode)
