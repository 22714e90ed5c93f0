"""PNG files that take long to decode."""

import math
import struct
import zlib

import numpy as np

from lensbox.bench.photo.hostile.budget import MOST_BYTES
from lensbox.bench.photo.hostile.exif import ON_ITS_SIDE
from lensbox.serve.image_limits import MAX_PNG_BYTES

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGBA = 6
_CHANNELS = 4
_PAETH = 4  # the filter that takes longest to undo
_PERIOD = 258  # bytes: deflate's longest match
# First row and column of each pass of an interlaced file, and the steps from there.
_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def bomb(side: int, bits: int, interlaced: bool = False, on_its_side: bool = False) -> bytes:
    """RGBA of 8 or 16 bits a sample, as large as is allowed: rows of the slowest filter whose noise repeats
    itself, so that they compress a hundredfold and more, and no branch of the filter can be foreseen.

    on_its_side: has EXIF data by which it is to be turned by 90 degrees.
    """
    side = min(side, math.isqrt(MAX_PNG_BYTES // (_CHANNELS * bits // 8)))
    compressor = zlib.compressobj(9)
    data = bytearray()
    for top, left, row_step, column_step in _PASSES if interlaced else ((0, 0, 1, 1),):
        height, width = -(-(side - top) // row_step), -(-(side - left) // column_step)
        row = bytes((_PAETH,)) + _noise(width * _CHANNELS * bits // 8)
        for _ in range(height if width > 0 else 0):
            data += compressor.compress(row)
    data += compressor.flush()
    exif = _chunk(b"eXIf", ON_ITS_SIDE) if on_its_side else b""
    return _file(side, bits, interlaced, exif + _chunk(b"IDAT", bytes(data)))


def too_many_pixels(side: int) -> bytes:
    """A billion pixels, and more, by the header."""
    return _file(max(side, 1 << 15), 8, False, _chunk(b"IDAT"))


def empty_data_chunks(side: int, count: int) -> bytes:
    """A small picture whose data come behind `count` empty chunks of data."""
    side = min(side, 64)
    picture = zlib.compress(bytes((1 + side * _CHANNELS) * side))
    return _file(side, 8, False, _chunk(b"IDAT") * count + _chunk(b"IDAT", picture))


def empty_blocks(side: int) -> bytes:
    """A small picture whose data begin with as many empty deflate blocks as fit."""
    side = min(side, 64)
    picture = zlib.compress(bytes((1 + side * _CHANNELS) * side))
    empty = b"\x00\x00\x00\xff\xff"
    blocks = empty * ((MOST_BYTES - len(picture) - 256) // len(empty))
    return _file(side, 8, False, _chunk(b"IDAT", picture[:2] + blocks + picture[2:]))


def metadata_bomb(side: int) -> bytes:
    """A small picture with a color profile and a text that inflate to 400 MB."""
    side = min(side, 64)
    compressor = zlib.compressobj(9)
    zeros = bytes(1 << 20)
    inflated = b"".join([compressor.compress(zeros) for _ in range(400)]) + compressor.flush()
    named = b"name\0\0" + inflated
    picture = _chunk(b"IDAT", zlib.compress(bytes((1 + side * _CHANNELS) * side)))
    return _file(side, 8, False, _chunk(b"iCCP", named) + _chunk(b"zTXt", named) + picture)


def _noise(length: int) -> bytes:
    pattern = np.random.default_rng(0).integers(0, 256, _PERIOD, np.uint8).tobytes()
    return (pattern * -(-length // _PERIOD))[:length]


def _file(side: int, bits: int, interlaced: bool, chunks: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", side, side, bits, _RGBA, 0, 0, interlaced)
    return _SIGNATURE + _chunk(b"IHDR", header) + chunks + _chunk(b"IEND")


def _chunk(name: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
