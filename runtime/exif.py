"""How a photograph lies in its file, by its EXIF data: `docs/artifact.md`, "Reading images".

A parser of our own for one number: each library forgives something else, and all runtimes must agree. The C++
runner has its twin.
"""

import struct

_ORIENTATION_TAG = 0x0112
_SHORT = 3
_ENTRY_SIZE = 12


def exif_orientation(exif: bytes) -> int:
    """The orientation, 1 to 8, that a TIFF structure tells; 1 if it tells none, or is broken.

    exif: the structure from its first byte, "II" or "MM", on. The first entry 0x0112 of its first directory
    decides, and must be one SHORT from 1 to 8. What lies behind that entry may be missing.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 8:
        return 1
    (at,) = struct.unpack_from(f"{order}I", exif, 4)
    if at + 2 > len(exif):
        return 1
    (count,) = struct.unpack_from(f"{order}H", exif, at)
    first = at + 2
    whole = min(count, (len(exif) - first) // _ENTRY_SIZE)
    for begin in range(first, first + whole * _ENTRY_SIZE, _ENTRY_SIZE):
        tag, kind, values, value = struct.unpack_from(f"{order}HHIH", exif, begin)
        if tag == _ORIENTATION_TAG:
            return value if (kind, values) == (_SHORT, 1) and 1 <= value <= 8 else 1
    return 1
