"""Images made to be read differently: each is refused, or read as Pillow reads it."""

import struct
import zlib

import pytest
import torch
from damaged_files import with_bit_flipped
from photo_pixels import assert_like_pillow
from picture_files import END, SIGNATURE, chunk, encoded, jpeg_segment, noise, png_file, png_header

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.runtime import read_photo
from lensbox.runtime.images.files import DEFAULT_READING

GRAY, COLOR = Canvas(32, 48, 1, 7), Canvas(32, 48, 3, 7)
CANVASES = pytest.mark.parametrize("canvas", [GRAY, COLOR], ids=["gray", "color"])


# --- PNG ---

_ROWS = b"\0\1\2\0\3\4"  # of a gray picture of 2 x 2
_DATA = zlib.compress(_ROWS)
_IDAT = chunk(b"IDAT", _DATA)
_HEAD, _TEXT = png_header(2, 2, color_type=0), chunk(b"tEXt", b"a\0b")
_PALETTE, _COLOR_KEY = chunk(b"PLTE", bytes(range(12))), chunk(b"tRNS", b"\0")


def _data(*parts: bytes) -> bytes:
    return _HEAD + b"".join(chunk(b"IDAT", part) for part in parts) + END


def _header(*fields: int) -> bytes:
    """Return a file with a header of width, height, bits, color type, compression, filter, interlacing."""
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", *fields)) + _IDAT + END


def _palette(*chunks: bytes) -> bytes:
    return png_header(2, 2, color_type=3) + b"".join(chunks) + _IDAT + END


def _color(before: bytes, after: bytes = b"") -> bytes:
    return png_file(2, 2, before=before, after=after)


def _interlaced(rows: bytes) -> bytes:
    return png_file(2, 2, 0, rows, interlaced=True)


READ_PNGS = {
    "sound PNG": _data(_DATA),
    "two parts, and an empty one": _data(_DATA[:3], _DATA[3:], b""),
    "another window": _data((lambda made: made.compress(_ROWS) + made.flush())(zlib.compressobj(9, 8, 9))),
    "interlaced": _interlaced(b"\0\1\0\2\0\3\4"),
    "anything behind the end": _data(_DATA) + b"junk" + _data(_DATA),
    "texts": _HEAD + _TEXT + _IDAT + _TEXT + END,
    "unknown ancillary chunk": _HEAD + chunk(b"abCd") + _IDAT + END,
    "empty color profile": _HEAD + chunk(b"iCCP") + _IDAT + END,
    "broken gamma, twice": _HEAD + 2 * chunk(b"gAMA", b"\0") + _IDAT + END,
    "EXIF data twice": _HEAD + 2 * chunk(b"eXIf", b"MM\0*") + _IDAT + END,
    "frames of an animation": _HEAD + chunk(b"acTL", struct.pack(">II", 2, 0)) + _IDAT + END,
    "a palette": _palette(_PALETTE),
    "a palette of fewer colors than indices": _palette(chunk(b"PLTE", bytes(range(6)))),
    "a suggested palette": _color(_PALETTE),
    # Transparent colors are not read.
    "transparent colors": _palette(_PALETTE, _COLOR_KEY),
    "transparent colors twice": _palette(_PALETTE, _COLOR_KEY, _COLOR_KEY),
    "transparent colors before the palette": _palette(_COLOR_KEY, _PALETTE),
    "too many transparent colors": _palette(_PALETTE, chunk(b"tRNS", bytes(9))),
    "a transparent gray of three bytes": _HEAD + chunk(b"tRNS", bytes(3)) + _IDAT + END,
    "a transparent gray behind the pixels": _HEAD + _IDAT + chunk(b"tRNS", b"\0\1") + END,
    "a transparent color beside alpha": png_file(2, 2, 6, before=chunk(b"tRNS", bytes(6))),
}
REFUSED_PNGS = {
    "checksum of the data": _data(with_bit_flipped(_DATA, -1)),
    "no checksum of the data": _data(_DATA[:-4]),
    "data cut off": _data(_DATA[:-1]),
    "a row too few": _data(zlib.compress(_ROWS[:3])),
    "a row too many": _data(zlib.compress(_ROWS + b"\0\1\2")),
    "a pixel too many": _data(zlib.compress(_ROWS + b"\0")),
    "rows in a bomb": _data(zlib.compress(_ROWS + bytes(1 << 24))),
    "data twice": _data(_DATA, _DATA),
    "junk behind the data": _data(_DATA + b"junk"),
    "no data": _data(),
    "empty data": _data(b""),
    "no zlib header": _data(_DATA[2:-4]),
    "a zlib dictionary": _data(b"\x78\xbb\0\0\0\1" + _DATA[2:]),
    "filter 5": _data(zlib.compress(b"\5\1\2\0\3\4")),
    "a pass too short": _interlaced(b"\0\1\0\2\0\3"),
    "a pass too many": _interlaced(b"\0\1\0\2\0\3\4\0\0\0"),
    "no end": _HEAD + _IDAT,
    "the end first": _HEAD + END + _IDAT,
    "content of the end": _HEAD + _IDAT + chunk(b"IEND", b"x"),
    "data with a text between": _HEAD + chunk(b"IDAT", _DATA[:3]) + _TEXT + chunk(b"IDAT", _DATA[3:]) + END,
    "header twice": _HEAD + _HEAD[8:] + _IDAT + END,
    "header behind the data": _HEAD + _IDAT + _HEAD[8:] + END,
    "header second": SIGNATURE + _TEXT + _HEAD[8:] + _IDAT + END,
    "header of 12 bytes": SIGNATURE + chunk(b"IHDR", _HEAD[16:28]) + _IDAT + END,
    "header of 14 bytes": SIGNATURE + chunk(b"IHDR", _HEAD[16:29] + b"\0") + _IDAT + END,
    "nothing": SIGNATURE,
    "the end alone": SIGNATURE + END,
    **{f"header {fields}": _header(*fields) for fields in (
        (0, 2, 8, 0, 0, 0, 0), (2, 0, 8, 0, 0, 0, 0), (2**31, 2, 8, 0, 0, 0, 0), (2, 2, 3, 0, 0, 0, 0),
        (2, 2, 4, 2, 0, 0, 0), (2, 2, 8, 1, 0, 0, 0), (2, 2, 8, 7, 0, 0, 0), (2, 2, 4, 4, 0, 0, 0),
        (2, 2, 8, 0, 1, 0, 0), (2, 2, 8, 0, 0, 1, 0), (2, 2, 8, 0, 0, 64, 0), (2, 2, 8, 0, 0, 0, 2),
    )},
    "palette of a gray picture": _HEAD + _PALETTE + _IDAT + END,
    "no palette": _palette(),
    "empty palette": _palette(chunk(b"PLTE")),
    "palette of four bytes": _palette(chunk(b"PLTE", bytes(4))),
    "palette of 257 colors": _palette(chunk(b"PLTE", bytes(771))),
    "palette twice": _palette(_PALETTE, _PALETTE),
    "palette behind the data": png_header(2, 2, color_type=3) + _IDAT + _PALETTE + END,
    "suggested palette twice": _color(_PALETTE + _PALETTE),
    "suggested palette of four bytes": _color(chunk(b"PLTE", bytes(4))),
    "suggested palette of 257 colors": _color(chunk(b"PLTE", bytes(771))),
    "suggested palette behind the data": _color(b"", _PALETTE),
    "unknown critical chunk": _HEAD + chunk(b"ABCD") + _IDAT + END,
    "name without letters": _HEAD + chunk(b"a\0\0\0") + _IDAT + END,
    "length of 2 GiB": _HEAD + struct.pack(">I", 2**31) + b"abCd" + _IDAT + END,
    "checksum of a text": _HEAD + with_bit_flipped(_TEXT, -1) + _IDAT + END,
    "checksum of the end": _HEAD + _IDAT + with_bit_flipped(END, -1),
}  # fmt: skip


# --- JPEG ---

_PICTURE = noise("RGB", 160, 120)
_BASELINE, _PROGRESSIVE = encoded(_PICTURE), encoded(_PICTURE, progressive=True)
_SCAN = b"\xff\xda"


def _with_scans(file: bytes, *indices: int) -> bytes:
    head, *scans = file.removesuffix(b"\xff\xd9").split(_SCAN)
    return head + b"".join(_SCAN + scans[index] for index in indices) + b"\xff\xd9"


def _without_scans(file: bytes, *left_out: int) -> bytes:
    return _with_scans(file, *(index for index in range(file.count(_SCAN)) if index not in left_out))


def _before_scan(segments: bytes) -> bytes:
    begin = _BASELINE.index(_SCAN)
    return _BASELINE[:begin] + segments + _BASELINE[begin:]


def _one_scan_each() -> bytes:
    """Return a sequential file with a scan for each component, each of one flat color."""
    tables = jpeg_segment(0xDB, b"\0" + b"\1" * 64)
    tables += b"".join(jpeg_segment(0xC4, kind + b"\1" + bytes(16)) for kind in (b"\0", b"\x10"))
    frame = jpeg_segment(0xC0, struct.pack(">BHHB", 8, 8, 8, 3) + b"\1\x11\0\2\x11\0\3\x11\0")
    scans = [jpeg_segment(0xDA, bytes((1, component, 0, 0, 63, 0))) + b"\x3f" for component in (1, 2, 3)]
    return b"\xff\xd8" + tables + frame + b"".join(scans) + b"\xff\xd9"


def _without_restart(file: bytes) -> bytes:
    begin = file.index(b"\xff\xd3", file.index(_SCAN))
    return file[:begin] + file[begin + 2 :]


_EACH = _one_scan_each()
_SCANS = _PROGRESSIVE.count(_SCAN)
_FRAME = _BASELINE.index(b"\xff\xc0")
READ_JPEGS = {
    "sound JPEG": _BASELINE,
    "progressive": _PROGRESSIVE,
    "a scan for each component": _EACH,
    "a scan twice": _with_scans(_EACH, 0, 1, 1, 2),
    "anything behind the end of a JPEG": _BASELINE + b"junk" + _PROGRESSIVE,
    "comments": _before_scan(3 * jpeg_segment(0xFE, b"a comment")),
}
REFUSED_JPEGS = {
    **{f"without scan {index}": _without_scans(_PROGRESSIVE, index) for index in range(1, _SCANS)},
    "first scan alone": _without_scans(_PROGRESSIVE, *range(1, _SCANS)),
    "without the last two scans": _without_scans(_PROGRESSIVE, _SCANS - 1, _SCANS - 2),
    "gray without a scan": _without_scans(encoded(noise("L", 160, 120), progressive=True), 2),
    **{f"without component {index}": _without_scans(_EACH, index) for index in range(3)},
    "no scan": _without_scans(_BASELINE, 0),
    "two frames": _before_scan(_BASELINE[_FRAME : _FRAME + 19]),
    "no end of a JPEG": _BASELINE[:-2],
    "no pixels": _BASELINE[: _FRAME + 5] + bytes(4) + _BASELINE[_FRAME + 9 :],
    "lossless": _BASELINE[: _FRAME + 1] + b"\xc3" + _BASELINE[_FRAME + 2 :],
    "arithmetic": _BASELINE[: _FRAME + 1] + b"\xc9" + _BASELINE[_FRAME + 2 :],
    "progressive arithmetic": _BASELINE[: _FRAME + 1] + b"\xca" + _BASELINE[_FRAME + 2 :],
    "12 bits": _BASELINE[: _FRAME + 4] + b"\x0c" + _BASELINE[_FRAME + 5 :],
    # libjpeg warns of these, and fills with gray.
    "a broken code": _BASELINE[:-300] + b"\xff\0" * 20 + _BASELINE[-260:],
    "data missing before the end": _BASELINE[:-300] + b"\xff\xd9",
    "a lost restart marker": _without_restart(encoded(_PICTURE, restart_marker_blocks=3)),
}


READ, REFUSED = READ_PNGS | READ_JPEGS, REFUSED_PNGS | REFUSED_JPEGS
assert (len(READ), len(REFUSED)) == (27, 81)  # no name twice
# Pillow refuses the first two, and fails to read the EXIF data of the third.
_LIKE_SOUND = ("empty color profile", "broken gamma, twice", "EXIF data twice")


@CANVASES
@pytest.mark.parametrize("name", READ)
def test_reads(name: str, canvas: Canvas) -> None:
    photo = read_photo(READ[name], canvas)
    if name in _LIKE_SOUND:
        assert photo.pixels.equal(torch.tensor([[[1, 2], [3, 4]]], dtype=torch.uint8))
    else:
        assert_like_pillow(READ[name], photo, DEFAULT_READING)


@CANVASES
@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str, canvas: Canvas) -> None:
    with pytest.raises(InputError):
        read_photo(REFUSED[name], canvas)
