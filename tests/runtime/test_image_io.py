"""Image files of every mode become uint8 [C, H, W]."""

import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from lensbox.runtime.image_io import read_image

GRAY = np.arange(20, dtype=np.uint8).reshape(4, 5) * 12
RGB = np.stack([GRAY, 255 - GRAY, GRAY // 2], axis=-1)
RGBA = np.concatenate([RGB, GRAY[..., None]], axis=-1)


def encode(image: PIL.Image.Image, file_format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("pixels", [GRAY, RGB, RGBA])
def test_gray_rgb_and_rgba_stay_as_they_are(pixels: np.ndarray, tmp_path: Path) -> None:
    content = encode(PIL.Image.fromarray(pixels))
    expected = torch.from_numpy(pixels.reshape(4, 5, -1)).permute(2, 0, 1)
    path = tmp_path / "image.png"
    path.write_bytes(content)
    for source in (content, path, str(path)):
        tensor = read_image(source)
        assert tensor.dtype == torch.uint8
        assert tensor.is_contiguous()
        assert torch.equal(tensor, expected)


def test_other_modes_are_converted() -> None:
    gray, rgb = PIL.Image.fromarray(GRAY), PIL.Image.fromarray(RGB)
    palette = read_image(encode(rgb.quantize(32)))
    assert palette.shape == (3, 4, 5)
    assert (palette.int() - torch.from_numpy(RGB).permute(2, 0, 1).int()).abs().max() <= 8
    assert torch.equal(read_image(encode(gray.convert("LA"))), torch.from_numpy(GRAY)[None])
    assert read_image(encode(gray.convert("1"))).unique().tolist() == [0, 255]
    assert read_image(encode(rgb.convert("CMYK"), "JPEG")).shape == (3, 4, 5)


def test_sixteen_bits_lose_the_low_byte() -> None:
    deep = GRAY.astype(np.uint16) * 256 + 77
    assert torch.equal(read_image(encode(PIL.Image.fromarray(deep))), torch.from_numpy(GRAY)[None])


def test_exif_rotation_is_not_applied() -> None:
    image = PIL.Image.fromarray(RGB)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees
    assert read_image(encode(image, "JPEG", exif=exif)).shape == (3, 4, 5)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"source must be an image file, got .*nothing\.png"):
        read_image(tmp_path / "nothing.png")


@pytest.mark.parametrize(
    "content",
    [b"", b"not an image", encode(PIL.Image.fromarray(RGB))[:45]],
    ids=["empty", "text", "truncated"],
)
def test_what_cannot_be_decoded_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the image data must be an image that Pillow can decode"):
        read_image(content)
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.png must be an image that Pillow can decode"):
        read_image(path)


def test_damaged_compressed_data_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    content = bytearray(encode(PIL.Image.fromarray(noise)))
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    with pytest.raises(ValueError, match="must be an image that Pillow can decode"):
        read_image(bytes(content))


def test_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 8)
    with pytest.raises(ValueError, match="must be an image that Pillow can decode"):
        read_image(encode(PIL.Image.fromarray(RGB)))
