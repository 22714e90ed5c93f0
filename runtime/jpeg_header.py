"""The header of a usual JPEG file, read in one quick pass."""

import struct
from typing import NamedTuple

from lensbox.runtime.jpeg_structure import APP1, EXIF_HEADER, METADATA, START_OF_SCAN, has_signature

# Markers of ITU-T T.81, table B.1.
_SEQUENTIAL_FRAMES, _PROGRESSIVE_FRAME = (0xC0, 0xC1), 0xC2
_TABLES = {0xC4, 0xDB, 0xDD}  # Huffman and quantization tables, restart interval

# What tells the colors, and the shortest that decoders do not disagree about: JFIF and Adobe.
_SHORTEST = {0xE0: 16, 0xEE: 14}

# Hundreds would be odd, and this must stay quick.
_MAX_SEGMENTS = 200

_SEGMENT = struct.Struct(">BBH")
_FRAME = struct.Struct(">BHHB")


class JpegHeader(NamedTuple):
    """What a JPEG file tells before its first scan.

    width, height: as stored, in pixels. components: 1 or 3, of 8 bits. has_more_scans: it is progressive, or
    its first scan holds only some of the components. exif: its EXIF data, or nothing.
    """

    width: int
    height: int
    components: int
    has_more_scans: bool
    exif: bytes


def usual_header(file: bytes) -> JpegHeader | None:
    """The header of a JPEG file of the kind that cameras and programs write; None for all others.

    That is: gray or of three components of 8 bits, Huffman-coded, with one whole frame and no byte between
    segments, of which each is one that any decoder understands. For such a header, decoders agree.
    """
    if not has_signature(file):
        return None
    at, end, frame, exif = 2, len(file) - _SEGMENT.size, None, None
    for _ in range(_MAX_SEGMENTS):
        if at > end:
            return None
        mark, marker, length = _SEGMENT.unpack_from(file, at)
        if mark != 0xFF or length < _SHORTEST.get(marker, 2):
            return None
        if marker in _SEQUENTIAL_FRAMES or marker == _PROGRESSIVE_FRAME:
            if frame is not None or length < 8 or at + 2 + length > len(file):
                return None
            bits, height, width, components = _FRAME.unpack_from(file, at + 4)
            if bits != 8 or components not in (1, 3) or length != 8 + 3 * components:
                return None
            frame = width, height, components, marker == _PROGRESSIVE_FRAME
        elif marker == START_OF_SCAN:
            if frame is None or at + 4 >= len(file):
                return None
            width, height, components, is_progressive = frame
            has_more_scans = is_progressive or file[at + 4] < components
            return JpegHeader(width, height, components, has_more_scans, exif or b"")
        elif marker == APP1 and exif is None and file.startswith(EXIF_HEADER, at + 4):
            exif = file[at + 4 + len(EXIF_HEADER) : at + 2 + length]
        elif marker not in _TABLES and marker not in METADATA and marker not in _SHORTEST:
            return None
        at += 2 + length
    return None
