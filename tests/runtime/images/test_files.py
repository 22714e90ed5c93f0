"""Image files of all formats: decoded pixels, and errors.

`tests/runtimes/test_photos.py` has PNG files of every depth.
"""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import chunk, encoded

from lensbox.common.errors import InputError
from lensbox.runtime.images import decoder
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.files import DEFAULT_READING, MAX_PIECES, read_image
from lensbox.runtime.images.limits import ImageLimits

GRAY = np.arange(20, dtype=np.uint8).reshape(4, 5) * 12
RGB = np.stack([GRAY, 255 - GRAY, GRAY // 2], axis=-1)
RGBA = np.concatenate([RGB, GRAY[..., None]], axis=-1)
RGB_PNG = encoded(PIL.Image.fromarray(RGB), "PNG")
NO_IMAGE = "must be an image that Pillow can decode"


def decode(
    file: bytes,
    limits: ImageLimits | None = None,
    open_image: Callable[[io.BytesIO], PIL.Image.Image] = PIL.Image.open,
) -> torch.Tensor:
    return decode_photo(file, None, DEFAULT_READING, limits or ImageLimits(), open_image).pixels


@pytest.mark.parametrize("pixels", [GRAY, RGB, RGBA])
def test_gray_rgb_and_rgba_are_unchanged(pixels: np.ndarray, tmp_path: Path) -> None:
    content = encoded(PIL.Image.fromarray(pixels), "PNG")
    expected = torch.from_numpy(pixels.reshape(4, 5, -1)).permute(2, 0, 1)
    path = tmp_path / "image.png"
    path.write_bytes(content)
    for source in (content, path, str(path)):
        tensor = read_image(source)
        assert tensor.dtype == torch.uint8
        assert tensor.permute(1, 2, 0).is_contiguous()
        assert torch.equal(tensor, expected)


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
        (RGB_PNG[:33] + chunk(b"abCd") * MAX_PIECES + RGB_PNG[33:], f"at most {MAX_PIECES} chunks"),
    ],
    ids=["empty", "text", "truncated", "chunks"],
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
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 8)
    with pytest.raises(InputError, match=NO_IMAGE):
        read_image(RGB_PNG)


_YCBCR = pytest.param(
    "YCbCr",
    marks=pytest.mark.skipif(
        int(PIL.__version__.split(".")[0]) < 13, reason="this Pillow cannot read its own YCbCr TIFF"
    ),
)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", _YCBCR, "I;16", "I"])
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
    def fail(_: object) -> PIL.Image.Image:
        raise error

    with pytest.raises(kind, match=message):
        decode(b"", open_image=fail)


class Clock:
    """A clock that advances by a second at each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_decoding_stops_at_the_deadline(file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = encoded(PIL.Image.fromarray(RGB), file_format)
    clock = Clock()
    for module in ("limits", "fast_jpeg"):
        monkeypatch.setattr(f"lensbox.runtime.images.{module}.time", SimpleNamespace(monotonic=clock))
    decode(file, ImageLimits(deadline=1e9))
    calls = int(clock.now)
    assert calls >= 2
    for seconds in range(calls):
        clock.now = 0.0
        with pytest.raises(TimeoutError, match="the image was not decoded in time"):
            decode(file, ImageLimits(deadline=seconds))
        assert clock.now == seconds + 1, "decoding went on after the deadline"


def test_limits_the_number_of_pieces() -> None:
    file = encoded(PIL.Image.fromarray(RGB).quantize(8), "GIF")
    begin = file.index(b",", 13 + 3 * 8)
    file = file[:begin] + b"!\xfe" + b"\x01c" * 500 + b"\0" + file[begin:]
    assert decode(file, ImageLimits(max_pieces=1100)).shape == (3, 4, 5)
    with pytest.raises(InputError, match="it must be readable in at most 900 pieces"):
        decode(file, ImageLimits(max_pieces=900))
