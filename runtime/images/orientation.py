"""Read the orientation of a picture from its EXIF data, and turn the picture upright."""

import struct

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.runtime.images import jpeg, png
from lensbox.runtime.images.limits import MAX_PIECES

_ORIENTATION_TAG = 0x0112
_SHORT = 3
_ENTRY_SIZE = 12


def exif_orientation(exif: bytes) -> int:
    """Return the orientation, 1 to 8, in EXIF data; 1 if it is missing or broken.

    exif: a TIFF structure, from its first byte, "II" or "MM", on. The first entry 0x0112 of the first
    directory counts, and must be one SHORT from 1 to 8. The data may be truncated behind that entry.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 8:
        return 1
    (at,) = struct.unpack_from(f"{order}I", exif, 4)
    if at + 2 > len(exif):
        return 1
    (count,) = struct.unpack_from(f"{order}H", exif, at)
    first = at + 2
    whole = min(count, (len(exif) - first) // _ENTRY_SIZE)
    for begin in range(first, first + whole * _ENTRY_SIZE, _ENTRY_SIZE):
        tag, kind, values, value = struct.unpack_from(f"{order}HHIH", exif, begin)
        if tag == _ORIENTATION_TAG:
            return value if (kind, values) == (_SHORT, 1) and 1 <= value <= 8 else 1
    return 1


Size = tuple[int, int]  # width, height
Box = tuple[int, int, int, int]  # x1, y1, x2, y2

# Steps that turn a picture of an EXIF orientation upright: mirror, then exchange rows and columns.
_MIRRORED_LEFT_RIGHT = (2, 3, 7, 8)
_MIRRORED_TOP_BOTTOM = (3, 4, 6, 7)
_TRANSPOSED = (5, 6, 7, 8)


def orientation_of(file: bytes) -> int:
    """Return the EXIF orientation, 1 to 8, of a JPEG, PNG or WebP file; 1 if it has no EXIF data."""
    return exif_orientation(split_exif(file)[1])


def split_exif(file: bytes) -> tuple[bytes, bytes]:
    """Return a JPEG or PNG file without the parts that do not affect its pixels, and its EXIF data, or b"".

    Other files stay as they are; only WebP files among them have EXIF data. Raise InputError for a broken PNG
    file, and after MAX_PIECES segments or chunks.
    """
    if jpeg.has_signature(file):
        return jpeg.without_metadata(file)
    if png.has_signature(file):
        return png.without_metadata(file)
    if file.startswith(b"RIFF") and file.startswith(b"WEBP", 8):
        return file, _webp_exif(file)
    return file, b""


def _webp_exif(file: bytes) -> bytes:
    """Return the first chunk EXIF of a WebP file, or b"". Raise InputError after MAX_PIECES chunks."""
    at, count = 12, 0
    while at + 8 <= len(file):
        count += 1
        if count > MAX_PIECES:
            raise InputError(f"a WebP file must have at most {MAX_PIECES} chunks")
        begin = at + 8
        size = int.from_bytes(file[at + 4 : begin], "little")
        if file.startswith(b"EXIF", at):
            return file[begin : begin + size].removeprefix(jpeg.EXIF_HEADER)
        at = begin + size + size % 2
    return b""


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
