"""decode_jpeg: Pillow's pixels of every file, and the number of files that the CPU decoded."""

import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from jpeg_files import BASELINE, encode
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.ops import decode_jpeg

FILES = [
    BASELINE,
    encode(101, 67, "L"),
    encode(90, 70, progressive=True),
    encode(64, 48, "CMYK"),
    *(encode(40 + side, 40, quality=80) for side in range(30)),
]


def pillow_pixels(file: bytes, mode: str) -> Tensor:
    with PIL.Image.open(io.BytesIO(file)) as image:
        if mode == "gray":
            image.draft("L", image.size)
        pixels = np.array(image.convert("L" if mode == "gray" else "RGB"))
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)


@pytest.mark.parametrize("mode", ["gray", "rgb"])
def test_pixels_are_those_of_pillow(device: torch.device, mode: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(FILES[0])
    tensor = torch.frombuffer(bytearray(FILES[1]), dtype=torch.uint8)
    images, on_cpu = decode_jpeg([path, tensor, *FILES[2:]], device, mode)  # type: ignore[arg-type]
    for image, file in zip(images, FILES, strict=True):
        assert image.device.type == device.type
        assert torch.equal(image.cpu(), pillow_pixels(file, mode))
    decodes = device.type == "cuda" and not torch.ops.lensbox_jpeg.decoder_fault(device)
    assert on_cpu == (2 if decodes else len(FILES))  # the progressive file and the file in CMYK


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (BASELINE[:300], r"files\[1\] .*Truncated"),
        (b"GIF89a", r"files\[1\] .*cannot identify"),
        (b"", r"files\[1\] .*empty"),
        ("none.jpg", r"none\.jpg: No such file"),
        (torch.zeros(9), r"files\[1\] must be uint8 \[N\] on the CPU, got torch.float32 \[9\] on cpu"),
        (torch.zeros(3, 3).byte(), r"files\[1\] must be uint8 \[N\] on the CPU, got torch.uint8 \[3, 3\]"),
    ],
)
def test_names_the_wrong_file(device: torch.device, file: bytes | str | Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode_jpeg([BASELINE, file], device)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_names_a_file_that_pillow_finds_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InputError, match=r"files\[0\] must be a sound JPEG file: Image size .* exceeds"):
        decode_jpeg([BASELINE])


def test_rejects_another_mode() -> None:
    with pytest.raises(ValueError, match="mode must be 'gray' or 'rgb', got 'RGB'"):
        decode_jpeg([BASELINE], mode="RGB")  # type: ignore[arg-type]
