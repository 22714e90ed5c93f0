"""PNG files: their chunks."""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from lensbox.common.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_ANCILLARY = 0x20  # bit in the first letter of a chunk's name: not needed for the pixels


def has_signature(file: bytes) -> bool:
    """Return whether a file begins like a PNG file."""
    return file.startswith(_SIGNATURE)


def without_metadata(file: bytes, max_chunks: int | None = None) -> bytes:
    """Return the file without its ancillary chunks, which do not affect its pixels.

    Decoders inflate color profiles and texts up to a thousand times their size, and keep unknown chunks.
    Pillow checks few checksums, and nothing behind the last row. Raise InputError for a wrong checksum, a
    truncated file, an unknown critical chunk, an empty color profile, and after `max_chunks` chunks.
    """
    if not has_signature(file):
        return file
    view, kept, begin = memoryview(file), bytearray(), 0
    for chunk in _chunks(file, max_chunks):
        if zlib.crc32(view[chunk.begin + 4 : chunk.end - 4]) != _number(view[chunk.end - 4 : chunk.end]):
            raise InputError(f"broken PNG file (bad checksum in chunk {chunk.name!r})")
        if chunk.name[0] & _ANCILLARY:
            if chunk.name == b"iCCP" and chunk.end == chunk.begin + 12:
                raise InputError("broken PNG file (empty chunk b'iCCP')")
            kept += view[begin : chunk.begin]
            begin = chunk.end
        elif chunk.name not in _CRITICAL:
            raise InputError(f"broken PNG file (unknown chunk {chunk.name!r})")
    if begin == 0:
        return file
    kept += view[begin:]
    return bytes(kept)


def exif_data(file: bytes, max_chunks: int | None = None) -> bytes:
    """Return the content of the first chunk eXIf before the pixels of a PNG file; b"" if there is none.

    Raise InputError for a truncated file, and after `max_chunks` chunks.
    """
    for chunk in _chunks(file, max_chunks):
        if chunk.name == b"eXIf":
            return file[chunk.begin + 8 : chunk.end - 4]
        if chunk.name == b"IDAT":
            break
    return b""


class _Chunk(NamedTuple):
    name: bytes
    begin: int
    end: int


def _chunks(file: bytes, max_chunks: int | None) -> Iterator[_Chunk]:
    """Yield the chunks of a PNG file up to its end."""
    at, count, name = len(_SIGNATURE), 0, b""
    while name != b"IEND":
        end = at + 12 + _number(file[at : at + 4])
        if end > len(file):
            raise InputError("broken PNG file (it is truncated)")
        name = file[at + 4 : at + 8]
        count += name != b"IEND"
        if max_chunks is not None and count > max_chunks:
            raise InputError(f"a PNG file must have at most {max_chunks} chunks")
        yield _Chunk(name, at, end)
        at = end


def _number(content: bytes | memoryview) -> int:
    return int.from_bytes(content, "big")
