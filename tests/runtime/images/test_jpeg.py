"""JPEG files: segments, limits of cost, and scales."""

import io
import math
import random
import struct
from typing import get_args

import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded, flat_jpeg, jpeg_segment, noise

from lensbox.common.canvas import Fit
from lensbox.common.errors import InputError
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime import Canvas, read_image
from lensbox.runtime.images.jpeg import check_jpeg, jpeg_reduction, without_metadata


def _with_segments(file: bytes, segments: bytes) -> bytes:
    return file[:2] + segments + file[2:]


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_removes_metadata_without_changing_pixels(mode: str, progressive: bool) -> None:
    plain = encoded(noise(mode, 40, 24), progressive=progressive)
    exif = PIL.Image.Exif()
    exif[0x010E] = "a description"
    full = encoded(
        noise(mode, 40, 24),
        progressive=progressive,
        exif=exif,
        icc_profile=b"p" * 70_000,
        comment=b"a comment",
    )
    stripped, data = without_metadata(full)
    assert b"description" in data
    assert b"description" not in stripped
    assert b"comment" not in stripped
    assert b"ICC_PROFILE" not in stripped
    with PIL.Image.open(io.BytesIO(full)) as image:
        assert np.array_equal(np.asarray(image), np.asarray(PIL.Image.open(io.BytesIO(stripped))))
    assert read_image(full).equal(read_image(plain))


def test_keeps_segments_behind_the_first_scan() -> None:
    file = encoded(noise("RGB", 40, 24), progressive=True)
    begin = file.index(b"\xff\xda", file.index(b"\xff\xda") + 1)
    file = file[:begin] + jpeg_segment(0xFE, b"between scans") + file[begin:]
    for kept in (file, encoded(noise("RGB")), b"\xff\xd8\xff"):
        assert without_metadata(kept)[0] is kept


@pytest.mark.parametrize(
    ("width", "height", "allowed"),
    [(8192, 8192, 20), (7000, 7000, 21), (4000, 3000, 89), (1920, 1080, 517), (65_500, 1, 2049)],
)
def test_limits_the_scans_by_the_size_of_the_image(width: int, height: int, allowed: int) -> None:
    check_jpeg(flat_jpeg(8, 8, allowed), width, height)
    rule = f"at most {allowed} are accepted for {width} x {height} pixels, got {allowed + 1} or more"
    with pytest.raises(InputError, match=rule):
        check_jpeg(flat_jpeg(8, 8, allowed + 1), width, height)


def test_counts_only_the_scans_of_the_image() -> None:
    assert read_image(flat_jpeg(40, 24, 300)).shape == (1, 24, 40)
    thumbnail = flat_jpeg(8, 8, 50)
    file = _with_segments(flat_jpeg(8, 8, 20), jpeg_segment(0xE1, thumbnail)) + thumbnail
    check_jpeg(file, 8192, 8192)


_HIDDEN = flat_jpeg(8, 8, 50)
_SECOND_SCAN = _HIDDEN.index(b"\xff\xda", _HIDDEN.index(b"\xff\xda") + 1)


@pytest.mark.parametrize(
    "file",
    [
        # libjpeg goes on to the next marker, whatever the length behind a marker without a length is.
        *(
            _HIDDEN[:_SECOND_SCAN] + bytes((0xFF, marker, 0x40, 0x00)) + _HIDDEN[_SECOND_SCAN:]
            for marker in (0x01, 0x02, 0xBF, 0xD0, 0xFF)
        ),
        # A length must be at least 2.
        *(_with_segments(_HIDDEN, struct.pack(">BBH", 0xFF, 0xFE, length)) for length in (0, 1)),
    ],
)
def test_finds_scans_behind_odd_markers(file: bytes) -> None:
    with pytest.raises(InputError, match="too many scans"):
        check_jpeg(file, 8192, 8192)


def _stated(width: int, height: int, canvas: Canvas, oversampling: int) -> int:
    """Return the scale by the words of docs/artifact.md, for the size that `fit` computes."""
    image = torch.zeros(1, height, width, dtype=torch.uint8)
    scales = fit_to_canvases([image], None, *canvas.as_tuple)[1][0, :2].tolist()
    sides = [(side, round(scale * side)) for side, scale in zip((width, height), scales, strict=True)]
    enough = [
        r for r in (2, 4, 8) if all(math.ceil(side / r) >= oversampling * least for side, least in sides)
    ]
    return max(enough, default=1) if oversampling else 1


def test_the_scale_of_random_sizes() -> None:
    chance = random.Random(11)
    seen = set()
    for _ in range(1000):
        width, height = (round(2 ** chance.uniform(0, 10)) for _ in range(2))
        canvas_width, canvas_height = (chance.choice((1, 15, 16, 31, 40)) for _ in range(2))
        oversampling = chance.choice((0, 1, 2, 2, 2, 3))
        canvas = Canvas(canvas_height, canvas_width, fit=chance.choice(get_args(Fit)))
        case = width, height, canvas, oversampling
        reduction = jpeg_reduction(*case)
        assert reduction == _stated(*case), case
        seen.add(reduction)
    assert seen == {1, 2, 4, 8}
