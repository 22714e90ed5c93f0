"""PNG files that no encoder would write."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, content: bytes = b"") -> bytes:
    """Return a chunk with a valid checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


END = chunk(b"IEND")


def png_header(
    width: int, height: int, bits: int = 8, color_type: int = 2, interlaced: bool = False
) -> bytes:
    """Return the signature and the header chunk."""
    fields = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, interlaced)
    return SIGNATURE + chunk(b"IHDR", fields)


def png_file(
    width: int,
    height: int,
    color_type: int = 2,
    pixels: bytes | None = None,
    before: bytes = b"",
    after: bytes = b"",
    bits: int = 8,
    interlaced: bool = False,
) -> bytes:
    """Return a file with zero pixels by default. before, after: further chunks around the pixels."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color_type]
    if pixels is None:
        pixels = bytes((width * samples * bits // 8 + 1) * height)
    header = png_header(width, height, bits, color_type, interlaced)
    return header + before + chunk(b"IDAT", zlib.compress(pixels)) + after + END
