"""EXIF orientation: where it is found, and how pictures are turned upright."""

import io

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import torch
from damaged_files import with_bit_flipped
from picture_files import (
    EXIF_HEADER,
    ORIENTATION,
    SHORT,
    broken_exif,
    chunk,
    encoded,
    entry,
    exif,
    jpeg_with_exif,
    odd_exif,
    png_with_exif,
    tiff,
)

from lensbox.common.errors import InputError
from lensbox.runtime import read_image
from lensbox.runtime.images import decoder
from lensbox.runtime.images.limits import MAX_PIECES
from lensbox.runtime.images.orientation import exif_orientation, orientation_of, split_exif

WIDTH, HEIGHT = 21, 13
_PICTURE = PIL.Image.fromarray(
    np.random.default_rng(0).integers(0, 256, (3, 4, 3), dtype=np.uint8).repeat(5, 0).repeat(6, 1)
).crop((0, 0, WIDTH, HEIGHT))


def _encode(file_format: str, mode: str = "RGB", **options: object) -> bytes:
    return encoded(_PICTURE.convert(mode), file_format, **options)


JPEG, PNG, WEBP = _encode("JPEG"), _encode("PNG"), _encode("WEBP")


def _with_exif(file: bytes, data: bytes) -> bytes:
    if file.startswith(b"RIFF"):
        return _encode("WEBP", exif=data)
    return jpeg_with_exif(file, data) if file.startswith(b"\xff\xd8") else png_with_exif(file, data)


def _turned_by_pillow(file: bytes) -> torch.Tensor:
    with PIL.Image.open(io.BytesIO(file)) as image:
        upright = np.asarray(PIL.ImageOps.exif_transpose(image))
    return torch.from_numpy(upright.reshape(*upright.shape[:2], -1).copy()).permute(2, 0, 1)


@pytest.mark.parametrize(("tile", "order"), [(1, "<"), (30, ">"), (1000, "<")])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file", [JPEG, PNG, WEBP], ids=["JPEG", "PNG", "WebP"])
def test_turns_every_orientation_as_pillow_does(
    file: bytes, orientation: int, order: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "_TILE_PIXELS", tile)
    turned = _with_exif(file, exif(orientation, order))
    read = read_image(turned)
    assert read.shape == ((3, WIDTH, HEIGHT) if orientation > 4 else (3, HEIGHT, WIDTH))
    assert read.equal(_turned_by_pillow(turned))
    assert read.permute(1, 2, 0).is_contiguous()
    assert read_image(turned, orientation="stored").equal(read_image(file))


_SCAN, _JPEG_END, _PNG_END = JPEG.index(b"\xff\xda"), len(JPEG) - 2, len(PNG) - 12
_APP1 = jpeg_with_exif(b"\xff\xd8", exif(6))[2:]
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


@pytest.mark.parametrize(
    ("file", "orientation"),
    [
        # The first EXIF segment counts, wherever it lies before the pixels.
        (jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), exif(6)), 6),
        (jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), b"<x/>", header=_XMP), 3),
        (jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), b"nothing"), 1),
        (JPEG[:_SCAN] + _APP1 + JPEG[_SCAN:], 6),
        (JPEG[:_JPEG_END] + _APP1 + JPEG[_JPEG_END:], 1),
        *(
            (jpeg_with_exif(JPEG, exif(6), header), 1)
            for header in (b"", b"Exif", b"Exif\0", b"Exif\0x", b"exif\0\0", b"EXIF\0\0")
        ),
        # The segment ends within the header; the bytes behind the segment would complete it.
        (JPEG[:2] + b"\xff\xe1\0\6Exif" + b"\0\0" + exif(6) + JPEG[2:], 1),
        (PNG[:_PNG_END] + chunk(b"eXIf", exif(6)) + PNG[_PNG_END:], 1),
        (png_with_exif(png_with_exif(PNG, exif(3)), exif(6)), 6),
        (png_with_exif(PNG, EXIF_HEADER + exif(6)), 1),
        (_encode("WEBP", exif=2 * EXIF_HEADER + exif(6)), 6),  # one header is left, as libvips writes it
        *((file, 1) for file in (b"", b"\xff\xd8\xff", _encode("GIF"), _encode("BMP"))),
    ],
)
def test_finds_the_exif_data(file: bytes, orientation: int) -> None:
    assert orientation_of(file) == orientation


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (JPEG[:2] + b"\xff\xe5\0\2" * MAX_PIECES + JPEG[2:], "a JPEG file must have at most 100000 segments"),
        (PNG[:33] + chunk(b"abCd") * MAX_PIECES + PNG[33:], "a PNG file must have at most 100000 chunks"),
        (WEBP[:12] + b"ABCD\0\0\0\0" * MAX_PIECES + WEBP[12:], "a WebP file must have at most 100000 chunks"),
    ],
    ids=["JPEG", "PNG", "WebP"],
)
def test_limits_the_number_of_pieces(file: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_exif(file)


def test_reads_odd_exif_and_ignores_broken_exif() -> None:
    assert {name for name, data in broken_exif().items() if exif_orientation(data) != 1} == set()
    assert {name for name, data in odd_exif().items() if exif_orientation(data) != 6} == set()


def test_exif_data_with_any_damage_raise_nothing() -> None:
    data = tiff("<", entry("<", ORIENTATION, SHORT, 1, 6))
    for length in range(len(data)):
        assert exif_orientation(data[:length]) == (6 if length >= 22 else 1)
    for position in range(len(data)):
        for bit in range(8):
            assert 1 <= exif_orientation(with_bit_flipped(data, position, bit)) <= 8
