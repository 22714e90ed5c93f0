"""Pictures are turned upright by their EXIF data, in every runtime alike."""

import io
import struct
import tracemalloc

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import torch
from damaged_files import with_bit_flipped
from exif_files import (
    EXIF_HEADER,
    ORIENTATION,
    SHORT,
    broken_exif,
    entry,
    exif,
    jpeg_with_exif,
    odd_exif,
    png_with_exif,
    tiff,
)
from picture_files import encoded
from png_files import chunk

from lensbox.common.errors import InputError
from lensbox.runtime.images import decoder
from lensbox.runtime.images.files import read_image
from lensbox.runtime.images.orientation import exif_orientation, orientation_of, upright_box, upright_size


def webp_with_exif(webp: bytes, data: bytes, width: int, height: int) -> bytes:
    """A WebP file of one image, in the simple format, as one with a chunk EXIF, behind the image."""
    has_exif = 0x08
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    extended = _riff_chunk(b"VP8X", bytes((has_exif, 0, 0, 0)) + sizes)
    body = b"WEBP" + extended + webp[12:] + _riff_chunk(b"EXIF", data)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _riff_chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


WIDTH, HEIGHT = 21, 13
_PICTURE = PIL.Image.fromarray(
    np.random.default_rng(0).integers(0, 256, (3, 4, 3), dtype=np.uint8).repeat(5, 0).repeat(6, 1)
).crop((0, 0, WIDTH, HEIGHT))


def _encode(file_format: str, mode: str = "RGB", **options: object) -> bytes:
    return encoded(_PICTURE.convert(mode), file_format, **options)


JPEG, PNG, WEBP = _encode("JPEG"), _encode("PNG"), _encode("WEBP")


def _with_exif(file: bytes, data: bytes) -> bytes:
    if file.startswith(b"RIFF"):
        return webp_with_exif(file, data, WIDTH, HEIGHT)
    return jpeg_with_exif(file, data) if file.startswith(b"\xff\xd8") else png_with_exif(file, data)


def _turned_by_pillow(file: bytes) -> torch.Tensor:
    with PIL.Image.open(io.BytesIO(file)) as image:
        upright = np.asarray(PIL.ImageOps.exif_transpose(image))
    return torch.from_numpy(upright.reshape(*upright.shape[:2], -1).copy()).permute(2, 0, 1)


@pytest.mark.parametrize("tile", [1, 30, 1000])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file", [JPEG, PNG, WEBP], ids=["JPEG", "PNG", "WebP"])
def test_every_orientation_as_pillow_turns_it(
    file: bytes, orientation: int, order: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "_TILE_PIXELS", tile)
    turned = _with_exif(file, exif(orientation, order))
    read = read_image(turned)
    assert read.shape == ((3, WIDTH, HEIGHT) if orientation > 4 else (3, HEIGHT, WIDTH))
    assert read.equal(_turned_by_pillow(turned))
    assert read.permute(1, 2, 0).is_contiguous()
    assert read_image(turned, orientation="stored").equal(read_image(file))


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "1"])
def test_every_mode_is_turned(mode: str) -> None:
    file = _encode("PNG", mode)
    assert read_image(png_with_exif(file, exif(6))).equal(torch.rot90(read_image(file), -1, (1, 2)))


@pytest.mark.parametrize("save", ["JPEG", "PNG", "WEBP"])
def test_what_pillow_writes(save: str) -> None:
    data = PIL.Image.Exif()
    data[0x0112] = 8
    data[0x010E] = "a description"
    file = _encode(save, exif=data)
    assert orientation_of(file) == 8
    assert read_image(file).equal(_turned_by_pillow(file))


@pytest.mark.parametrize("data", broken_exif().values(), ids=broken_exif())
@pytest.mark.parametrize("file", [JPEG, PNG, WEBP], ids=["JPEG", "PNG", "WebP"])
def test_broken_exif_is_ignored(file: bytes, data: bytes) -> None:
    assert read_image(_with_exif(file, data)).equal(read_image(file))


def test_the_first_exif_segment_of_a_jpeg_counts() -> None:
    both = jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), exif(6))
    assert orientation_of(both) == 6
    xmp_first = jpeg_with_exif(
        jpeg_with_exif(JPEG, exif(3)), b"<x/>", header=b"http://ns.adobe.com/xap/1.0/\0"
    )
    assert orientation_of(xmp_first) == 3
    broken_first = jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), b"nothing")
    assert orientation_of(broken_first) == 1


@pytest.mark.parametrize("header", [b"", b"Exif", b"Exif\0", b"Exif\0x", b"exif\0\0", b"EXIF\0\0"])
def test_another_header_makes_another_segment(header: bytes) -> None:
    assert orientation_of(jpeg_with_exif(JPEG, exif(6), header)) == 1


def test_a_segment_ends_where_its_length_says() -> None:
    """The header begins in one segment, and what looks like the rest of it lies behind."""
    short = JPEG[:2] + b"\xff\xe1\0\6Exif" + b"\0\0" + exif(6) + JPEG[2:]
    assert orientation_of(short) == 1


def test_exif_behind_the_pixels_of_a_jpeg_is_too_late() -> None:
    scan = JPEG.index(b"\xff\xda")
    end = len(JPEG) - 2
    segment = jpeg_with_exif(b"\xff\xd8", exif(6))[2:]
    assert orientation_of(JPEG[:scan] + segment + JPEG[scan:]) == 6
    assert orientation_of(JPEG[:end] + segment + JPEG[end:]) == 1


def test_exif_behind_the_pixels_of_a_png_is_too_late() -> None:
    end = len(PNG) - 12
    assert orientation_of(PNG[:end] + chunk(b"eXIf", exif(6)) + PNG[end:]) == 1
    assert orientation_of(png_with_exif(png_with_exif(PNG, exif(3)), exif(6))) == 6
    assert orientation_of(png_with_exif(PNG, EXIF_HEADER + exif(6))) == 1


def test_webp_files_may_have_the_header_of_jpeg_files() -> None:
    """libvips writes it."""
    assert orientation_of(webp_with_exif(WEBP, EXIF_HEADER + exif(6), WIDTH, HEIGHT)) == 6


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (JPEG[:2] + b"\xff\xe5\0\2" * 11 + JPEG[2:], "a JPEG file must have at most 10 segments"),
        (PNG[:33] + chunk(b"abCd") * 11 + PNG[33:], "a PNG file must have at most 10 chunks"),
        (WEBP[:12] + b"ABCD\0\0\0\0" * 11 + WEBP[12:], "a WebP file must have at most 10 chunks"),
    ],
)
def test_pieces_are_limited(file: bytes, message: str) -> None:
    assert orientation_of(file) == 1
    with pytest.raises(InputError, match=message):
        orientation_of(file, 10)


def test_exif_data_of_megabytes_cost_nothing_but_reading_them() -> None:
    huge = tiff("<", entry("<", 0x0100, SHORT, 1, 1) * 65_534 + entry("<", ORIENTATION, SHORT, 1, 6))
    for file in (png_with_exif(PNG, huge + bytes(8 << 20)), webp_with_exif(WEBP, huge, WIDTH, HEIGHT)):
        tracemalloc.start()
        try:
            read = read_image(file)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert read.shape == (3, WIDTH, HEIGHT)
        assert peak < 3 * len(file) + (1 << 20)


def test_other_formats_lie_as_they_are_stored() -> None:
    for file in (b"", b"\xff\xd8\xff", _encode("GIF"), _encode("BMP")):
        assert orientation_of(file) == 1


@pytest.mark.parametrize("file", [JPEG, PNG, WEBP], ids=["JPEG", "PNG", "WebP"])
def test_no_truncation_raises_another_error(file: bytes) -> None:
    whole = _with_exif(file, exif(6))
    for length in range(len(whole)):
        try:
            assert orientation_of(whole[:length]) in (1, 6)
        except InputError as error:
            assert "truncated" in str(error)  # noqa: PT017 (both outcomes are right)


@pytest.mark.parametrize("word", ["EXIF", "", "none"])
def test_an_unknown_option(word: str) -> None:
    with pytest.raises(ValueError, match=f"orientation must be 'exif' or 'stored', got '{word}'"):
        read_image(PNG, orientation=word)  # type: ignore[arg-type]


# A picture of 10 x 6, and in it the box from (1, 2) to (4, 3).
@pytest.mark.parametrize(
    ("orientation", "size", "box"),
    [
        (1, (10, 6), (1, 2, 4, 3)),
        (2, (10, 6), (6, 2, 9, 3)),
        (3, (10, 6), (6, 3, 9, 4)),
        (4, (10, 6), (1, 3, 4, 4)),
        (5, (6, 10), (2, 1, 3, 4)),
        (6, (6, 10), (3, 1, 4, 4)),
        (7, (6, 10), (3, 6, 4, 9)),
        (8, (6, 10), (2, 6, 3, 9)),
    ],
)
def test_boxes_turn_with_the_picture(
    orientation: int, size: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    assert upright_size((10, 6), orientation) == size
    assert upright_box((1, 2, 4, 3), (10, 6), orientation) == box


@pytest.mark.parametrize("data", odd_exif().values(), ids=odd_exif())
def test_what_is_odd_but_clear_is_read(data: bytes) -> None:
    assert exif_orientation(data) == 6


def test_no_truncation_and_no_flipped_bit_raises() -> None:
    data = tiff("<", entry("<", ORIENTATION, SHORT, 1, 6))
    for length in range(len(data)):
        assert exif_orientation(data[:length]) == (6 if length >= 22 else 1)
    for position in range(len(data)):
        for bit in range(8):
            assert 1 <= exif_orientation(with_bit_flipped(data, position, bit)) <= 8


def test_a_directory_that_is_the_header() -> None:
    """Its count is then 0x4949 entries, and they end at the end of the data."""
    assert exif_orientation(b"II*\0" + struct.pack("<I", 0) + bytes(100)) == 1
