"""JPEG files that a GPU may decode, and damage to them."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import PIL.Image
import torch
from picture_files import encoded

import lensbox.ops  # noqa: F401 (registers lensbox_jpeg)


def noisy(
    generator: np.random.Generator, width: int, height: int, noise: int, *channels: int
) -> PIL.Image.Image:
    """Return a smooth, noisy picture. noise: in levels. channels: 3, or none for gray."""
    coarse = generator.integers(0, 256, (height // 9 + 2, width // 9 + 2, *channels), np.uint8)
    smooth = np.asarray(PIL.Image.fromarray(coarse).resize((width, height), PIL.Image.Resampling.BICUBIC))
    levels = smooth + generator.integers(-noise, noise + 1, smooth.shape)
    return PIL.Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))


def encode(width: int, height: int, mode: str = "RGB", noise: int = 12, **options: Any) -> bytes:
    """Return a smooth, noisy picture as a JPEG file. options: of Pillow."""
    generator = np.random.default_rng(width * 7919 + height)
    return encoded(noisy(generator, width, height, noise, 3).convert(mode), **options)


def sound_files(sizes: list[tuple[int, int]], noise: int = 12) -> Iterator[bytes]:
    """Yield files of these sizes in several qualities, samplings and with restart markers."""
    for (width, height), quality in itertools.product(sizes, (3, 75, 95)):
        yield encode(width, height, "L", noise, quality=quality)
        for sampling in ("4:4:4", "4:2:2", "4:2:0"):
            yield encode(width, height, "RGB", noise, quality=quality, subsampling=sampling)
        yield encode(width, height, "RGB", noise, quality=quality, restart_marker_blocks=3)


def with_byte(file: bytes, at: int, value: int) -> bytes:
    """Return the file with another value of one byte."""
    return file[:at] + bytes((value,)) + file[at + 1 :]


def begin_of_data(file: bytes) -> int:
    """Return the offset of the first coded byte."""
    begin = file.index(b"\xff\xda")
    return begin + 2 + int.from_bytes(file[begin + 2 : begin + 4], "big")


def _with_long_codes() -> bytes:
    """Return four flat blocks, with one code of 12 bits for all DC and one of 11 for all AC coefficients.

    Encoders give long codes to rare symbols, and such codes begin with ones; these are zeros.
    """
    file = encoded(PIL.Image.new("L", (16, 16), 128))
    tables = b"".join(
        kind + bytes(length == bits for length in range(1, 17)) + b"\0"
        for kind, bits in ((b"\x00", 12), (b"\x10", 11))
    )
    scan = file.index(b"\xff\xda")
    data = int("0" * 4 * (12 + 11) + "1111", 2).to_bytes(12, "big")
    header = file[: file.index(b"\xff\xc4")] + b"\xff\xc4" + (2 + len(tables)).to_bytes(2, "big") + tables
    return header + file[scan : begin_of_data(file)] + data + b"\xff\xd9"


def with_flipped_bit(file: bytes, chance: random.Random) -> bytes:
    """Flip a bit of the coded data, without a new marker."""
    at = chance.randrange(begin_of_data(file), len(file) - 2)
    flipped = file[at] ^ 1 << chance.randrange(8)
    return file if 0xFF in (file[at - 1], file[at], flipped) else with_byte(file, at, flipped)


def _bytes(file: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(file), dtype=torch.uint8)


def is_accepted(file: bytes) -> bool:
    """Return whether the header allows decoding on a GPU."""
    return bool(torch.ops.lensbox_jpeg.headers([_bytes(file)]).any())


def is_well_formed(file: bytes) -> bool:
    """Return whether walks of the codes, whole and in parts, find the file sound."""
    found = {bool(torch.ops.lensbox_jpeg.is_well_formed(_bytes(file), parts)) for parts in (1, 3, 40, 300)}
    assert len(found) == 1  # a walk in parts finds what a walk from the begin does
    return found.pop()


_WIDE = encode(48, 32, subsampling="4:2:2")
TALL = with_byte(_WIDE, _WIDE.index(b"\xff\xc0") + 11, 0x12)  # the same blocks as 4:4:0
SMALL = list(sound_files([(1, 1), (8, 8), (17, 33), (101, 67)]))
LARGE = list(sound_files([(300, 200)], noise=40))
BASELINE = encode(101, 67)
RESTARTED = encode(101, 67, restart_marker_blocks=2)
LONG_CODES = _with_long_codes()
