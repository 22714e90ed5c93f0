"""PNG files made by hand, for what no encoder would write."""

import struct
import zlib


def chunk(name: bytes, content: bytes = b"") -> bytes:
    """A chunk with a right checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png_file(
    width: int,
    height: int,
    color_type: int = 2,
    pixels: bytes | None = None,
    before: bytes = b"",
    after: bytes = b"",
    bits: int = 8,
) -> bytes:
    """A file of `bits` bits a sample, all zero by default, and more chunks before and after the pixels."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color_type]
    if pixels is None:
        pixels = bytes((width * samples * bits // 8 + 1) * height)
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            before,
            chunk(b"IDAT", zlib.compress(pixels)),
            after,
            chunk(b"IEND"),
        )
    )
