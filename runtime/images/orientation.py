"""Turn pictures upright by their EXIF orientation, 1 to 8: mirror them, then exchange rows and columns."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_MIRRORED_LEFT_RIGHT = (2, 3, 7, 8)
_MIRRORED_TOP_BOTTOM = (3, 4, 6, 7)
_TRANSPOSED = (5, 6, 7, 8)


def upright_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return width and height of the upright picture."""
    return (size[1], size[0]) if orientation in _TRANSPOSED else size


def as_stored(upright: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return a view of an upright picture [H, W, C] that has its pixels where the file stores them."""
    rows = slice(None, None, -1 if orientation in _MIRRORED_TOP_BOTTOM else 1)
    columns = slice(None, None, -1 if orientation in _MIRRORED_LEFT_RIGHT else 1)
    return (upright.swapaxes(0, 1) if orientation in _TRANSPOSED else upright)[rows, columns]


def upright_tensor(pixels: Tensor, orientation: int) -> Tensor:
    """Return pixels [C, h, w] turned upright, on their device."""
    axes = [-1] * (orientation in _MIRRORED_LEFT_RIGHT) + [-2] * (orientation in _MIRRORED_TOP_BOTTOM)
    mirrored = pixels.flip(axes) if axes else pixels
    return mirrored.transpose(-1, -2) if orientation in _TRANSPOSED else mirrored
