"""Turn pictures upright by their EXIF orientation, 1 to 8."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Size = tuple[int, int]  # width, height
Box = tuple[int, int, int, int]  # x1, y1, x2, y2

# Steps that turn a picture of an EXIF orientation upright: mirror, then exchange rows and columns.
_MIRRORED_LEFT_RIGHT = (2, 3, 7, 8)
_MIRRORED_TOP_BOTTOM = (3, 4, 6, 7)
_TRANSPOSED = (5, 6, 7, 8)


def upright_size(size: Size, orientation: int) -> Size:
    """Return the size of the upright picture."""
    width, height = size
    return (height, width) if orientation in _TRANSPOSED else (width, height)


def upright_box(box: Box, size: Size, orientation: int) -> Box:
    """Return a rectangle's position in the upright picture. size: of the picture as stored."""
    x1, y1, x2, y2 = box
    width, height = size
    if orientation in _MIRRORED_LEFT_RIGHT:
        x1, x2 = width - x2, width - x1
    if orientation in _MIRRORED_TOP_BOTTOM:
        y1, y2 = height - y2, height - y1
    return (y1, x1, y2, x2) if orientation in _TRANSPOSED else (x1, y1, x2, y2)


def upright_array(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return a view of pixels [h, w, C] turned upright."""
    columns = slice(None, None, -1 if orientation in _MIRRORED_LEFT_RIGHT else 1)
    rows = slice(None, None, -1 if orientation in _MIRRORED_TOP_BOTTOM else 1)
    mirrored = pixels[rows, columns]
    return mirrored.swapaxes(0, 1) if orientation in _TRANSPOSED else mirrored


def upright_tensor(pixels: Tensor, orientation: int) -> Tensor:
    """Return pixels [C, h, w] turned upright, on their device."""
    axes = [-1] * (orientation in _MIRRORED_LEFT_RIGHT) + [-2] * (orientation in _MIRRORED_TOP_BOTTOM)
    mirrored = pixels.flip(axes) if axes else pixels
    return mirrored.transpose(-1, -2) if orientation in _TRANSPOSED else mirrored
