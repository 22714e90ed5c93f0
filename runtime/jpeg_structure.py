"""What the segments of a JPEG file tell before it is decoded."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lensbox.common.errors import InputError

# Markers of ITU-T T.81, table B.1: each is the byte 0xFF and then one of these.
_END_OF_IMAGE = 0xD9
START_OF_SCAN = 0xDA
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_HUFFMAN_FRAMES = {0xC0, 0xC1, 0xC2}  # baseline, extended sequential, progressive
APP1 = 0xE1
METADATA = {*range(0xE1, 0xF0), 0xFE} - {0xEE}  # APP1 to APP15 and comments; Adobe's APP14 tells the colors

EXIF_HEADER = b"Exif\0\0"  # of an APP1 segment with EXIF data

# A segment with a length, or the end. Restart markers and those below 0xC0 stand alone or are errors.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")

# The C++ runner holds to the same limits (`jpeg_decoder.cpp`). libjpeg's own progressive script, 18 scans for
# CMYK, passes at any size.
_MAX_SCANNED_BLOCKS = 1 << 24
_SCANS_ALWAYS_ALLOWED = 20


def has_signature(file: bytes) -> bool:
    """Whether a file begins like a JPEG file."""
    return file.startswith(b"\xff\xd8\xff")


def without_metadata(file: bytes, max_segments: int | None = None) -> bytes:
    """The same image without the segments before the first scan that do not decide its pixels.

    Decoders keep comments, EXIF, ICC profiles and thumbnails, at ten or more times their size when they are
    many and small, and parse some of them. Raises InputError after `max_segments` segments.
    """
    if not has_signature(file):
        return file
    view, kept, begin = memoryview(file), bytearray(), 0
    for segment in _segments(file, max_segments):
        if segment.marker == START_OF_SCAN:
            break
        if segment.marker in METADATA:
            kept += view[begin : segment.begin]
            begin = segment.end
    if begin == 0:
        return file
    kept += view[begin:]
    return bytes(kept)


def exif_data(file: bytes, max_segments: int | None = None) -> bytes:
    """The EXIF data of a JPEG file, of its first APP1 segment of that kind before the pixels; or nothing.

    Raises InputError after `max_segments` segments.
    """
    for segment in _segments(file, max_segments):
        if segment.marker == START_OF_SCAN:
            break
        if segment.marker == APP1:
            content = file[segment.begin + 4 : segment.end]
            if content.startswith(EXIF_HEADER):
                return content[len(EXIF_HEADER) :]
    return b""


def check_jpeg(file: bytes, width: int, height: int, max_segments: int | None = None) -> None:
    """Raises InputError for a JPEG file that would take too long to decode, or is coded arithmetically.

    A progressive file may go over all blocks again in every scan, 32 to 55 ns a block, from a handful of
    bytes: 7,000 x 7,000 pixels and 1,600 scans in 117 kB would take a minute. An arithmetic scan takes
    three times as long. It also raises it after `max_segments` segments.
    """
    frame = next(
        (segment.marker for segment in _segments(file, max_segments) if segment.marker in _FRAMES), None
    )
    if frame not in _HUFFMAN_FRAMES:
        raise InputError("a JPEG file must be Huffman-coded, baseline or progressive")
    allowed = allowed_scans(width, height)
    if most_scans(file) <= allowed:  # few files need the exact number
        return
    scans = 0
    for segment in _segments(file, max_segments):
        scans += segment.marker == START_OF_SCAN
        if scans > allowed:
            raise InputError(
                f"the JPEG file has too many scans: at most {allowed} are accepted for {width} x {height} "
                f"pixels, got {scans} or more"
            )


def allowed_scans(width: int, height: int) -> int:
    """How many scans a JPEG file of so many pixels may have."""
    blocks = -(-width // 8) * -(-height // 8)
    return max(_SCANS_ALWAYS_ALLOWED, _MAX_SCANNED_BLOCKS // blocks)


def most_scans(file: bytes) -> int:
    """The scans of a JPEG file, and maybe more than it has: how often their marker occurs in it.

    `bytes.count` is ten times slower: 0xFF is frequent.
    """
    wanted = np.frombuffer(bytes((0xFF, START_OF_SCAN)), np.uint16)
    even_and_odd = (np.frombuffer(file, np.uint16, (len(file) - first) // 2, first) for first in (0, 1))
    return sum(int(np.count_nonzero(pairs == wanted)) for pairs in even_and_odd)


class _Segment(NamedTuple):
    marker: int
    begin: int
    end: int


def _segments(file: bytes, max_segments: int | None) -> Iterator[_Segment]:
    """The marker segments up to the end of the image, found as libjpeg finds them."""
    at = count = 0
    while found := _MARKER.search(file, at):
        begin = found.start()
        length = int.from_bytes(file[begin + 2 : begin + 4], "big")
        marker = file[begin + 1]
        if marker == _END_OF_IMAGE or begin + 4 > len(file):
            return
        count += 1
        if max_segments is not None and count > max_segments:
            raise InputError(f"a JPEG file must have at most {max_segments} segments")
        # Coded data after a start-of-scan segment have no length, but no such marker in them either.
        at = begin + 2 + max(length, 2)
        yield _Segment(marker, begin, at)
