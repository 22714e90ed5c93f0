"""Limits on the cost of decoding an image by Pillow. test_core.py has those of JPEG and PNG files."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded, wide_files

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.common.pictures import LONGEST_SIDE
from lensbox.ops import letterbox
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.files import DEFAULT_READING, read_photo
from lensbox.runtime.images.limits import NO_LIMITS, ImageLimits

RGB = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)


def decode(file: bytes, limits: ImageLimits) -> torch.Tensor:
    return decode_photo(file, None, DEFAULT_READING, limits).pixels


@pytest.mark.parametrize("file_format", ["WEBP", "GIF", "BMP"])
def test_decoding_stops_at_the_deadline(file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = encoded(PIL.Image.fromarray(RGB), file_format)
    clock = Mock(side_effect=itertools.count(1))  # a second passes at each call
    monkeypatch.setattr("lensbox.runtime.images.limits.time", SimpleNamespace(monotonic=clock))
    decode(file, ImageLimits(deadline=1e9))
    calls = clock.call_count
    assert calls >= 2
    for seconds in range(calls):
        clock.configure_mock(call_count=0, side_effect=itertools.count(1))
        with pytest.raises(TimeoutError, match="the image was not decoded in time"):
            decode(file, ImageLimits(deadline=seconds))
        assert clock.call_count == seconds + 1, "decoding went on after the deadline"


def test_limits_the_number_of_pieces() -> None:
    file = encoded(PIL.Image.fromarray(RGB).quantize(8), "GIF")
    begin = file.index(b",", 13 + 3 * 8)
    few, many = (file[:begin] + b"!\xfe" + b"\x01c" * n + b"\0" + file[begin:] for n in (49_000, 51_000))
    assert decode(few, NO_LIMITS).shape == (3, 4, 5)
    with pytest.raises(InputError, match="it must be readable in at most 100000 pieces"):
        decode(many, NO_LIMITS)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF"])
def test_limits_the_longest_side(kind: str, tmp_path: Path) -> None:
    files = {width: wide_files(width)[kind] for width in (LONGEST_SIDE, 17_000_000)}
    path = tmp_path / "wide"
    path.write_bytes(files[17_000_000])
    rule = "must be an image that can be decoded: the image must have sides of at most 16777216 pixels"
    for canvas in (None, Canvas(32, 32)):
        with pytest.raises(InputError, match=f"{path} {rule}, got 17000000 x 1$"):
            read_photo(path, canvas)
    photo = read_photo(files[LONGEST_SIDE])
    assert photo.width == LONGEST_SIDE
    assert letterbox([photo.pixels], 32, 32).geometry[0, 4] == LONGEST_SIDE  # the op's limit is the same
