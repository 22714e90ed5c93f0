"""PNG files: their chunks."""

from functools import partial

import numpy as np
import PIL.Image
import PIL.PngImagePlugin
import pytest
from damaged_files import with_bit_flipped
from picture_files import encoded
from png_files import chunk, png_file

from lensbox.common.errors import InputError
from lensbox.runtime.images.files import read_image
from lensbox.runtime.images.png import without_metadata

_PICTURE = PIL.Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8))
_encode = partial(encoded, file_format="PNG")


def test_what_is_left_out_decides_no_pixel() -> None:
    text = PIL.PngImagePlugin.PngInfo()
    text.add_text("Title", "a title", zip=True)
    for image in (_PICTURE, _PICTURE.convert("L"), _PICTURE.quantize(16)):
        plain = _encode(image)
        full = _encode(image, pnginfo=text, icc_profile=b"p" * 1000, dpi=(72, 72))
        assert without_metadata(full) == plain
        assert read_image(full).equal(read_image(plain))


def test_transparency_and_animation_are_left_out() -> None:
    plain = _encode(_PICTURE)
    assert read_image(_encode(_PICTURE, transparency=(1, 2, 3))).equal(read_image(plain))
    animated = _encode(_PICTURE, save_all=True, append_images=[_PICTURE.rotate(90)])
    assert without_metadata(animated) == plain


def test_a_file_without_metadata_and_other_files_stay_as_they_are() -> None:
    for file in (_encode(_PICTURE), b"", b"\xff\xd8\xff tEXt"):
        assert without_metadata(file) is file


def test_a_chunk_that_is_left_out_must_be_whole() -> None:
    file = _encode(_PICTURE, dpi=(72, 72))
    damaged = with_bit_flipped(file, file.index(b"pHYs") + 4)
    with pytest.raises(InputError, match=r"broken PNG file \(bad checksum in chunk b'pHYs'\)"):
        without_metadata(damaged)


def test_chunks_are_limited() -> None:
    file = png_file(1, 1, after=chunk(b"tEXt") * 998)
    assert without_metadata(file, 1000) == png_file(1, 1)
    with pytest.raises(InputError, match="a PNG file must have at most 999 chunks"):
        without_metadata(file, 999)


def test_what_follows_the_end_is_no_chunk() -> None:
    file = _encode(_PICTURE) + bytes(12_000)
    assert without_metadata(file, 10) is file


@pytest.mark.parametrize("mode", ["RGB", "LA", "P"])
def test_no_flipped_bit_is_accepted(mode: str) -> None:
    """Pillow alone accepts some: it looks at no checksum of IDAT and stops at the last row."""
    file = _encode(_PICTURE.resize((9, 7)).convert(mode))
    for position in range(len(file)):
        for bit in range(8):
            flipped = with_bit_flipped(file, position, bit)
            with pytest.raises(ValueError, match=r"must be an image|neither|PNG"):
                read_image(flipped)


@pytest.mark.parametrize("cut", [1, 4, 12, 1000])
def test_a_file_without_its_end_is_refused(cut: int) -> None:
    with pytest.raises(InputError, match="truncated"):
        without_metadata(_encode(_PICTURE)[:-cut])


def test_a_signature_alone_is_refused() -> None:
    with pytest.raises(InputError, match="truncated"):
        without_metadata(b"\x89PNG\r\n\x1a\n")


def test_a_chunk_that_decoders_must_know_and_png_has_not_is_refused() -> None:
    file = _encode(_PICTURE)
    with pytest.raises(InputError, match="unknown chunk b'ABCD'"):
        without_metadata(file[:33] + chunk(b"ABCD", b"?") + file[33:])
