"""The chunks of a PNG file."""

import zlib

from lensbox.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ANCILLARY = 0x20  # the bit of the first letter of a chunk's name that says: not needed for the pixels


def is_png(file: bytes) -> bool:
    """Whether a file begins like a PNG file."""
    return file.startswith(_SIGNATURE)


def without_metadata(file: bytes, max_chunks: int | None = None) -> bytes:
    """The same image without its ancillary chunks, which do not decide its pixels.

    Decoders inflate color profiles and texts, a thousand times their size, and keep what they do not know.
    Raises InputError if the checksum of a chunk that is left out is wrong, or its color profile is empty, and
    after `max_chunks` chunks.
    """
    if not is_png(file):
        return file
    view, kept, begin = memoryview(file), bytearray(), 0
    at = len(_SIGNATURE)
    count = 0
    while at + 12 <= len(file):
        end = at + 12 + int.from_bytes(view[at : at + 4], "big")
        name = file[at + 4 : at + 8]
        if end > len(file) or name == b"IEND":
            break
        count += 1
        if max_chunks is not None and count > max_chunks:
            raise InputError(f"a PNG file must have at most {max_chunks} chunks")
        if name[0] & _ANCILLARY:
            if zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
                raise InputError(f"broken PNG file (bad checksum in chunk {name!r})")
            if name == b"iCCP" and end == at + 12:
                raise InputError("broken PNG file (empty chunk b'iCCP')")
            kept += view[begin:at]
            begin = end
        at = end
    if begin == 0:
        return file
    kept += view[begin:]
    return bytes(kept)
