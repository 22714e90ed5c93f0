"""Image files of all formats: decoded pixels, and errors.

`tests/runtimes/test_photos.py` has PNG files of every depth.
"""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded

from lensbox.common.errors import InputError
from lensbox.runtime import read_image
from lensbox.runtime.images import decoder
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.files import DEFAULT_READING
from lensbox.runtime.images.limits import TooManyPixelsError

GRAY = np.arange(20, dtype=np.uint8).reshape(4, 5) * 12
RGB = np.stack([GRAY, 255 - GRAY, GRAY // 2], axis=-1)
RGB_PNG = encoded(PIL.Image.fromarray(RGB), "PNG")
NO_IMAGE = "must be an image that can be decoded"


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG"])
def test_reads_the_first_of_several_pictures(file_format: str) -> None:
    first, second = (PIL.Image.new("RGB", (8, 6), color) for color in ("red", "blue"))
    read = read_image(encoded(first, file_format, save_all=True, append_images=[second]))
    assert read.shape[1:] == (6, 8)
    assert read[0].min() > 200
    assert read[2].max() < 50


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", ": it is empty$"),
        (b"not an image", ""),
        (RGB_PNG[:45], ""),
    ],
    ids=["empty", "text", "truncated"],
)
def test_rejects_files_with_their_name(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"the image data {NO_IMAGE}.*{reason}"):
        read_image(content)
    with pytest.raises(InputError, match=rf"bad\.png {NO_IMAGE}.*{reason}"):
        read_image(path)


def test_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"source must be an image file, got .*nothing\.png"):
        read_image(tmp_path / "nothing.png")


def test_rejects_decompression_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    file = encoded(PIL.Image.fromarray(RGB), "GIF")  # test_core.py has JPEG and PNG
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 8)
    with pytest.raises(TooManyPixelsError, match="decompression bomb"):
        decode_photo(file, None, DEFAULT_READING)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I"])
@pytest.mark.parametrize("tile", [1, 3, 7, 100])
def test_converts_every_mode_tile_by_tile(mode: str, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles are a part of a row, one row, or several rows."""
    monkeypatch.setattr(decoder, "_TILE_PIXELS", tile)
    deep = PIL.Image.fromarray(GRAY.astype(np.uint16) * 250)
    image = deep if mode == "I;16" else PIL.Image.fromarray(RGB).convert(mode)
    if mode.startswith("I"):
        expected = (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)
    elif mode in ("RGB", "RGBA"):
        expected = np.asarray(image)
    else:
        expected = np.asarray(image.convert("L" if mode in ("1", "L", "LA") else "RGB"))
    read = read_image(encoded(image, "TIFF"))
    assert torch.equal(read, torch.from_numpy(expected.reshape(4, 5, -1).copy()).permute(2, 0, 1))
    assert read.permute(1, 2, 0).is_contiguous()


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (KeyError("mode"), InputError, "mode"),
        (RecursionError("deep"), InputError, "deep"),
        (AssertionError(), InputError, "AssertionError"),
        (MemoryError("full"), MemoryError, "full"),
    ],
)
def test_errors_of_decoders(error: Exception, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        decode_photo(b"", None, DEFAULT_READING, open_image=Mock(side_effect=error))
