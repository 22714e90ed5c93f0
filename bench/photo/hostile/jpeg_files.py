"""JPEG files that take long to decode, written segment by segment: no encoder would make most of them."""

import io
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import PIL.Image

from lensbox.bench.photo.hostile.budget import MOST_BYTES
from lensbox.runtime.image_io import MAX_PIECES
from lensbox.runtime.jpeg_structure import allowed_scans

# Second bytes of markers, ITU-T T.81, table B.1.
_BASELINE, _PROGRESSIVE, _ARITHMETIC_PROGRESSIVE = 0xC0, 0xC2, 0xCA
_HUFFMAN_TABLE, _QUANTIZATION_TABLE, _RESTART_INTERVAL, _START_OF_SCAN = 0xC4, 0xDB, 0xDD, 0xDA
_RESTARTS = [bytes((0xFF, 0xD0 + index)) for index in range(8)]
_START, _END = b"\xff\xd8", b"\xff\xd9"
_ADOBE_CMYK = b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0)

_LONGEST_STRIP = 65_500  # libjpeg's limit for a side
_LONGEST_END_OF_BLOCK_RUN = (1 << 15) - 1


class _Scan(NamedTuple):
    """components: numbers from 1. first, last: coefficients in zigzag order. bits: T.81's Ah and Al."""

    components: Sequence[int]
    first: int
    last: int
    bits: int
    data: bytes = b""

    def encoded(self) -> bytes:
        selectors = b"".join(bytes((component, 0)) for component in self.components)
        spectral = bytes((self.first, self.last, self.bits))
        return _segment(_START_OF_SCAN, bytes((len(self.components),)) + selectors + spectral) + self.data


def many_scans(side: int, components: int = 1) -> bytes:
    """Progressive, with 1, 3 or 4 (CMYK) components and as many scans as are allowed. After the first, each
    goes over all coefficients of all blocks again, from a few bytes."""
    return _progressive(side, side, [0x11] * components, allowed_scans(side, side))


def too_many_scans(side: int) -> bytes:
    """One more than is allowed, of a size of which that many fit."""
    side = max(side, 1024)
    return _progressive(side, side, [0x11], allowed_scans(side, side) + 1)


def many_scans_of_a_strip(side: int) -> bytes:
    """The same for a strip one pixel high whose blocks come in groups of 4 x 4, of which one row is seen."""
    width = min(_LONGEST_STRIP, side * side)
    return _progressive(width, 1, [0x44], allowed_scans(width, 1))


def interleaved_scans(side: int) -> bytes:
    """CMYK, every scan over all four components, without data: decoders make up what is missing."""
    first, refinement = (_Scan(range(1, 5), 0, 0, bits) for bits in (0x01, 0x10))
    return _file(
        _PROGRESSIVE, side, side, [0x11] * 4, _repeated(first, refinement, allowed_scans(side, side))
    )


def arithmetic_coding(side: int) -> bytes:
    """Progressive and arithmetic: slower by far than Huffman codes."""
    return _file(_ARITHMETIC_PROGRESSIVE, side, side, [0x11], [_Scan([1], 0, 0, 0)])


def restart_markers(side: int) -> bytes:
    """Baseline, all gray, with as many restart markers as fit."""
    blocks = _in_eights(side) ** 2
    interval = 4 * -(-blocks * 3 // (4 * MOST_BYTES - 1024))  # 4 blocks a byte, and two for the marker
    row = bytes(interval // 4)
    count = -(-blocks // interval)
    data = b"".join(row + _RESTARTS[index % 8] for index in range(count - 1)) + row
    scan = _Scan([1], 0, 63, 0, data)
    restart = _segment(_RESTART_INTERVAL, struct.pack(">H", interval))
    return _file(_BASELINE, side, side, [0x11], [scan], restart)


def segments(side: int, count: int) -> bytes:
    """A small picture behind `count` empty application segments."""
    return _after_start(_small_picture(side), _segment(0xE5, b"") * count)


def fill_bytes(side: int) -> bytes:
    """A small picture behind a megabyte of 0xFF, with which any marker may begin."""
    picture = _small_picture(side)
    return _after_start(picture, b"\xff" * (MOST_BYTES - len(picture)))


def no_end(side: int) -> bytes:
    """A large picture that ends with its first scan's header."""
    return _file(_PROGRESSIVE, side, side, [0x11] * 3, [_Scan([1, 2, 3], 0, 0, 0x01)])[: -len(_END)]


def flat(side: int, progressive: bool) -> bytes:
    """One gray level in three components of full size, as an encoder writes it: complete, so that decoders
    have nothing to make up."""
    return _encoded(PIL.Image.new("RGB", (side, side)), subsampling="4:4:4", progressive=progressive)


def _progressive(width: int, height: int, sampling: Sequence[int], scans: int) -> bytes:
    """scans: how many, cut to what fits. All but the first refine the coefficients of the first component."""
    first = _Scan(range(1, len(sampling) + 1), 0, 0, 0x01)
    refinement = _Scan([1], 1, 63, 0x10, _ends_of_blocks(16 * _in_eights(width) * _in_eights(height)))
    return _file(_PROGRESSIVE, width, height, sampling, _repeated(first, refinement, scans))


def _repeated(first: _Scan, refinement: _Scan, count: int) -> list[_Scan]:
    """`count` scans in all, or as many as fit."""
    count = min(count, MAX_PIECES // 2, (MOST_BYTES - 1024) // len(refinement.encoded()))
    return [first, *[refinement] * (count - 1)]


def _ends_of_blocks(blocks: int) -> bytes:
    """Codes that say that so many blocks, and some more, have nothing new, by the tables of `_file`: a zero,
    and 14 bits of a run's length."""
    bits = ("0" + "1" * 14) * -(-blocks // _LONGEST_END_OF_BLOCK_RUN)
    bits += "1" * (-len(bits) % 8)
    # A zero byte goes behind 0xFF, so that it is no marker.
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")


def _file(
    frame: int,
    width: int,
    height: int,
    sampling: Sequence[int],
    scans: Sequence[_Scan],
    before_scans: bytes = b"",
) -> bytes:
    """sampling: of each component, horizontal * 16 + vertical. A zero bit is a DC difference of zero, and an
    AC code for the end of the block (baseline) or of the longest run of blocks (progressive)."""
    components = b"".join(bytes((index + 1, factors, 0)) for index, factors in enumerate(sampling))
    end_of_block = 0x00 if frame == _BASELINE else 0xE0
    return b"".join(
        (
            _START,
            _segment(0xEE, _ADOBE_CMYK) if len(sampling) == 4 else b"",
            _segment(_QUANTIZATION_TABLE, b"\0" + bytes([1] * 64)),
            _segment(frame, struct.pack(">BHHB", 8, height, width, len(sampling)) + components),
            _segment(_HUFFMAN_TABLE, b"\x00" + _one_bit_code(0x00)),
            _segment(_HUFFMAN_TABLE, b"\x10" + _one_bit_code(end_of_block)),
            before_scans,
            *(scan.encoded() for scan in scans),
            _END,
        )
    )


def _one_bit_code(symbol: int) -> bytes:
    """A Huffman table with one code: a zero."""
    return bytes((1, *[0] * 15, symbol))


def _small_picture(side: int) -> bytes:
    return _encoded(PIL.Image.new("RGB", (min(side, 64), min(side, 64))))


def _encoded(picture: PIL.Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", optimize=True, **options)
    return buffer.getvalue()


def _after_start(file: bytes, more: bytes) -> bytes:
    return _START + more + file[len(_START) :]


def _segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def _in_eights(side: int) -> int:
    return -(-side // 8)
