"""A photograph in memory."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from lensbox.common.pictures import ColorOrder, Picture, check_color_order, picture_pixels, require_rgb


@dataclass(frozen=True)
class Photo:
    """The pixels of a photograph, or of a part of it, at any scale, with their position.

    pixels: uint8 [C, h, w], C = 1 (gray), 3 (RGB) or 4 (RGBA), of any strides. width, height: of the upright
    photograph at full size, in pixels. window: x1, y1, x2, y2, the rectangle that `pixels` show, in pixels of
    the photograph; it may reach beyond the edges. Detected boxes are in pixels of the photograph.
    """

    pixels: Tensor
    width: int
    height: int
    window: tuple[float, float, float, float]

    @classmethod
    def of(cls, pixels: Tensor) -> "Photo":
        """Return a whole photograph at full size, uint8 [C, H, W]. Raise ValueError for another shape."""
        _check_pixels(pixels, "pixels")
        _, height, width = pixels.shape
        return cls(pixels, width, height, (0, 0, width, height))

    @property
    def is_whole(self) -> bool:
        """Return whether the pixels show the whole photograph at full size."""
        _, height, width = self.pixels.shape
        return (self.width, self.height) == (width, height) and self.window == (0, 0, width, height)


def is_in_memory(image: Any) -> bool:
    """Return whether `photo_of` takes the image; all others are files."""
    return isinstance(image, Tensor | Photo | np.ndarray | PIL.Image.Image)


def photo_of(image: Tensor | Photo | Picture, name: str, color_order: ColorOrder = "RGB") -> Photo:
    """Return an image as a photograph.

    name: of the image, for messages. color_order: of a tensor or an array with colors. Raise ValueError.
    """
    if isinstance(image, np.ndarray | PIL.Image.Image):
        pixels = torch.from_numpy(picture_pixels(image, name, color_order))
        return Photo.of(pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1))
    if isinstance(image, Tensor):
        check_color_order(color_order)
        _check_pixels(image, name)
        if color_order == "BGR" and image.shape[0] >= 3:
            image = image[[2, 1, 0, 3][: image.shape[0]]]
        return Photo.of(image)
    require_rgb(name, color_order)
    _check_pixels(image.pixels, f"{name}.pixels")
    x1, y1, x2, y2 = image.window
    if not (-math.inf < x1 < x2 < math.inf and -math.inf < y1 < y2 < math.inf):  # false for NaN, too
        raise ValueError(f"{name}.window must be x1, y1, x2, y2 with x1 < x2 and y1 < y2, got {image.window}")
    if image.width < 1 or image.height < 1:
        raise ValueError(
            f"{name} must have at least one row and one column, got {image.width} x {image.height}"
        )
    return image


def _check_pixels(pixels: Tensor, name: str) -> None:
    if pixels.dtype != torch.uint8:
        raise ValueError(f"{name} must be uint8, got {str(pixels.dtype).removeprefix('torch.')}")
    if pixels.dim() != 3 or pixels.shape[0] not in (1, 3, 4):
        shape = list(pixels.shape)
        hint = "; permute(2, 0, 1) puts C first" if shape[2:] in ([1], [3], [4]) else ""
        raise ValueError(f"{name} must have the shape [C, H, W] with C = 1, 3 or 4, got {shape}{hint}")
    if pixels.is_meta or pixels.layout != torch.strided:
        raise ValueError(f"{name} must hold its pixels, got a tensor {pixels.layout} on {pixels.device}")
    if 0 in pixels.shape:
        raise ValueError(f"{name} must have at least one row and one column, got {list(pixels.shape)}")
