"""The chunks of a PNG file."""

import zlib

from lensbox.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_ANCILLARY = 0x20  # the bit of the first letter of a chunk's name that says: not needed for the pixels


def is_png(file: bytes) -> bool:
    """Whether a file begins like a PNG file."""
    return file.startswith(_SIGNATURE)


def without_metadata(file: bytes, max_chunks: int | None = None) -> bytes:
    """The same image without its ancillary chunks, which do not decide its pixels.

    Decoders inflate color profiles and texts, a thousand times their size, and keep what they do not know.
    Pillow looks at few checksums of what decides the pixels, and at nothing behind the last row. Raises
    InputError if the checksum of any chunk is wrong, a chunk is cut off or the last one is missing, a chunk
    that decoders must know is none of PNG's, the color profile is empty, and after `max_chunks` chunks.
    """
    if not is_png(file):
        return file
    view, kept, begin = memoryview(file), bytearray(), 0
    at, count, name = len(_SIGNATURE), 0, b""
    while name != b"IEND":
        end = at + 12 + int.from_bytes(view[at : at + 4], "big")
        if end > len(file):
            raise InputError("broken PNG file (it is truncated)")
        name = file[at + 4 : at + 8]
        count += name != b"IEND"
        if max_chunks is not None and count > max_chunks:
            raise InputError(f"a PNG file must have at most {max_chunks} chunks")
        if zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            raise InputError(f"broken PNG file (bad checksum in chunk {name!r})")
        if name[0] & _ANCILLARY:
            if name == b"iCCP" and end == at + 12:
                raise InputError("broken PNG file (empty chunk b'iCCP')")
            kept += view[begin:at]
            begin = end
        elif name not in _CRITICAL:
            raise InputError(f"broken PNG file (unknown chunk {name!r})")
        at = end
    if begin == 0:
        return file
    kept += view[begin:]
    return bytes(kept)
