"""JPEG and PNG files: limits, EXIF data, scales, memory, and Pillow as the judge of pixels.

test_decoder.py has files made to be read differently.
"""

import gc
import io
import itertools
import math
import random
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import PIL.Image
import pytest
import torch
from damaged_files import mutated, with_bit_flipped
from photo_pixels import assert_like_pillow
from picture_files import (
    EXIF_HEADER,
    ORIENTATION,
    SHORT,
    broken_exif,
    chunk,
    encoded,
    entry,
    exif,
    flat_jpeg,
    jpeg_segment,
    jpeg_with_exif,
    noise,
    odd_exif,
    png_file,
    png_with_exif,
    tiff,
)

import lensbox.ops
from lensbox.common.canvas import Canvas, Fit
from lensbox.common.errors import InputError
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime import Reading, read_image, read_photo
from lensbox.runtime.images import core
from lensbox.runtime.images.core import exif_orientation
from lensbox.runtime.images.decoder import decode_photo, read_header
from lensbox.runtime.images.files import DEFAULT_READING
from lensbox.runtime.images.limits import MAX_PIECES, ImageLimits, TooManyPixelsError

JPEG, PNG = encoded(noise("RGB", 101, 67)), encoded(noise("RGB", 101, 67), "PNG")
PROGRESSIVE = encoded(noise("RGB", 101, 67), progressive=True)


# --- pixels ---


@pytest.mark.parametrize("canvas", [Canvas(32, 32, 1), Canvas(32, 32, 3), None])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_pixels_are_pillow_s(canvas: Canvas | None, mode: str, progressive: bool) -> None:
    for (width, height), oversampling in itertools.product(((16, 16), (101, 67), (300, 233)), (0, 1, 2)):
        reading = Reading(jpeg_oversampling=oversampling)
        plain = encoded(noise(mode, width, height), progressive=progressive)
        for orientation in (1, 6):
            file = jpeg_with_exif(plain, exif(orientation))
            assert_like_pillow(file, read_photo(file, canvas, reading), reading)


def test_reads_the_first_picture_of_an_mpo_file() -> None:
    first, second = noise("RGB", 40, 24), noise("L", 40, 24).convert("RGB")
    file = encoded(first, "MPO", save_all=True, append_images=[second])
    assert_like_pillow(file, read_photo(file), DEFAULT_READING)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # of Pillow, about damage
@pytest.mark.parametrize("seed", range(7))
def test_damaged_files_are_refused_or_read_as_pillow_reads_them(seed: int) -> None:
    """The image reader is stricter than Pillow, and never reads other pixels."""
    chance, read = random.Random(seed), 0
    sound = [JPEG, PROGRESSIVE, encoded(noise("CMYK", 40, 24)), PNG, encoded(noise("LA", 40, 24), "PNG")]
    for _ in range(500):
        file = mutated(chance.choice(sound), chance)
        try:
            photo = read_photo(file, None, Reading("stored"))
        except InputError:
            continue
        read += 1
        try:
            with PIL.Image.open(io.BytesIO(file)) as image:
                image.load()
        except (OSError, SyntaxError, ValueError):
            continue  # Pillow refuses more headers
        assert_like_pillow(file, photo, Reading("stored"))
    assert read > 20


# --- EXIF data ---

_SCAN, _JPEG_END, _PNG_END = JPEG.index(b"\xff\xda"), len(JPEG) - 2, len(PNG) - 12
_APP1 = jpeg_with_exif(b"\xff\xd8", exif(6))[2:]
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


@pytest.mark.parametrize(
    ("file", "orientation"),
    [
        # The first EXIF segment counts, wherever it lies before the pixels.
        (jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), exif(6)), 6),
        (jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), b"<x/>", header=_XMP), 3),
        (jpeg_with_exif(jpeg_with_exif(JPEG, exif(3)), b"nothing"), 1),
        (JPEG[:_SCAN] + _APP1 + JPEG[_SCAN:], 6),
        (JPEG[:_JPEG_END] + _APP1 + JPEG[_JPEG_END:], 1),
        *(
            (jpeg_with_exif(JPEG, exif(6), header), 1)
            for header in (b"", b"Exif", b"Exif\0", b"Exif\0x", b"exif\0\0", b"EXIF\0\0")
        ),
        # The segment ends within the header; the bytes behind the segment would complete it.
        (JPEG[:2] + b"\xff\xe1\0\6Exif" + b"\0\0" + exif(6) + JPEG[2:], 1),
        (PNG[:_PNG_END] + chunk(b"eXIf", exif(6)) + PNG[_PNG_END:], 1),
        (png_with_exif(png_with_exif(PNG, exif(3)), exif(6)), 6),
        (png_with_exif(PNG, EXIF_HEADER + exif(6)), 1),
    ],
)
def test_finds_the_exif_data(file: bytes, orientation: int) -> None:
    assert read_header(file, DEFAULT_READING) == (*((67, 101) if orientation > 4 else (101, 67)), orientation)
    assert read_header(file, Reading("stored")) == (101, 67, orientation)
    photo = read_photo(file)
    assert (photo.width, photo.height) == ((67, 101) if orientation > 4 else (101, 67))


def test_reads_odd_exif_and_ignores_broken_exif() -> None:
    assert {name for name, data in broken_exif().items() if exif_orientation(data) != 1} == set()
    assert {name for name, data in odd_exif().items() if exif_orientation(data) != 6} == set()


def test_exif_data_with_any_damage_raise_nothing() -> None:
    data = tiff("<", entry("<", ORIENTATION, SHORT, 1, 6))
    for length in range(len(data)):
        assert exif_orientation(data[:length]) == (6 if length >= 22 else 1)
    for position in range(len(data)):
        for bit in range(8):
            assert 1 <= exif_orientation(with_bit_flipped(data, position, bit)) <= 8


# --- limits ---


@pytest.mark.parametrize("file", [JPEG, PROGRESSIVE, PNG], ids=["baseline", "progressive", "PNG"])
def test_stops_at_the_deadline(file: bytes) -> None:
    now = time.monotonic()
    for deadline in (-math.inf, 0.0, now - 1):
        with pytest.raises(TimeoutError, match="the image was not decoded in time"):
            decode_photo(file, None, DEFAULT_READING, ImageLimits(deadline=deadline))
    assert decode_photo(file, None, DEFAULT_READING, ImageLimits(deadline=now + 3600)).width == 101


@pytest.mark.parametrize("file", [flat_jpeg(7000, 7000, 20), png_file(8000, 8000, 0, bytes(8000 * 8001))])
def test_stops_slow_files_while_they_are_decoded(file: bytes) -> None:
    """Each takes a third of a second or more."""
    with pytest.raises(TimeoutError):
        decode_photo(file, None, DEFAULT_READING, ImageLimits(deadline=time.monotonic() + 0.01))


def test_limits_the_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ImageLimits(max_pixels=101 * 67 - 1)
    for file, canvas in itertools.product((JPEG, PNG), (None, Canvas(8, 8))):
        with pytest.raises(TooManyPixelsError, match="the image must have at most 6766 pixels, got 101 x 67"):
            decode_photo(file, canvas, DEFAULT_READING, limits)
        assert decode_photo(file, canvas, DEFAULT_READING, ImageLimits(max_pixels=101 * 67)).width == 101
    # Pillow's limit, which programs set, counts too.
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 101 * 67 // 2)
    for file in (JPEG, PNG):
        with pytest.raises(InputError, match="at most 6766 pixels"):
            read_image(file)


@pytest.mark.parametrize(
    ("file", "size"),
    [(png_file(5, 3, 2, bytes(3 * 16)), 3), (png_file(5, 3, 6, bytes(3 * 41), bits=16), 8)],
)
def test_limits_the_bytes_of_png_pixels(file: bytes, size: int) -> None:
    assert decode_photo(file, None, DEFAULT_READING, ImageLimits(max_png_bytes=15 * size)).width == 5
    rule = f"at most {15 * size - 1} bytes of pixels, got 5 x 3 of {size} bytes = {15 * size}"
    with pytest.raises(TooManyPixelsError, match=rule):
        decode_photo(file, None, DEFAULT_READING, ImageLimits(max_png_bytes=15 * size - 1))


@pytest.mark.parametrize(
    ("begin", "piece", "end", "name"),
    [
        (JPEG[:2], b"\xff\xe5\0\2", JPEG[2:], "JPEG file must have at most 100000 segments"),
        (PNG[:33], chunk(b"abCd"), PNG[33:], "PNG file must have at most 100000 chunks"),
        (PNG[:-12], chunk(b"abCd"), PNG[-12:], "PNG file must have at most 100000 chunks"),
    ],
    ids=["JPEG", "PNG", "behind the pixels"],
)
def test_limits_the_number_of_pieces(begin: bytes, piece: bytes, end: bytes, name: str) -> None:
    assert read_image(begin + piece * (MAX_PIECES - 100) + end).shape == (3, 67, 101)
    with pytest.raises(InputError, match=name):
        read_image(begin + piece * MAX_PIECES + end)


@pytest.mark.parametrize(("width", "height", "allowed"), [(65_500, 1, 2049), (3000, 3000, 119)])
def test_limits_the_scans_by_the_size_of_the_image(width: int, height: int, allowed: int) -> None:
    rule = f"at most {allowed} are accepted for {width} x {height} pixels, got {allowed + 1} or more"
    with pytest.raises(InputError, match=rule):
        read_image(flat_jpeg(width, height, allowed + 1))
    assert read_image(flat_jpeg(width, height, allowed)).shape == (1, height, width)
    assert read_image(flat_jpeg(8, 8, 5000)).shape == (1, 8, 8)


def test_ignores_scans_of_thumbnails_and_finds_those_behind_odd_markers() -> None:
    many = flat_jpeg(2000, 2000, 400)  # 268 are accepted
    thumbnail = flat_jpeg(8, 8, 50)
    few = flat_jpeg(2000, 2000, 4)
    assert read_image(few[:2] + jpeg_segment(0xE1, thumbnail) + few[2:] + many).shape == (1, 2000, 2000)
    second = many.index(b"\xff\xda", many.index(b"\xff\xda") + 1)
    for odd in (b"\xff\x01", b"\xff\xd0", b"\xff\xff"):
        with pytest.raises(InputError):
            read_image(many[:second] + odd + b"\x40\0" + many[second:])


# --- scales ---


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
        photo = read_photo(flat_jpeg(width, height, 2), canvas, Reading(jpeg_oversampling=oversampling))
        _, _, reached, _ = photo.window
        reduction = reached // photo.pixels.shape[2]
        assert reduction == _stated(*case), case
        seen.add(reduction)
    assert seen == {1, 2, 4, 8}


# --- memory, threads, the library ---


def test_pixels_live_as_long_as_any_view_and_no_longer() -> None:
    file = encoded(PIL.Image.new("RGB", (1000, 1000), "red"))
    view = read_image(file)[0, 5:7].numpy()[1]
    for _ in range(5):
        read_image(file)
    gc.collect()
    assert view.min() == view.max() == 254
    view[:] = 1  # the memory is writable
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):  # of 3 MB
        read_image(file)
        with pytest.raises(InputError):
            read_image(file[:-100])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB


def test_threads_read_at_once() -> None:
    files = [encoded(noise("RGB", 100 + index, 80), ("JPEG", "PNG")[index % 2]) for index in range(40)]
    expected = [read_image(file) for file in files]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            assert all(
                one.equal(other) for one, other in zip(pool.map(read_image, files), expected, strict=True)
            )


def test_names_a_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LENSBOX_IMAGES_LIBRARY", str(tmp_path / "nothing.so"))
    with pytest.raises(core.ImageLibraryError, match=r"nothing\.so.* set LENSBOX_IMAGES_LIBRARY to the file"):
        core.library_path()


def test_refuses_a_library_with_another_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_INTERFACE", 0)
    with pytest.raises(
        core.ImageLibraryError, match=r"images\.so is not .* \(interface 1, not 0\)\. Build it"
    ):
        core._library.__wrapped__(True)
    monkeypatch.setenv("LENSBOX_IMAGES_LIBRARY", str(lensbox.ops.library_path()))  # no image reader
    with pytest.raises(core.ImageLibraryError, match=r"ops\.so is not .* \(interface None, not 0\)"):
        core._library.__wrapped__(True)
