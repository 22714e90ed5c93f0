"""PNG files: their chunks, and the exact size of their pixels."""

import re
import struct
import zlib
from collections.abc import Callable, Iterator

from lensbox.common.errors import InputError
from lensbox.runtime.images.limits import MAX_PIECES

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
# By first letter, I: IHDR, P: PLTE, D: IDAT, E: IEND, x: an ancillary chunk.
_ORDER = re.compile(r"Ix*(Px*)?D+x*E")
_HEADER = struct.Struct(">IIBBBBB")
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by color type
# First column and row of each pass of an interlaced file, and the steps from there.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_READ_AT_ONCE, _INFLATED_AT_ONCE = 1 << 16, 1 << 20  # bytes
_ANCILLARY = 0x20  # bit in the first letter of a chunk's name: not needed for the pixels


def has_signature(file: bytes) -> bool:
    """Return whether a file begins like a PNG file."""
    return file.startswith(_SIGNATURE)


def without_metadata(file: bytes) -> tuple[bytes, bytes]:
    """Return a PNG file without its ancillary chunks, which do not affect its pixels, and its EXIF data.

    The EXIF data are the content of the first chunk eXIf before the pixels, or b"".

    Decoders inflate color profiles and texts up to a thousand times their size, and keep unknown chunks.
    Pillow checks few checksums, and nothing behind the last row. Raise InputError for a wrong checksum, a
    truncated file, critical chunks that are unknown, repeated, out of order or malformed, as libpng does, and
    after MAX_PIECES chunks.
    """
    view, kept, kept_to, order, exif = memoryview(file), bytearray(), 0, "", None
    for name, begin, end in _chunks(file):
        if zlib.crc32(view[begin + 4 : end - 4]) != _number(view[end - 4 : end]):
            raise InputError(f"broken PNG file (bad checksum in chunk {name!r})")
        if name in _CRITICAL:
            order += "IPDE"[_CRITICAL.index(name)]
            _check_critical(file, name, begin, end - begin - 12)
        elif name[0] & _ANCILLARY and name.isalpha():
            if name == b"eXIf" and exif is None and "D" not in order:
                exif = bytes(view[begin + 8 : end - 4])
            order += "x"
            kept += view[kept_to:begin]
            kept_to = end
        else:
            raise InputError(f"broken PNG file (unknown chunk {name!r})")
    if not _ORDER.fullmatch(order):
        raise InputError("broken PNG file (a chunk is missing, repeated or out of order)")
    if kept_to == 0:
        return file, b""
    kept += view[kept_to:]
    return bytes(kept), exif or b""


def _check_critical(file: bytes, name: bytes, begin: int, length: int) -> None:
    is_gray = file[len(_SIGNATURE) + 17 : len(_SIGNATURE) + 18] in (b"\0", b"\4")
    good = {
        b"IHDR": length == _HEADER.size and file[begin + 18 : begin + 20] == b"\0\0",
        b"PLTE": length % 3 == 0 and 0 < length <= 3 * 256 and not is_gray,
        b"IEND": length == 0,
    }
    if not good.get(name, True):
        raise InputError(f"broken PNG file (malformed chunk {name!r})")


def check_pixels(file: bytes, before_each_part: Callable[[], None]) -> None:
    """Raise InputError unless the pixels of a PNG file inflate to exactly the bytes that its header needs.

    Pillow shows missing rows as black. file: from `without_metadata`. before_each_part: may raise.
    """
    width, height, bits, color_type, *_, interlaced = _HEADER.unpack_from(file, len(_SIGNATURE) + 8)
    if color_type not in _CHANNELS or interlaced > 1:
        raise InputError("broken PNG file (malformed chunk b'IHDR')")
    missing = 0
    for left, top, right, down in _PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // right), -(-(height - top) // down)
        missing += (1 + -(-columns * _CHANNELS[color_type] * bits // 8)) * rows if columns > 0 else 0
    stream = zlib.decompressobj()
    try:
        for part in _compressed_pixels(file):
            rest = part
            while rest and missing >= 0 and not stream.eof:
                before_each_part()
                missing -= len(stream.decompress(rest, _INFLATED_AT_ONCE))
                rest = stream.unconsumed_tail
            if rest or stream.unused_data:
                missing = -1
    except zlib.error as error:
        raise InputError(f"broken PNG file ({error})") from error
    if missing or not stream.eof:
        raise InputError("broken PNG file (rows are missing, or data are left over)")


def _compressed_pixels(file: bytes) -> Iterator[bytes]:
    for name, begin, end in _chunks(file):
        if name == b"IDAT":
            for at in range(begin + 8, end - 4, _READ_AT_ONCE):
                yield file[at : min(at + _READ_AT_ONCE, end - 4)]


def _chunks(file: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, begin and end of the chunks of a PNG file up to its end."""
    at, count, name = len(_SIGNATURE), 0, b""
    while name != b"IEND":
        end = at + 12 + _number(file[at : at + 4])
        if end > len(file):
            raise InputError("broken PNG file (it is truncated)")
        name = file[at + 4 : at + 8]
        count += name != b"IEND"
        if count > MAX_PIECES:
            raise InputError(f"a PNG file must have at most {MAX_PIECES} chunks")
        yield name, at, end
        at = end


def _number(content: bytes | memoryview) -> int:
    return int.from_bytes(content, "big")
