"""Pictures of every kind that callers give: their pixels, or an error that says what to do."""

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest

from lensbox.client.client import image_bytes
from lensbox.common.pictures import content_of, picture_pixels, require_many

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
DEEP = np.linspace(0, 65_535, 48).reshape(6, 8).astype(np.uint16)


@pytest.mark.parametrize("picture", [PIL.Image.fromarray(DEEP), PIL.Image.fromarray(DEEP.astype(np.int32))])
def test_the_high_byte_of_sixteen_bits_is_kept(picture: PIL.Image.Image) -> None:
    assert (picture_pixels(picture, "image") == DEEP >> 8).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV"])
def test_other_modes_are_converted_as_pillow_does(mode: str) -> None:
    picture = PIL.Image.fromarray(RGB)
    picture = picture.convert("RGBA").convert(mode) if mode in ("RGBa", "PA") else picture.convert(mode)
    kept = {"1": "L", "L": "L", "LA": "L", "RGBA": "RGBA"}.get(mode, "RGB")
    assert (picture_pixels(picture, "image") == np.asarray(picture.convert(kept))).all()
    with PIL.Image.open(io.BytesIO(image_bytes(picture))) as sent:
        assert sent.mode == kept
        assert (np.asarray(sent) == picture_pixels(picture, "image")).all()


@pytest.mark.parametrize(
    ("array", "color_order", "expected"),
    [
        (RGB[:, ::-1], "RGB", RGB[:, ::-1]),
        (RGB[..., ::-1], "BGR", RGB),
        (np.dstack([RGB, RGB[..., :1]])[..., [2, 1, 0, 3]], "BGR", np.dstack([RGB, RGB[..., :1]])),
        (np.asfortranarray(RGB), "RGB", RGB),
        (np.frombuffer(RGB.tobytes(), np.uint8).reshape(RGB.shape), "RGB", RGB),
        (RGB[..., 0], "BGR", RGB[..., 0]),
        (RGB[..., :1], "RGB", RGB[..., 0]),
    ],
    ids=["reversed", "BGR", "BGRA", "Fortran", "read-only", "gray", "gray with an axis"],
)
def test_arrays_of_any_layout(array: Any, color_order: Any, expected: Any) -> None:
    pixels = picture_pixels(array, "image", color_order)
    assert pixels.flags["C_CONTIGUOUS"]
    assert pixels.flags["WRITEABLE"]
    assert pixels.shape == expected.shape
    assert (pixels == expected).all()


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (PIL.Image.fromarray(DEEP.astype(np.float32)), "got floating-point numbers"),
        (PIL.Image.fromarray(DEEP.astype(np.int32) * 2), r"0 to 65535, got 0 to 131070"),
        (PIL.Image.fromarray(RGB[..., 0].astype(np.int32)), "mode I .* got at most 25"),
        (DEEP, "uint8, got uint16: scale"),
        (RGB.transpose(2, 0, 1), r"got \[3, 6, 8\]; transpose\(1, 2, 0\)"),
        (RGB[:0], r"got \[0, 8, 3\]"),
    ],
)
def test_refuses_levels_and_shapes_that_do_not_fit(picture: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^image .*{message}"):
        picture_pixels(picture, "image")


def test_refuses_another_color_order() -> None:
    with pytest.raises(ValueError, match="color_order must be 'RGB' or 'BGR', got 'GBR'"):
        picture_pixels(RGB, "image", "GBR")  # type: ignore[arg-type]
    for image in (PIL.Image.fromarray(RGB), b"file"):
        with pytest.raises(ValueError, match="color_order must be 'RGB' unless image is an array"):
            image_bytes(image, "BGR")


def test_files_in_memory_and_open_files() -> None:
    for source in (b"file", bytearray(b"file"), memoryview(b"file"), io.BytesIO(b"file")):
        assert content_of(source, "image") == b"file"
    assert content_of("a.jpg", "image") is None
    for other, message in ((io.StringIO("file"), "binary mode"), (7, "got int"), (None, "got NoneType")):
        with pytest.raises(TypeError, match=f"image must be .*{message}"):
            content_of(other, "image")


@pytest.mark.parametrize("one", ["a.jpg", b"file", PIL.Image.new("L", (1, 1))])
def test_one_image_is_not_many(one: Any) -> None:
    with pytest.raises(TypeError, match=r"files must be a list .*put it into \[ \]"):
        require_many(one, "files")
    require_many(["a.jpg"], "files")
