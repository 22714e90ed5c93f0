"""The chunks of a WebP file."""

from lensbox.common.errors import InputError

_EXIF_HEADER = b"Exif\0\0"  # of JPEG files alone, but some writers put it into WebP files too


def has_signature(file: bytes) -> bool:
    """Whether a file begins like a WebP file."""
    return file.startswith(b"RIFF") and file.startswith(b"WEBP", 8)


def exif_data(file: bytes, max_chunks: int | None = None) -> bytes:
    """The content of the first chunk EXIF of a WebP file, wherever it lies; empty if there is none.

    Raises InputError after `max_chunks` chunks.
    """
    at, count = 12, 0
    while at + 8 <= len(file):
        count += 1
        if max_chunks is not None and count > max_chunks:
            raise InputError(f"a WebP file must have at most {max_chunks} chunks")
        begin = at + 8
        size = int.from_bytes(file[at + 4 : begin], "little")
        if file.startswith(b"EXIF", at):
            return file[begin : begin + size].removeprefix(_EXIF_HEADER)
        at = begin + size + size % 2
    return b""
