"""The C++ library reads photographs for a canvas: upright, reduced, in gray or in color.

Compared with Pillow by itself, which decodes with libjpeg-turbo too. `tests/runtimes` compares with Python.
"""

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.ImageOps
import pytest
from cpp_runtime.image_files import encoded, flat_jpeg, jpeg_segment, jpegs, noise, pngs
from cpp_runtime.photo_pixels import CanvasSize, PhotoPixels, cpp_photos

# Pillow says so of some of the palettes.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency")

ORIENTATION = 0x0112
GRAY = CanvasSize(48, 32, 1)
COLOR = CanvasSize(48, 32, 3)
# For these canvases, 1, 1/2, 1/4 and 1/8, odd and even, one wide and one tall.
SIZES = (
    (128, 64),
    (95, 70),
    (320, 224),
    (191, 190),
    (400, 431),
    (1000, 700),
    (1153, 65),
    (50, 1500),
    (768, 576),
)

Read = Callable[..., list[PhotoPixels | str]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_in_new_folder(
        files: Sequence[bytes], *arguments: Any, **options: Any
    ) -> list[PhotoPixels | str]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return cpp_photos(files, folder, *arguments, **options)

    return read_in_new_folder


def read_well(outcome: PhotoPixels | str) -> PhotoPixels:
    assert isinstance(outcome, PhotoPixels), outcome
    return outcome


def reduction(size: tuple[int, int], canvas: CanvasSize, oversampling: int = 2) -> int:
    """The rule, in exact numbers. size: of the upright photograph."""
    scale = min(Fraction(canvas.width, size[0]), Fraction(canvas.height, size[1]))
    needed = [max(1, floor(side * scale + Fraction(1, 2))) for side in size]
    fitting = [
        divisor
        for divisor in (1, 2, 4, 8)
        if all(
            ceil(Fraction(side, divisor)) >= oversampling * need
            for side, need in zip(size, needed, strict=True)
        )
    ]
    return max(fitting, default=1)


def pillow_pixels(file: bytes, divisor: int, gray: bool) -> npt.NDArray[np.uint8]:
    """[h, w, C], upright."""
    with PIL.Image.open(io.BytesIO(file)) as image:
        if image.format == "JPEG":
            mode = "L" if gray and image.mode != "CMYK" else image.mode
            image.draft(mode, (max(1, image.width // divisor), max(1, image.height // divisor)))
        upright = PIL.ImageOps.exif_transpose(image)
        pixels = np.asarray(upright if upright.mode in ("L", "RGBA") else upright.convert("RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)


def with_orientation(image: PIL.Image.Image, orientation: int, file_format: str = "JPEG") -> bytes:
    exif = PIL.Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded(image, file_format, exif=exif)


@pytest.mark.parametrize("canvas", [GRAY, COLOR])
def test_jpeg_at_every_scale(canvas: CanvasSize, read: Read) -> None:
    corpus = dict(jpegs(SIZES))
    seen = set()
    for (name, file), outcome in zip(corpus.items(), read(list(corpus.values()), canvas), strict=True):
        photo = read_well(outcome)
        divisor = reduction(photo.size, canvas)
        seen.add(divisor)
        expected = pillow_pixels(file, divisor, canvas.channels == 1)
        np.testing.assert_array_equal(photo.pixels, expected, err_msg=name)
        height, width = expected.shape[:2]
        assert photo.window == (0, 0, width * divisor, height * divisor), name
        assert (ceil(photo.size[0] / divisor), ceil(photo.size[1] / divisor)) == (width, height), name
    assert seen == {1, 2, 4, 8}


def test_the_scale_changes_where_twice_the_canvas_fits_no_more(read: Read) -> None:
    for oversampling in (1, 2, 3):
        # ceil(side / r) is enough from r * need - (r - 1) on.
        edges = [divisor * oversampling * need for divisor in (2, 4, 8) for need in (48, 32)]
        sides = sorted({edge - step for edge in edges for step in (0, 1, 2, 3, 4, 7, 8, 9)})
        files = [flat_jpeg(side, side, 1) for side in sides]
        for side, outcome in zip(sides, read(files, GRAY, oversampling), strict=True):
            divisor = reduction((side, side), GRAY, oversampling)
            assert read_well(outcome).pixels.shape == (ceil(side / divisor), ceil(side / divisor), 1), side


def test_in_full_without_a_canvas_or_oversampling(read: Read) -> None:
    color, gray = encoded(noise("RGB", 500, 400), "JPEG"), encoded(noise("L", 500, 400), "JPEG")
    for canvas, oversampling in ((None, 2), (COLOR, 0)):
        shapes = [read_well(photo).pixels.shape for photo in read([color, gray], canvas, oversampling)]
        assert shapes == [(400, 500, 3), (400, 500, 1)]
    assert read_well(read([color], GRAY, 0)[0]).pixels.shape == (400, 500, 1)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_the_eight_orientations(file_format: str, mode: str, read: Read) -> None:
    for size in ((40, 31), (333, 250), (250, 401)):
        files = [with_orientation(noise(mode, *size), number, file_format) for number in range(1, 9)]
        for number, outcome in enumerate(read(files, GRAY), start=1):
            photo = read_well(outcome)
            assert photo.size == (size if number < 5 else size[::-1])
            divisor = reduction(photo.size, GRAY) if file_format == "JPEG" else 1
            expected = pillow_pixels(files[number - 1], divisor, gray=True)
            np.testing.assert_array_equal(photo.pixels, expected, err_msg=f"{size} {number}")
            # The pixels begin at the stored picture's upper left corner, wherever that is now, and may reach
            # beyond the opposite one.
            x1, y1, x2, y2 = photo.window
            assert (x2 - x1, y2 - y1) == (expected.shape[1] * divisor, expected.shape[0] * divisor)
            assert (x2 == photo.size[0]) if number in (2, 3, 6, 7) else (x1 == 0)
            assert (y2 == photo.size[1]) if number in (3, 4, 7, 8) else (y1 == 0)
        for outcome in read(files, GRAY, orientation="stored"):
            photo = read_well(outcome)
            assert photo.size == size
            assert photo.window[:2] == (0, 0)
            divisor = reduction(size, GRAY) if file_format == "JPEG" else 1
            assert photo.pixels.shape[:2] == (ceil(size[1] / divisor), ceil(size[0] / divisor))


def test_png_as_it_is(read: Read) -> None:
    corpus = dict(pngs())
    for (name, file), outcome in zip(corpus.items(), read(list(corpus.values()), GRAY), strict=True):
        photo = read_well(outcome)
        with PIL.Image.open(io.BytesIO(file)) as image:
            assert photo.size == image.size
            assert photo.pixels.shape[:2] == image.size[::-1], name
            assert photo.window == (0, 0, *image.size)


def test_only_the_first_exif_segment_before_the_first_scan_counts(read: Read) -> None:
    plain = encoded(noise("L", 20, 10), "JPEG")
    six, three = (with_orientation(noise("L", 20, 10), number) for number in (6, 3))

    def exif_of(file: bytes) -> bytes:
        begin = file.index(b"\xff\xe1")
        return file[begin : begin + 2 + int.from_bytes(file[begin + 2 : begin + 4], "big")]

    broken, other = (
        jpeg_segment(0xE1, b"Exif\0\0MM"),
        jpeg_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>"),
    )
    short = b"\xff\xe1\0\0" + b"\xff\xe1\0\1" + jpeg_segment(0xE1, b"") + jpeg_segment(0xE1, b"Exif\0")
    cases = {
        exif_of(six) + exif_of(three): (10, 20),
        exif_of(three) + exif_of(six): (20, 10),
        broken + exif_of(six): (20, 10),
        other + short + b"\xff\xff" + exif_of(six): (10, 20),
        jpeg_segment(0xE2, exif_of(six)[4:]): (20, 10),
    }
    files = [plain[:2] + segments + plain[2:] for segments in cases]
    assert [read_well(photo).size for photo in read(files, None)] == list(cases.values())
    progressive = encoded(noise("L", 20, 10), "JPEG", progressive=True)
    scans = progressive.rindex(b"\xff\xda")
    late = [progressive[:scans] + exif_of(six) + progressive[scans:], plain[:-2] + exif_of(six) + plain[-2:]]
    assert [read_well(photo).size for photo in read(late, None)] == [(20, 10)] * 2


def test_a_reduced_size_lifts_no_limit(read: Read) -> None:
    files = [
        flat_jpeg(8193, 8192, 1),
        flat_jpeg(7000, 7000, 22),
        encoded(noise("RGB", 640, 480), "JPEG")[:-1000],
        encoded(noise("RGB", 640, 480), "JPEG", progressive=True)[:-1000],
    ]
    large, scans, *truncated = read(files, GRAY)
    assert large == "at most 67108864 pixels are accepted, got 8193 x 8192"
    assert isinstance(scans, str)
    assert "too many scans: at most 21" in scans
    assert truncated == ["the JPEG file is truncated"] * 2
