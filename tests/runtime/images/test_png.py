"""The chunks of PNG files. test_decoder.py has the refused ones."""

from functools import partial

import numpy as np
import PIL.Image
import PIL.PngImagePlugin
from picture_files import encoded

from lensbox.runtime import read_image
from lensbox.runtime.images.png import without_metadata

_PICTURE = PIL.Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8))
_encode = partial(encoded, file_format="PNG")


def test_removes_ancillary_chunks_without_changing_pixels() -> None:
    text = PIL.PngImagePlugin.PngInfo()
    text.add_text("Title", "a title", zip=True)
    for image in (_PICTURE, _PICTURE.convert("L"), _PICTURE.quantize(16)):
        plain = _encode(image)
        full = _encode(image, pnginfo=text, icc_profile=b"p" * 1000, dpi=(72, 72))
        assert without_metadata(full) == (plain, b"")
        assert read_image(full).equal(read_image(plain))
    plain = _encode(_PICTURE)
    assert read_image(_encode(_PICTURE, transparency=(1, 2, 3))).equal(read_image(plain))
    assert without_metadata(_encode(_PICTURE, save_all=True, append_images=[_PICTURE.rotate(90)]))[0] == plain


def test_keeps_files_without_metadata() -> None:
    whole = _encode(_PICTURE)
    for file in (whole, whole + bytes(12_000)):
        assert without_metadata(file)[0] is file
