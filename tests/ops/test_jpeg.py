"""JPEG files that a GPU may decode: which ones, the walk of their codes, the RGB of their planes.

The CPU computes what a GPU does. The RGB is compared with libjpeg-turbo: Pillow decodes the same planes.
"""

import io
import itertools
import random
from pathlib import Path

import numpy as np
import PIL.features
import PIL.Image
import pytest
import torch
from damaged_files import mutated
from jpeg_files import (
    BASELINE,
    LARGE,
    LONG_CODES,
    RESTARTED,
    SMALL,
    TALL,
    begin_of_data,
    encode,
    is_accepted,
    is_well_formed,
    noisy,
    with_byte,
    with_flipped_bit,
)
from picture_files import encoded, exif, jpeg_with_exif
from torch import Tensor

import lensbox.ops  # noqa: F401 (registers lensbox_jpeg)
from lensbox.common.errors import InputError
from lensbox.ops import decode_jpeg
from lensbox.runtime import read_image


def test_sound_files_are_accepted() -> None:
    files = [
        *SMALL,
        *LARGE,
        *(encode(101, 67, quality=quality, optimize=True) for quality in (3, 75, 95)),
        TALL,
        BASELINE + b"behind the end",
        jpeg_with_exif(BASELINE, exif(6)),
    ]
    for file in files:
        assert is_accepted(file)
        assert is_well_formed(file)


@pytest.mark.parametrize(
    "file",
    [
        b"\xff",
        encode(101, 67, progressive=True),
        encode(101, 67, "CMYK"),
        encode(101, 67, keep_rgb=True),  # with Adobe's marker
        BASELINE[:-2],
        BASELINE[:-300],
        BASELINE[: begin_of_data(BASELINE)],
        BASELINE.replace(b"\xff\xc0", b"\xff\xc1"),
        RESTARTED.replace(b"\xff\xd1", b"\xff\xd2", 1),
        RESTARTED.replace(b"\xff\xd1", b"", 1),
        BASELINE[:-2] + b"\xff\xd0\xff\xd9",
        with_byte(BASELINE, BASELINE.index(b"\xff\xc0") + 11, 0x41),  # luma four times as wide as chroma
        LONG_CODES,
        with_byte(BASELINE, BASELINE.index(b"\xff\xc0") + 5, 16),  # more blocks than its data can hold
    ],
)
def test_other_kinds_and_broken_structure_are_refused(file: bytes) -> None:
    assert not is_accepted(file)


def test_broken_codes_are_found() -> None:
    begin = begin_of_data(BASELINE) + 50
    for broken in (
        BASELINE[:begin] + BASELINE[begin + 10 :],  # missing
        BASELINE[:begin] + b"\x55" * 10 + BASELINE[begin:],  # left over
        BASELINE[:begin] + b"\xff\0" * 20 + BASELINE[begin + 40 :],  # a code is never all ones
    ):
        assert is_accepted(broken)
        assert not is_well_formed(broken)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_files_that_pass_are_sound_to_libjpeg(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        damaged = mutated(chance.choice(SMALL), chance)
        if damaged and is_well_formed(damaged):
            read_image(damaged)  # raises if libjpeg would warn of missing or wrong pixels


def test_walks_in_parts_find_damage() -> None:
    chance = random.Random(28)
    found = [is_well_formed(with_flipped_bit(chance.choice(LARGE), chance)) for _ in range(100)]
    assert set(found) == {True, False}


def _decoded(file: bytes) -> torch.Tensor:
    return torch.from_numpy(np.array(PIL.Image.open(io.BytesIO(file))))


def _merged(files: list[bytes], width: int, height: int, across: int, down: int) -> bytes:
    """Make one color file of three gray ones, which become its scans: their pixels are its planes."""
    first = files[0]
    frame = first.index(b"\xff\xc0")
    components = bytes((3, 1, across << 4 | down, 0, 2, 0x11, 0, 3, 0x11, 0))
    header = b"\xff\xc0\0\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + components
    merged = first[:frame] + header + first[frame + 13 : first.index(b"\xff\xda")]
    for number, file in enumerate(files, 1):
        scan = file.index(b"\xff\xda")
        merged += file[scan : scan + 5] + bytes((number,)) + file[scan + 6 : -2]
    return merged + b"\xff\xd9"


@pytest.mark.skipif(not PIL.features.check_feature("libjpeg_turbo"), reason="Pillow has another libjpeg")
@pytest.mark.parametrize(("across", "down"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_colors_are_those_of_libjpeg(across: int, down: int) -> None:
    generator = np.random.default_rng(28)
    sizes = [*itertools.product(range(1, 10), range(1, 10)), *generator.integers(1, 71, (40, 2)).tolist()]
    for width, height in sizes:
        chroma_size = -(-width // across), -(-height // down)
        sizes_of_planes = ((width, height), chroma_size, chroma_size)
        files = [encoded(noisy(generator, *size, 30), quality=90) for size in sizes_of_planes]
        expected = _decoded(_merged(files, width, height, across, down))
        planes = [_decoded(file) for file in files]
        found = torch.ops.lensbox_jpeg.to_rgb(*planes, across, down)
        assert torch.equal(found, expected.permute(2, 0, 1)), (width, height)


def test_wrong_planes_are_refused() -> None:
    luma, chroma = torch.zeros(3, 5, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8)
    assert torch.ops.lensbox_jpeg.to_rgb(luma, chroma, chroma, 2, 2).shape == (3, 3, 5)
    with pytest.raises(ValueError, match=r"cb and cr must have the shape \[3, 3\], got \[2, 3\]"):
        torch.ops.lensbox_jpeg.to_rgb(luma, chroma, chroma, 2, 1)
    with pytest.raises(ValueError, match="across and down must be 1 or 2, got 4 and 1"):
        torch.ops.lensbox_jpeg.to_rgb(luma, chroma, chroma, 4, 1)
    with pytest.raises(ValueError, match=r"a plane must be uint8 \[H, W\] on the CPU"):
        torch.ops.lensbox_jpeg.to_rgb(luma.float(), chroma, chroma, 2, 2)


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
