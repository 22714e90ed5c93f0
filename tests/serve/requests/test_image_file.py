"""Decoding of image files in request bodies."""

import contextlib
import random
import struct
import time
import tracemalloc
import zlib

import pytest
import torch
from damaged_files import mutated
from picture_files import chunk, png_file
from services import Encode

from lensbox.runtime.file.metadata import Canvas
from lensbox.runtime.images.files import DEFAULT_READING, read_image
from lensbox.serve.errors import ApiError, DeadlineError
from lensbox.serve.requests.image_file import photo_from_file

_PLENTY = 1_000_000


def image_from_file(file: bytes, max_pixels: int, deadline: float | None = None) -> torch.Tensor:
    return photo_from_file(file, None, DEFAULT_READING, max_pixels, deadline).pixels


def run_length_bmp(width: int, height: int, runs: bytes) -> bytes:
    """Return a BMP file with 256 colors. runs: pairs of count and color; escapes begin with 0."""
    palette = b"".join(struct.pack("<I", 0x010305 * color) for color in range(256))
    begin = 14 + 40 + len(palette)
    size = begin + len(runs)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", size, 0, 0, begin) + header + palette + runs


def rejection(file: bytes, max_pixels: int = _PLENTY) -> tuple[int, str, str]:
    """Return status, code and message of the error."""
    with pytest.raises(ApiError) as caught:
        image_from_file(file, max_pixels)
    return caught.value.status, caught.value.code, caught.value.message


@pytest.mark.parametrize("format_name", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
def test_files_of_every_format_and_their_truncations(format_name: str, encode: Encode) -> None:
    file = encode(format_name)
    image = image_from_file(file, _PLENTY)
    assert image.shape == (3, 120, 200)
    assert image.equal(read_image(file))
    for length in [4, 12, 20, 30, len(file) // 2]:
        status, code, message = rejection(file[:length])
        assert (status, code) == (400, "undecodable_image")
        assert message.startswith("the image must be ")


def test_the_limit_of_pixels_is_inclusive(png: bytes) -> None:
    assert image_from_file(png, 24_000).shape == (3, 120, 200)
    message = "the image must have at most 23999 pixels, got 200 x 120 = 24000"
    assert rejection(png, 23_999) == (413, "too_many_pixels", message)


@pytest.mark.parametrize("kind", ["PNG", "BMP run-length", "WEBP", "JPEG", "GIF"])
def test_random_damage_gives_a_photograph_or_an_api_error(kind: str, encode: Encode) -> None:
    """The small canvas makes JPEG files decode at reduced size; EXIF data turns the other formats."""
    is_turned = kind in ("PNG", "WEBP", "JPEG")
    if kind == "BMP run-length":
        file = run_length_bmp(200, 120, b"\x05\x07\xc3\x01\0\0" * 120)
    else:
        file = encode(kind, orientation=7 if is_turned else None)
    canvas, chance = Canvas(16, 16), random.Random(kind)
    photo = photo_from_file(file, canvas, DEFAULT_READING, _PLENTY)
    assert (photo.width, photo.height) == ((120, 200) if is_turned else (200, 120))
    assert photo.is_whole is (kind != "JPEG")
    for _ in range(100):
        try:
            photo = photo_from_file(mutated(file, chance), canvas, DEFAULT_READING, _PLENTY)
        except ApiError as error:
            assert error.status in (400, 413, 415)  # noqa: PT017 (both outcomes are right)
        else:
            x1, y1, x2, y2 = photo.window
            assert photo.width * photo.height <= _PLENTY
            assert -8 < x1 <= 0 < photo.width <= x2 < photo.width + 8
            assert -8 < y1 <= 0 < photo.height <= y2 < photo.height + 8


def test_limits_pixels_and_runs_of_run_length_bmp() -> None:
    """Pillow's decoder takes a microsecond per run, whatever the number of pixels."""
    for width, runs in ((1 << 16, b"\x01\x05\0\0"), (1 << 19, b"\x01\x05" * (1 << 19))):
        assert image_from_file(run_length_bmp(width, 1, runs), _PLENTY).shape[2] == width
    file = run_length_bmp(50_000_000, 1, b"\x01\x05\0\0")
    assert len(file) == 1082
    status, code, message = rejection(file, 50_000_000)
    assert (status, code) == (413, "too_many_pixels")
    assert "a run-length BMP image must have at most 2097152 pixels" in message
    status, code, message = rejection(run_length_bmp(1200, 1200, b"\x01\x05" * 1200 * 1200), 1200 * 1200)
    assert (status, code) == (400, "undecodable_image")
    assert "it must be readable in at most 1148576 pieces" in message


@pytest.mark.parametrize(("color_type", "bits", "width"), [(2, 8, 10_667), (6, 16, 4001)])
def test_a_png_inflates_to_a_bounded_size(color_type: int, bits: int, width: int) -> None:
    """Refuse a large PNG by its header. A PNG with one column less fails later, for its missing pixels."""
    status, code, text = rejection(png_file(width, 3750, color_type, b"", bits=bits), 60_000_000)
    assert (status, code) == (413, "too_many_pixels")
    assert f"at most 120000000 bytes of pixels, got {width} x 3750" in text
    smaller = png_file(width - 1, 3750, color_type, b"", bits=bits)
    assert rejection(smaller, 60_000_000)[1] == "undecodable_image"


def _with_comments(gif: bytes) -> bytes:
    begin = 13 + (3 << (gif[10] % 8 + 1))  # after the palette
    return gif[:begin] + b"!\xfe" + b"\2ab" * 300_000 + b"\0" + gif[begin:]


def _with_texts() -> bytes:
    text = zlib.compress(bytes(1 << 20))
    return png_file(8, 8, before=b"".join(chunk(b"zTXt", b"%d\0\0" % i + text) for i in range(60)))


@pytest.mark.parametrize("kind", ["segments", "comments", "unknown chunks", "compressed texts"])
def test_metadata_takes_little_memory(kind: str, encode: Encode) -> None:
    jpeg, gif = encode("JPEG"), encode("GIF")
    file = {
        "segments": jpeg[:2] + b"\xff\xe5\0\2" * 10_000 + jpeg[2:],
        "comments": _with_comments(gif),
        "unknown chunks": png_file(8, 8, after=chunk(b"abCd") * 10_000),
        "compressed texts": _with_texts(),
    }[kind]
    tracemalloc.start()
    try:
        with contextlib.suppress(ApiError):
            image_from_file(file, _PLENTY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(file) + (2 << 20)


def test_gives_up_at_the_deadline(png: bytes) -> None:
    assert image_from_file(png, _PLENTY, time.monotonic() + 60).shape == (3, 120, 200)
    with pytest.raises(DeadlineError, match="the image was not decoded in time; try again later"):
        image_from_file(png, _PLENTY, time.monotonic() - 1)
