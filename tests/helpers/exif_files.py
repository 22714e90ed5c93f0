"""Good and broken EXIF data, and image files with EXIF data."""

import struct

from png_files import chunk

EXIF_HEADER = b"Exif\0\0"
ORIENTATION = 0x0112
SHORT, LONG = 3, 4
_SIZES = {SHORT: "H", LONG: "I"}


def entry(order: str, tag: int, kind: int, count: int, value: int) -> bytes:
    """Return an entry of a TIFF directory. order: "<" or ">", as in `struct`."""
    held = struct.pack(f"{order}{_SIZES.get(kind, 'H')}", value)
    return struct.pack(f"{order}HHI", tag, kind, count) + held.ljust(4, b"\0")


def tiff(order: str, entries: bytes, count: int | None = None, at: int = 8) -> bytes:
    """Return a TIFF structure. count: stated number of entries. at: offset of the only directory."""
    if count is None:
        count = len(entries) // 12
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", at)
    directory = struct.pack(f"{order}H", count) + entries + bytes(4)
    return head.ljust(at, b"\0") + directory


def exif(orientation: int, order: str = "<") -> bytes:
    """Return EXIF data with an orientation and two other entries."""
    other = entry(order, 0x0100, LONG, 1, 640), entry(order, 0x0213, SHORT, 1, 1)
    return tiff(order, other[0] + entry(order, ORIENTATION, SHORT, 1, orientation) + other[1])


def broken_exif() -> dict[str, bytes]:
    """Return EXIF data without a valid orientation, by name. Most hold a 6 that a careless reader finds."""
    six = entry("<", ORIENTATION, SHORT, 1, 6)
    good = tiff("<", six)
    return {
        "nothing": b"",
        "header alone": good[:8],
        "half a header": good[:6],
        "no byte order": b"XX" + good[2:],
        "other byte order in the mark": b"MM" + good[2:],
        "big-endian mark alone": b"MM\0*" + good[4:],
        "wrong magic number": good[:2] + b"+\0" + good[4:],
        "header of the segment twice": 2 * EXIF_HEADER + good,
        "directory behind the end": good[:4] + struct.pack("<I", len(good)) + good[8:],
        "directory far behind the end": good[:4] + b"\xff\xff\xff\xff" + good[8:],
        "directory at its last byte": good[:4] + struct.pack("<I", len(good) - 1) + good[8:],
        "cut off in the count": good[:9],
        "cut off before the entry": good[:10],
        "cut off in the entry": good[:21],
        "no entries": tiff("<", six, count=0),
        "fewer entries than there are": tiff("<", entry("<", 0x0100, SHORT, 1, 6) + six, count=1),
        "orientation 0": tiff("<", entry("<", ORIENTATION, SHORT, 1, 0)),
        "orientation 9": tiff("<", entry("<", ORIENTATION, SHORT, 1, 9)),
        "orientation 65535": tiff("<", entry("<", ORIENTATION, SHORT, 1, 65535)),
        "orientation 256 * 6": tiff("<", entry("<", ORIENTATION, SHORT, 1, 6 << 8)),
        "type LONG": tiff("<", entry("<", ORIENTATION, LONG, 1, 6)),
        "type BYTE": tiff("<", entry("<", ORIENTATION, 1, 1, 6)),
        "type ASCII": tiff("<", entry("<", ORIENTATION, 2, 1, 6)),
        "unknown type": tiff("<", entry("<", ORIENTATION, 99, 1, 6)),
        "count 0": tiff("<", entry("<", ORIENTATION, SHORT, 0, 6)),
        "count 2": tiff("<", entry("<", ORIENTATION, SHORT, 2, 6)),
        "count 65537": tiff("<", entry("<", ORIENTATION, SHORT, 65537, 6)),
        "first of two is invalid": tiff("<", entry("<", ORIENTATION, SHORT, 1, 0) + six),
        "first of two is another type": tiff("<", entry("<", ORIENTATION, LONG, 1, 6) + six),
        "in the second directory": _second_directory(six),
    }


def odd_exif() -> dict[str, bytes]:
    """Return unusual EXIF data with orientation 6, by name."""
    six = entry("<", ORIENTATION, SHORT, 1, 6)
    return {
        "nothing behind the entry": tiff("<", six)[:22],
        "more entries than there are": tiff("<", six, count=500),
        "entries out of order": tiff("<", entry("<", 0x0213, SHORT, 1, 1) + six),
        "second one differs": tiff("<", six + entry("<", ORIENTATION, SHORT, 1, 3)),
        "directory at an odd place": tiff("<", six, at=77),
        "many entries": tiff("<", entry("<", 0x0100, SHORT, 1, 1) * 3000 + six),
        "a value of four bytes": tiff("<", six[:10] + b"\xff\xff"),
        "big-endian": tiff(">", entry(">", ORIENTATION, SHORT, 1, 6)),
        "in a large block": tiff("<", six) + bytes(60_000),
    }


def _second_directory(orientation: bytes) -> bytes:
    first = tiff("<", entry("<", 0x0100, SHORT, 1, 6))
    return first[:-4] + struct.pack("<I", len(first)) + tiff("<", orientation)[8:]


def jpeg_with_exif(jpeg: bytes, data: bytes, header: bytes = EXIF_HEADER) -> bytes:
    """Return the JPEG file with a first segment APP1."""
    content = header + data
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


def png_with_exif(png: bytes, data: bytes) -> bytes:
    """Return the PNG file with a chunk eXIf behind its header."""
    after_header = 8 + 25
    return png[:after_header] + chunk(b"eXIf", data) + png[after_header:]
