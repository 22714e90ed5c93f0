"""Pictures are turned upright by their EXIF orientation; the data of WebP files."""

import io

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import torch
from picture_files import EXIF_HEADER, encoded, exif, jpeg_with_exif, png_with_exif

from lensbox.runtime import Reading, read_image
from lensbox.runtime.images import decoder
from lensbox.runtime.images.decoder import read_header
from lensbox.runtime.images.files import DEFAULT_READING

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


def test_finds_the_exif_data_of_webp_files() -> None:
    assert read_header(_with_exif(WEBP, exif(6)), DEFAULT_READING) == (HEIGHT, WIDTH, 6)
    # One header is left, as libvips writes it.
    assert read_header(_encode("WEBP", exif=2 * EXIF_HEADER + exif(6)), Reading("stored")) == (
        WIDTH,
        HEIGHT,
        6,
    )
    for file in (WEBP, _encode("GIF"), _encode("BMP")):
        assert read_header(file, DEFAULT_READING) == (WIDTH, HEIGHT, 1)
