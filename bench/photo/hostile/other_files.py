"""GIF, WebP and BMP files that take long to decode."""

import io
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image

from lensbox.bench.photo.hostile.budget import MOST_BYTES

_NOISE_SIDE = 29  # of a tile that is repeated


def gif(side: int, interlaced: bool) -> bytes:
    """Flat but for as many rows of noise as fit: LZW codes of every length."""
    rows = min(side, MOST_BYTES // (2 * side))
    pixels = np.zeros((side, side), np.uint8)
    pixels[:rows] = np.random.default_rng(0).integers(0, 256, (rows, side), np.uint8)
    return _encoded(pixels, "GIF", interlace=interlaced)


def gif_of_small_blocks(side: int, count: int) -> bytes:
    """A small picture whose data go on with `count` sub-blocks of one byte."""
    file = _encoded(np.zeros((min(side, 64), min(side, 64)), np.uint8), "GIF")
    end = file.rindex(b"\0;")  # the last sub-block is empty; then comes the trailer
    return file[:end] + b"\1\0" * count + file[end:]


def webp(side: int, lossless: bool, alpha: bool, exif: bytes = b"") -> bytes:
    """A pattern of noise, repeated."""
    channels = 4 if alpha else 3
    tile = np.random.default_rng(0).integers(96, 160, (_NOISE_SIDE, _NOISE_SIDE, channels), np.uint8)
    copies = -(-side // _NOISE_SIDE)
    pixels = np.tile(tile, (copies, copies, 1))[:side, :side]
    options = {"lossless": lossless, "quality": 0, "method": 0, "alpha_quality": 0, "exif": exif}
    return _encoded(pixels, "WEBP", **options)


def run_length_bmp(side: int, pixels: int) -> bytes:
    """As many runs as fit, each as short as it can be, for `pixels` in rows of `side`."""
    height = pixels // side
    runs = (MOST_BYTES - 2048) // 2 - 2 * height
    length = -(-side * height // runs)
    row = bytes((length, 1)) * (side // length) + bytes((side % length, 2)) * (side % length > 0) + b"\0\0"
    return _bmp(side, height, bits=8, compression=1, data=row * height + b"\0\1")


def bilevel_bmp(side: int) -> bytes:
    """Not compressed, one bit a pixel: as many pixels as fit."""
    row_bytes = 4 * -(-side // 32)
    height = min(side, (MOST_BYTES - 2048) // row_bytes)
    return _bmp(side, height, bits=1, compression=0, data=b"\x55" * row_bytes * height)


def _bmp(width: int, height: int, bits: int, compression: int, data: bytes) -> bytes:
    palette = bytes(range(256)) * 4 if bits == 8 else b"\0\0\0\0\xff\xff\xff\0"
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 0, 0, 0, 0)
    offset = 14 + len(header) + len(palette)
    return struct.pack("<2sIHHI", b"BM", offset + len(data), 0, 0, offset) + header + palette + data


def _encoded(pixels: npt.NDArray[np.uint8], file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, file_format, **options)
    return buffer.getvalue()
