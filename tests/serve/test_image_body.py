"""From bodies to pixels."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image
import pytest

from lensbox.runtime.image_io import read_image
from lensbox.serve.errors import ApiError
from lensbox.serve.image_body import image_from_body

_PLENTY = 1_000_000
Encode = Callable[..., bytes]
EmptyPng = Callable[[int, int], bytes]


@pytest.mark.parametrize("format_name", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
@pytest.mark.parametrize("content_type", [None, "", "image/png", "application/x-www-form-urlencoded", "?"])
def test_raw_bodies_of_every_format(format_name: str, content_type: str | None, encode: Encode) -> None:
    file = encode(format_name)
    image = image_from_body(file, content_type, _PLENTY)
    assert image.shape == (3, 120, 200)
    assert image.equal(read_image(file))


@pytest.mark.parametrize(
    ("mode", "channels"), [("L", 1), ("RGB", 3), ("RGBA", 4), ("P", 3), ("1", 1), ("LA", 1)]
)
def test_channels(mode: str, channels: int, encode: Encode) -> None:
    assert image_from_body(encode("PNG", mode), None, _PLENTY).shape == (channels, 120, 200)


def test_pixels_are_those_of_the_file(photograph: np.ndarray[Any, Any], png: bytes) -> None:
    image = image_from_body(png, None, _PLENTY)
    assert np.array_equal(image.permute(1, 2, 0).numpy(), photograph)


def test_forms(png: bytes) -> None:
    head, tail = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\n', b"\r\n--b--"
    image = image_from_body(head + png + tail, "multipart/form-data; boundary=b", _PLENTY)
    assert image.equal(read_image(png))
    with pytest.raises(ApiError, match="the image must not be empty, got 0 bytes") as caught:
        image_from_body(head + tail, "multipart/form-data; boundary=b", _PLENTY)
    assert (caught.value.status, caught.value.code) == (400, "empty_image")


def test_the_limit_of_pixels_is_inclusive(png: bytes) -> None:
    assert image_from_body(png, None, 24_000).shape == (3, 120, 200)
    with pytest.raises(ApiError) as caught:
        image_from_body(png, None, 23_999)
    assert (caught.value.status, caught.value.code) == (413, "too_many_pixels")
    assert caught.value.message == "the image must have at most 23999 pixels, got 200 x 120 = 24000"


@pytest.mark.parametrize(("width", "height"), [(65_535, 65_535), (2**31 - 1, 2**31 - 1), (1_000_001, 1)])
def test_a_bomb_is_refused_by_its_header(
    empty_png: Callable[[int, int], bytes], width: int, height: int
) -> None:
    with pytest.raises(ApiError) as caught:
        image_from_body(empty_png(width, height), None, _PLENTY)
    assert caught.value.code == "too_many_pixels"
    assert f"got {width} x {height} = {width * height}" in caught.value.message


@pytest.mark.parametrize("format_name", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
def test_every_truncation_is_an_error_that_names_the_rule(format_name: str, encode: Encode) -> None:
    file = encode(format_name)
    for length in [4, 12, 20, 30, len(file) // 2]:
        with pytest.raises(ApiError) as caught:
            image_from_body(file[:length], None, _PLENTY)
        assert (caught.value.status, caught.value.code) == (400, "undecodable_image")
        assert caught.value.message.startswith("the image must be ")


def test_damaged_pixels(png: bytes) -> None:
    middle = len(png) // 2
    with pytest.raises(ApiError) as caught:
        image_from_body(png[:middle] + bytes(64) + png[middle + 64 :], None, _PLENTY)
    assert caught.value.code == "undecodable_image"


def test_a_png_without_pixels(empty_png: EmptyPng) -> None:
    with pytest.raises(ApiError) as caught:
        image_from_body(empty_png(10, 10), None, _PLENTY)
    assert caught.value.code == "undecodable_image"


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes(seed: int) -> None:
    noise = np.random.default_rng(seed).bytes(500)
    with pytest.raises(ApiError) as caught:
        image_from_body(noise, None, _PLENTY)
    assert (caught.value.status, caught.value.code) == (400, "undecodable_image")
    assert "got 500 bytes that begin with b" in caught.value.message


@pytest.mark.parametrize("format_name", ["PNG", "BMP", "WEBP", "JPEG", "GIF"])
def test_random_damage_gives_an_image_or_an_error_of_ours(format_name: str, encode: Encode) -> None:
    file = encode(format_name)
    random = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(file)
        for position in random.integers(0, min(len(file), 200), 4):
            damaged[position] = random.integers(256)
        try:
            image = image_from_body(bytes(damaged), None, _PLENTY)
        except ApiError as error:
            assert error.status in (400, 413, 415)  # noqa: PT017 (both outcomes are right)
        else:
            assert image.shape[1] * image.shape[2] <= _PLENTY


def test_formats_that_are_known_but_not_supported(photograph: np.ndarray[Any, Any]) -> None:
    buffer = io.BytesIO()
    PIL.Image.fromarray(photograph).save(buffer, "TIFF")
    with pytest.raises(ApiError) as caught:
        image_from_body(buffer.getvalue(), "image/tiff", _PLENTY)
    assert (caught.value.status, caught.value.code) == (415, "unsupported_format")
    assert caught.value.message == "the image must be one of JPEG, PNG, WebP, BMP, GIF, got TIFF"


@pytest.mark.parametrize(
    ("beginning", "name"),
    [(b"\0\0\0\x1cftypheic", "HEIF"), (b"%PDF-1.7", "PDF"), (b"8BPS\0\1", "PSD"), (b"<svg xmlns=", "SVG")],
)
def test_signatures(beginning: bytes, name: str) -> None:
    with pytest.raises(ApiError, match=f"got {name}") as caught:
        image_from_body(beginning, None, _PLENTY)
    assert caught.value.status == 415
