"""Python and C++ make the same canvases of image files, to the bit, and refuse the same ones."""

import itertools
import os
import random
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from damaged_files import mutated
from photo_pixels import compared, cpp_photos
from picture_files import (
    broken_exif,
    chunk,
    encoded,
    exif,
    flat_jpeg,
    jpeg_segment,
    jpeg_with_exif,
    noise,
    odd_exif,
    png_file,
    png_header,
    png_with_exif,
)
from programs import built_runner

from lensbox.common.pictures import LONGEST_SIDE
from lensbox.ops import library_path
from lensbox.runtime import Canvas, Reading

# Pillow warns about some of the palettes.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency")

GRAY = Canvas(height=32, width=48, channels=1, fill=7)
COLOR = Canvas(height=32, width=48, channels=3, fill=7)
# For these canvases, 1, 1/2, 1/4 and 1/8, odd and even, one wide and one tall.
SIZES = ((128, 64), (95, 70), (320, 224), (191, 190), (400, 431), (1153, 65), (50, 1500), (768, 576))

_GRAY, _RGB, _PALETTE, _GRAY_ALPHA, _RGBA = 0, 2, 3, 4, 6  # color types of PNG
_CHANNELS = {_GRAY: 1, _RGB: 3, _PALETTE: 1, _GRAY_ALPHA: 2, _RGBA: 4}
_BIT_DEPTHS = {
    _GRAY: (1, 2, 4, 8, 16),
    _RGB: (8, 16),
    _PALETTE: (1, 2, 4, 8),
    _GRAY_ALPHA: (8, 16),
    _RGBA: (8, 16),
}
# First row and column of each pass of an interlaced PNG, and the steps from there.
_PASSES = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def _png(color_type: int, bits: int, interlaced: bool, between: bytes) -> bytes:
    """Return a file of random pixels. between: the chunks between header and data."""
    width, height, chance = 21, 19, random.Random(8)
    rows = b""
    for top, left, down, right in _PASSES if interlaced else [(0, 0, 1, 1)]:
        size = -(-len(range(left, width, right)) * _CHANNELS[color_type] * bits // 8)
        rows += b"".join(b"\0" + chance.randbytes(size) for _ in range(top, height, down))
    return png_file(width, height, color_type, rows, between, bits=bits, interlaced=interlaced)


def pngs() -> Iterator[tuple[str, bytes]]:
    """Yield names and files: every color type, bit depth and interlacing, also with transparent colors."""
    for color_type, depths in _BIT_DEPTHS.items():
        for bits in depths:
            palette = (
                chunk(b"PLTE", random.Random(9).randbytes(3 * 2**bits)) if color_type == _PALETTE else b""
            )
            variants = {"": palette}
            if color_type in (_PALETTE, _GRAY, _RGB):
                size = 2**bits if color_type == _PALETTE else 2 * _CHANNELS[color_type]
                variants["-transparent"] = palette + chunk(b"tRNS", bytes(size))
            for suffix, chunks in variants.items():
                for interlaced in (False, True):
                    name = f"type{color_type}-{bits}bit{suffix}{'-interlaced' if interlaced else ''}"
                    yield name, _png(color_type, bits, interlaced, chunks)
    for mode in ("L", "RGB", "RGBA", "LA", "P", "1", "I;16"):
        yield f"pillow-{mode.replace(';', '')}", encoded(noise(mode), "PNG")


def jpegs() -> Iterator[tuple[str, bytes]]:
    """Yield names and files of every kind that Pillow writes, and some more."""
    # From 4:4:4 to 4:2:0 by Pillow. The last two have as many blocks as those that Pillow writes, so a file
    # whose header is changed to them is as good, if no picture that one would recognise.
    samplings = {"444": (0, 0x11), "422": (1, 0x21), "420": (2, 0x22), "440": (1, 0x12), "411": (2, 0x41)}
    for progressive in (False, True):
        kind = "progressive" if progressive else "baseline"
        for width, height in SIZES:
            options = {"progressive": progressive, "quality": 80}
            for name, (subsampling, luma) in samplings.items():
                if luma in (0x12, 0x41) and (width % 32 or height % 32):
                    continue
                file = encoded(noise("RGB", width, height), "JPEG", subsampling=subsampling, **options)
                yield f"{kind}-{name}-{width}x{height}", with_luma_sampling(file, luma)
            yield f"{kind}-gray-{width}x{height}", encoded(noise("L", width, height), "JPEG", **options)
            cmyk = encoded(noise("CMYK", width, height), "JPEG", **options)
            yield f"{kind}-cmyk-{width}x{height}", cmyk
        picture = noise("RGB", *SIZES[-1])
        restarts = encoded(picture, "JPEG", progressive=progressive, restart_marker_blocks=3)
        yield f"{kind}-restarts", restarts
        yield f"{kind}-rgb", encoded(picture, "JPEG", progressive=progressive, keep_rgb=True)
        adobe = cmyk.index(b"Adobe")
        yield f"{kind}-ycck", cmyk[: adobe + 11] + b"\2" + cmyk[adobe + 12 :]
        yield f"{kind}-cmyk-without-adobe", cmyk[: adobe - 4] + cmyk[adobe + 12 :]


def with_luma_sampling(jpeg: bytes, factors: int) -> bytes:
    """Return the file with other sampling factors (0x21: two across, one down) of its first component."""
    at = max(jpeg.find(marker) for marker in (b"\xff\xc0\0\x11", b"\xff\xc2\0\x11")) + 11
    return jpeg[:at] + bytes([factors]) + jpeg[at + 1 :]


def oriented(files: dict[str, bytes]) -> dict[str, bytes]:
    """Each file with each orientation in turn."""
    orientations = itertools.cycle(range(1, 9))
    return {
        f"{name}, orientation {number}": png_with_exif(file, exif(number, "<>"[number % 2]))
        if file.startswith(b"\x89PNG")
        else jpeg_with_exif(file, exif(number, "<>"[number % 2]))
        for number, (name, file) in zip(orientations, files.items(), strict=False)
    }


@pytest.mark.parametrize(
    ("canvas", "reading"),
    [
        (GRAY, Reading()),
        (Canvas(33, 47, 3, fit="ultralytics", filter="opencv_linear"), Reading("stored")),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                (COLOR, Reading("stored")),
                (COLOR, Reading(jpeg_oversampling=0)),
                (Canvas(33, 47, 3, fit="ultralytics", filter="opencv_linear"), Reading()),
                (COLOR, Reading()),
                (GRAY, Reading(jpeg_oversampling=1)),
                (Canvas(32, 48, 3, fit="stretch"), Reading()),
                (Canvas(32, 48, 1, fit="crop"), Reading()),
                (Canvas(33, 47, 1, fit="ultralytics_shrink", filter="opencv_linear"), Reading()),
            )
        ),
    ],
)
def test_jpeg_of_every_kind_and_size(canvas: Canvas, reading: Reading, tmp_path: Path) -> None:
    corpus = dict(jpegs())
    assert len(corpus) > 80
    assert compared(oriented(corpus), tmp_path / "1", canvas, reading) == {}


@pytest.mark.parametrize("canvas", [GRAY, COLOR])
def test_png_of_every_kind(canvas: Canvas, tmp_path: Path) -> None:
    assert compared(oriented(dict(pngs())), tmp_path / "1", canvas) == {}


def test_broken_and_unusual_exif_data(tmp_path: Path) -> None:
    picture = noise("RGB", 301, 123)
    jpeg, png = encoded(picture, "JPEG"), encoded(picture, "PNG")
    files = {}
    for name, data in {**broken_exif(), **odd_exif()}.items():
        files[f"JPEG {name}"] = jpeg_with_exif(jpeg, data)
        files[f"PNG {name}"] = png_with_exif(png, data)
        files[f"JPEG {name}, then a good one"] = jpeg_with_exif(jpeg_with_exif(jpeg, exif(8)), data)
        files[f"PNG {name}, then a good one"] = png_with_exif(png_with_exif(png, exif(8)), data)
        files[f"JPEG {name}, under another header"] = jpeg_with_exif(jpeg, data, header=b"Exif\0\1")
    for data in (b"", b"E", b"Exif\0", b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"):
        files[f"JPEG {data!r}"] = jpeg[:2] + jpeg_segment(0xE1, data) + jpeg_with_exif(jpeg, exif(6))[2:]
    assert compared(files, tmp_path / "1", GRAY) == {}


def test_both_refuse_truncated_files(tmp_path: Path) -> None:
    picture = noise("RGB", 320, 224)
    jpegs = [encoded(picture, **options) for options in ({}, {"progressive": True}, {"subsampling": 0})]
    whole = [*(jpeg_with_exif(jpeg, exif(6)) for jpeg in jpegs), encoded(noise("CMYK", 320, 224))]
    whole.append(png_with_exif(encoded(noise("RGB", 32, 20), "PNG"), exif(6)))
    files = {
        f"{number} of {length} bytes": file[:length]
        for number, file in enumerate(whole)
        for length in range(1, len(file), max(1, len(file) // 60))
    }
    assert len(compared(files, tmp_path / "1", COLOR)) == len(files)


def test_cpp_survives_random_damage(tmp_path: Path) -> None:
    """Each file is read or refused; whether Pillow reads it too depends on the kind of damage."""
    chance = random.Random(46)
    sound = [file for _, file in itertools.chain(jpegs(), pngs())]
    files = {str(number): mutated(chance.choice(sound), chance) for number in range(400)}
    outcomes = cpp_photos(files, tmp_path, GRAY).values()
    assert {isinstance(outcome, str) for outcome in outcomes} == {True, False}


# --- the limits of the C++ library, and its messages ---


def test_messages_about_files_that_cpp_refuses(tmp_path: Path) -> None:
    two = jpeg_segment(0xC0, b"\x08\0\x08\0\x08\2\1\x11\0\2\x11\0")
    two += jpeg_segment(0xDA, b"\2\1\0\2\0\0\x3f\0")
    messages = {
        "the file is empty": b"",
        "neither a JPEG nor a PNG": b"not an image",
        "truncated": encoded(noise("RGB"))[:-100],
        "components, got 2": b"\xff\xd8" + two,
        "at most 67108864 pixels, got 8193 x 8192": png_header(8193, 8192),
        f"sides of at most {LONGEST_SIDE} pixels, got 17000000 x 1": png_header(17_000_000, 1),
        f"sides of at most {LONGEST_SIDE} pixels, got 1 x 17000000": png_header(1, 17_000_000),
        "got 2147483647 x 2147483647": png_header(2**31 - 1, 2**31 - 1),
        "pixels, got 8193 x 8192": flat_jpeg(8193, 8192, 1),
        "too many scans: at most 21 are accepted for 7000 x 7000 pixels": flat_jpeg(7000, 7000, 22),
    }
    for canvas in (None, GRAY):  # a reduced size lifts no limit
        for message, outcome in cpp_photos(messages, tmp_path, canvas).items():
            assert isinstance(outcome, str)
            assert message in outcome


def test_reads_as_many_scans_as_the_size_allows(tmp_path: Path) -> None:
    files = {str(size): flat_jpeg(*size) for size in ((65500, 1, 2049), (3000, 2000, 100), (8, 8, 5000))}
    assert compared(files, tmp_path / "1", GRAY) == {}


def test_passes_over_chunks_and_segments_without_pixels(tmp_path: Path) -> None:
    jpeg, png = encoded(noise("RGB")), encoded(noise("RGB"), "PNG")
    inflates = zlib.compress(bytes(2**26))
    large = chunk(b"zTXt", b"Comment\0\0" + inflates) + chunk(b"iCCP", b"name\0\0" + inflates)
    large += chunk(b"gAMA", bytes(3)) + chunk(b"vpAg", bytes(10_000_000))
    segments = jpeg_segment(0xFE, bytes(65_533)) + jpeg_segment(0xEB, bytes(65_533))
    files = {"PNG": png[:33] + large + png[33:], "JPEG": jpeg[:2] + segments * 50 + jpeg[2:]}
    assert compared(files, tmp_path / "1", COLOR) == {}


def test_memory_is_bounded_by_the_size_in_the_header(random_path: Path, tmp_path: Path) -> None:
    def peak(pixels: int) -> int:
        """Return the bytes resident at most, with an image of 1 x 1 whose data inflate to as many pixels."""
        path = tmp_path / f"{pixels}.png"
        path.write_bytes(png_file(1, 1, _GRAY, bytes(1 + pixels)))
        words = ("--artifact", random_path, "--ops", library_path(), "--image", path)
        process = subprocess.Popen(
            [built_runner(), "detect", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == (0 if pixels == 1 else 4)
        return usage.ru_maxrss * 1024

    assert peak(2**28) < peak(1) + 2**26
