"""JPEG files: header, segments, a bound on the cost of decoding, and the scale of decoding."""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.runtime.images.limits import MAX_PIECES

# Markers of ITU-T T.81, table B.1: each is the byte 0xFF and then one of these.
_END_OF_IMAGE = 0xD9
START_OF_SCAN = 0xDA
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_HUFFMAN_FRAMES = {0xC0, 0xC1, 0xC2}  # baseline, extended sequential, progressive
_PROGRESSIVE_FRAME = 0xC2
APP1 = 0xE1
METADATA = {*range(0xE1, 0xF0), 0xFE} - {0xEE}  # APP1 to APP15 and comments; Adobe's APP14 tells the colors

EXIF_HEADER = b"Exif\0\0"  # of an APP1 segment with EXIF data

# A segment with a length, or the end. Restart markers and markers below 0xC0 stand alone or are errors.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")

# The C++ runner has the same limits (`jpeg_decoder.cpp`). libjpeg's own progressive script, 18 scans for
# CMYK, is allowed at any size.
_MAX_SCANNED_BLOCKS = 1 << 24
_SCANS_ALWAYS_ALLOWED = 20

_ALL_BITS = 16  # of a coefficient that no scan gave; more than a scan can leave out
_MISSING_SCANS = "scans are missing in the JPEG file"


def has_signature(file: bytes | bytearray) -> bool:
    """Return whether a file begins like a JPEG file."""
    return file.startswith(b"\xff\xd8\xff")


def without_metadata(file: bytes) -> tuple[bytes, bytes]:
    """Return a JPEG file without the segments before the first scan that do not affect its pixels, and the
    EXIF data of the first segment that has them; b"" if there is none.

    Decoders keep comments, EXIF, ICC profiles and thumbnails, and parse some of them; many small segments
    take ten times their size in memory. Raise InputError after MAX_PIECES segments.
    """
    view, kept, kept_to, exif = memoryview(file), bytearray(), 0, None
    for marker, begin, end in _segments(file):
        if marker == START_OF_SCAN:
            break
        if marker in METADATA:
            kept += view[kept_to:begin]
            kept_to = end
            content = view[begin + 4 : end]
            if exif is None and marker == APP1 and content[: len(EXIF_HEADER)] == EXIF_HEADER:
                exif = bytes(content[len(EXIF_HEADER) :])
    if kept_to == 0:
        return file, b""
    kept += view[kept_to:]
    return bytes(kept), exif or b""


def check_jpeg(file: bytes, width: int, height: int) -> None:
    """Raise InputError for a JPEG file with missing or too many scans, many segments, or arithmetic coding.

    Every scan of a progressive file may visit all blocks, at 32 to 55 ns per block, and needs only a few
    bytes: 7,000 x 7,000 pixels with 1,600 scans in 117 kB would take a minute. Arithmetic coding takes three
    times as long.
    """
    blocks = -(-width // 8) * -(-height // 8)
    allowed = max(_SCANS_ALWAYS_ALLOWED, _MAX_SCANNED_BLOCKS // blocks)
    scans = count_scans(file, allowed)
    if scans > allowed:
        raise InputError(
            f"the JPEG file has too many scans: at most {allowed} are accepted for {width} x {height} "
            f"pixels, got {scans} or more"
        )


def count_scans(file: bytes, most: int) -> int:
    """Return the number of scans of a JPEG file, or `most` + 1 if there are more.

    Raise InputError for arithmetic coding, and unless the scans give every coefficient of every component in
    full: libjpeg guesses missing coefficients from the neighbours, and each version of it guesses otherwise.
    """
    missing_bits: dict[int, list[int]] = {}  # of the 64 coefficients, by component
    frame = scans = 0
    for marker, begin, end in _segments(file):
        content = file[begin + 4 : end]
        if marker in _FRAMES and not frame:
            frame = marker
            missing_bits = {component: [_ALL_BITS] * 64 for component in content[6::3]}
        elif marker == START_OF_SCAN:
            scans += 1
            if scans > most:
                return scans
            if content:
                _add_scan(missing_bits, content, frame == _PROGRESSIVE_FRAME)
            if scans == 1 and frame != _PROGRESSIVE_FRAME and not any(map(any, missing_bits.values())):
                break  # libjpeg reads no further scan, and the search of the coded data would take long
    if frame not in _HUFFMAN_FRAMES:
        raise InputError("a JPEG file must be Huffman-coded, baseline or progressive")
    if any(map(any, missing_bits.values())):
        raise InputError(_MISSING_SCANS)
    return scans


def _add_scan(missing_bits: dict[int, list[int]], scan: bytes, is_progressive: bool) -> None:
    """Note the bits that a scan gives. scan: the content of its segment."""
    end = 1 + 2 * scan[0]
    first, last, bits = scan[end : end + 3].ljust(3, b"\0") if is_progressive else (0, 63, 0)
    for component in scan[1:end:2]:
        missing = missing_bits.setdefault(component, [_ALL_BITS] * 64)
        before = missing[first : last + 1]
        if any(bits >> 4 != one % _ALL_BITS for one in before) or (first and missing[0] == _ALL_BITS):
            raise InputError(_MISSING_SCANS)  # it refines other bits than those that are known
        missing[first : last + 1] = [bits & 15] * len(before)


def _segments(file: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield marker, begin and end of the segments up to the end of the image, found as libjpeg finds them."""
    at = count = 0
    while found := _MARKER.search(file, at):
        begin = found.start()
        length = int.from_bytes(file[begin + 2 : begin + 4], "big")
        marker = file[begin + 1]
        if marker == _END_OF_IMAGE or begin + 4 > len(file):
            return
        count += 1
        if count > MAX_PIECES:
            raise InputError(f"a JPEG file must have at most {MAX_PIECES} segments")
        # Coded data after a start-of-scan segment have no length, but contain no such marker.
        at = begin + 2 + max(length, 2)
        yield marker, begin, at


_TABLES = {0xC4, 0xDB, 0xDD}  # Huffman and quantization tables, restart interval

# The shortest JFIF and Adobe segments, which define the colors, about which all decoders agree.
_SHORTEST = {0xE0: 16, 0xEE: 14}

# Usual files have fewer, and this must stay fast.
_MAX_SEGMENTS = 200

_SEGMENT, _FRAME = struct.Struct(">BBH"), struct.Struct(">BHHB")


class JpegHeader(NamedTuple):
    """The header of a JPEG file, up to its first scan.

    width, height: as stored, in pixels. components: 1 or 3, of 8 bits. has_more_scans: the file is
    progressive, or its first scan lacks components. exif: EXIF data, or b"".
    """

    width: int
    height: int
    components: int
    has_more_scans: bool
    exif: bytes


def usual_header(file: bytes | bytearray) -> JpegHeader | None:
    """Return the header of a JPEG file such as cameras and programs write; None for all other files.

    A usual file is gray or has three components of 8 bits, is Huffman-coded, and has one whole frame of at
    least one pixel, known segments, and no bytes between them. All decoders agree on such a header.
    """
    if not has_signature(file):
        return None
    begin, frame, exif = 2, None, None
    for _ in range(_MAX_SEGMENTS):
        if begin + 4 > len(file):
            return None
        prefix, marker, length = _SEGMENT.unpack_from(file, begin)
        end = begin + 2 + length
        if prefix != 0xFF or length < _SHORTEST.get(marker, 2):
            return None
        if marker in _HUFFMAN_FRAMES:
            if frame is not None or length < 8 or end > len(file):
                return None
            bits, height, width, components = _FRAME.unpack_from(file, begin + 4)
            if bits != 8 or components not in (1, 3) or length != 8 + 3 * components or 0 in (height, width):
                return None
            frame = width, height, components, marker == _PROGRESSIVE_FRAME
        elif marker == START_OF_SCAN:
            if frame is None or begin + 4 >= len(file):
                return None
            width, height, components, is_progressive = frame
            has_more_scans = is_progressive or file[begin + 4] < components
            return JpegHeader(width, height, components, has_more_scans, exif or b"")
        elif marker == APP1 and exif is None and file.startswith(EXIF_HEADER, begin + 4):
            exif = bytes(file[begin + 4 + len(EXIF_HEADER) : end])
        elif marker not in _TABLES and marker not in METADATA and marker not in _SHORTEST:
            return None
        begin = end
    return None


def jpeg_reduction(width: int, height: int, canvas: Canvas | None, oversampling: int) -> int:
    """Return r = 1, 2, 4 or 8: a JPEG file is decoded at the scale 1/r for a canvas.

    width, height: of the upright photograph. r is the largest one for which ceil(width / r) and
    ceil(height / r) are at least `oversampling` times the size in the canvas; 1 if `oversampling` is 0, and
    without a canvas.
    """
    if canvas is None or oversampling == 0:
        return 1
    needed_width, needed_height = (oversampling * side for side in _fit(width, height, canvas))
    for reduction in (8, 4, 2):
        # ceil(a / r) >= b for whole numbers
        if -(-width // reduction) >= needed_width and -(-height // reduction) >= needed_height:
            return reduction
    return 1


def _fit(width: int, height: int, canvas: Canvas) -> tuple[int, int]:
    """Return width and height of a picture in the canvas, as `ops/csrc/fit.h` computes them."""
    if canvas.fit == "stretch":
        return canvas.width, canvas.height
    if canvas.fit.startswith("ultralytics"):
        scale = min(canvas.width / width, canvas.height / height)
        if canvas.fit == "ultralytics_shrink":
            scale = min(scale, 1.0)
        return max(1, round(width * scale)), max(1, round(height * scale))
    is_crop = canvas.fit == "crop"

    def scaled(side: int, filled: int, whole: int) -> int:
        """Return side * filled / whole, rounded down for a crop and half up for a letterbox, at least 1."""
        return max(1, (2 * side * filled + (0 if is_crop else whole)) // (2 * whole))

    is_wide = width * canvas.height >= height * canvas.width
    if is_wide == is_crop:
        return scaled(width, canvas.height, height), canvas.height
    return canvas.width, scaled(height, canvas.width, width)
