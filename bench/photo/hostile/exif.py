"""EXIF data that says how a photograph is to be turned."""

import struct

_ORIENTATION, _SHORT, _ROTATE_90_CLOCKWISE = 0x0112, 3, 6

# The TIFF structure: byte order, then one directory with one entry.
ON_ITS_SIDE = struct.pack(
    "<2sHIHHHIHHI", b"II", 42, 8, 1, _ORIENTATION, _SHORT, 1, _ROTATE_90_CLOCKWISE, 0, 0
)
