"""The photographs that are timed."""

import io
from typing import Any

import numpy as np
import PIL.Image

from lensbox.bench.photo.photographs import (
    jpeg_photograph,
    jpeg_variants,
    photo_pixels,
    png_photograph,
    small_photographs,
)


def opened(file: bytes) -> Any:
    return PIL.Image.open(io.BytesIO(file))


def gray_levels(picture: PIL.Image.Image) -> Any:
    return np.asarray(picture.convert("L"), np.int16)


def test_photographs_are_of_the_size_and_kind_that_they_say() -> None:
    assert opened(jpeg_photograph(320, 240).file).size == (320, 240)
    assert jpeg_photograph(320, 240) == jpeg_photograph(320, 240)
    assert jpeg_photograph(320, 240, variant=1).file != jpeg_photograph(320, 240).file
    smaller, progressive, gray, full_color, lying = (
        opened(variant.file) for variant in jpeg_variants(320, 240)
    )
    assert len(jpeg_variants(320, 240)[0].file) < 0.75 * len(jpeg_photograph(320, 240).file)
    assert "progressive" in progressive.info
    assert gray.mode == "L"
    assert [component[1:3] for component in full_color.layer] == [(1, 1)] * 3
    assert (lying.size, lying.getexif()[0x0112]) == ((240, 320), 6)
    assert opened(png_photograph(64, 48).file).format == "PNG"
    expected = gray_levels(PIL.Image.fromarray(photo_pixels(320, 240)))
    for picture in (smaller, progressive, gray, full_color, lying):
        assert np.abs(gray_levels(PIL.ImageOps.exif_transpose(picture)) - expected).mean() < 6
    different = [photograph.file for photograph in small_photographs(64, 5)]
    assert len(set(different)) == 5
    assert {opened(file).size for file in different} == {(64, 64)}


def test_a_large_photograph_takes_as_many_bits_as_one_of_a_camera() -> None:
    bits = 8 * len(jpeg_photograph(1920, 1080).file) / (1920 * 1080)
    assert 1.5 < bits < 3
