"""Which way up a picture lies in its file, and turning it upright."""

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.Image import Transpose

from lensbox.runtime import jpeg_structure, png_structure, webp_structure
from lensbox.runtime.exif import exif_orientation

Size = tuple[int, int]  # width, height
Box = tuple[int, int, int, int]  # x1, y1, x2, y2

# What turns a picture of each orientation of EXIF upright; 1 is upright.
_TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,  # counter-clockwise
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
# The same in steps: first mirrored, then rows and columns exchanged.
_MIRRORED_LEFT_RIGHT = (2, 3, 7, 8)
_MIRRORED_TOP_BOTTOM = (3, 4, 6, 7)
_TRANSPOSED = (5, 6, 7, 8)


def orientation_of(file: bytes, max_pieces: int | None = None) -> int:
    """The orientation, 1 to 8, that the EXIF data of a JPEG, PNG or WebP file tell; else 1.

    Raises InputError for a broken PNG file, and after `max_pieces` segments or chunks.
    """
    for structure in (jpeg_structure, png_structure, webp_structure):
        if structure.has_signature(file):
            return exif_orientation(structure.exif_data(file, max_pieces))
    return 1


def upright_size(size: Size, orientation: int) -> Size:
    """The size of a picture once it is turned upright."""
    width, height = size
    return (height, width) if orientation in _TRANSPOSED else (width, height)


def upright_box(box: Box, size: Size, orientation: int) -> Box:
    """Where a rectangle of a picture lies once that is turned upright. size: as it is stored."""
    x1, y1, x2, y2 = box
    width, height = size
    if orientation in _MIRRORED_LEFT_RIGHT:
        x1, x2 = width - x2, width - x1
    if orientation in _MIRRORED_TOP_BOTTOM:
        y1, y2 = height - y2, height - y1
    return (y1, x1, y2, x2) if orientation in _TRANSPOSED else (x1, y1, x2, y2)


def upright_image(image: PIL.Image.Image, orientation: int) -> PIL.Image.Image:
    """The picture, or a rectangle of it, turned upright."""
    return image if orientation == 1 else image.transpose(_TURNS[orientation])


def upright_array(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Pixels [h, w, C] turned upright, over memory in that order."""
    if orientation == 1:
        return pixels
    columns = slice(None, None, -1 if orientation in _MIRRORED_LEFT_RIGHT else 1)
    rows = slice(None, None, -1 if orientation in _MIRRORED_TOP_BOTTOM else 1)
    mirrored = pixels[rows, columns]
    return np.ascontiguousarray(mirrored.swapaxes(0, 1) if orientation in _TRANSPOSED else mirrored)
