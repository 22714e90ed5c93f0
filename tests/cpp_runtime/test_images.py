"""The image files that the program reads, their pixels, and the messages about the others."""

import io
import os
import random
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import PIL.Image
import pytest
from cpp_runtime.image_files import (
    GRAY,
    PNG_END,
    damaged,
    encoded,
    flat_jpeg,
    jpeg_segment,
    jpegs,
    noise,
    png_chunk,
    png_header,
    pngs,
)
from cpp_runtime.photo_pixels import cpp_photos
from damaged_files import with_bit_flipped

from lensbox.ops import library_path
from lensbox.runtime.images.files import read_image

# Pillow says so of some of the palettes.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency")

Pixels = npt.NDArray[np.uint8]
# What became of each file: its pixels [H, W, 3 or 4], gray ones in color, or the error.
ReadAll = Callable[[list[bytes]], list[Pixels | str]]


@pytest.fixture
def read_all(tmp_path: Path) -> ReadAll:
    """Return a function that has the C++ library read files at full size in color."""

    def read(files: list[bytes]) -> list[Pixels | str]:
        folder = tmp_path / "files"
        folder.mkdir()
        outcomes = cpp_photos(files, folder, None)
        return [outcome if isinstance(outcome, str) else in_color(outcome.pixels) for outcome in outcomes]

    return read


def in_color(pixels: Pixels) -> Pixels:
    return pixels.repeat(3, axis=2) if pixels.shape[2] == 1 else pixels


def python_pixels(file: bytes) -> Pixels:
    """[H, W, 3]"""
    pixels = read_image(file).permute(1, 2, 0).numpy()
    return pixels.repeat(3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]


def refused(outcomes: list[Pixels | str]) -> list[bool]:
    return [isinstance(outcome, str) for outcome in outcomes]


@pytest.mark.parametrize("files", [pngs, jpegs])
def test_the_same_pixels_as_in_python(
    files: Callable[[], Iterator[tuple[str, bytes]]], read_all: ReadAll
) -> None:
    corpus = dict(files())
    for name, pixels in zip(corpus, read_all(list(corpus.values())), strict=True):
        assert not isinstance(pixels, str), f"{name}: {pixels}"
        np.testing.assert_array_equal(pixels[..., :3], python_pixels(corpus[name]), err_msg=name)


def test_alpha_and_transparent_palettes_are_kept(read_all: ReadAll) -> None:
    corpus = {name: file for name, file in pngs() if name.startswith(("type2", "type3", "type6-8bit"))}
    for name, pixels in zip(corpus, read_all(list(corpus.values())), strict=True):
        with PIL.Image.open(io.BytesIO(corpus[name])) as image:
            keeps = "type6" in name or ("type3" in name and "transparent" in name)
            expected = np.asarray(image.convert("RGBA" if keeps else "RGB"))
            np.testing.assert_array_equal(pixels, expected, err_msg=name)


def test_chunks_and_segments_without_pixels_are_passed_over(read_all: ReadAll) -> None:
    picture = noise("RGB", 30, 20)
    png, jpeg = encoded(picture, "PNG"), encoded(picture, "JPEG")
    inflates = b"Comment\0\0" + zlib.compress(bytes(2**26))
    large = (
        png_chunk(b"zTXt", inflates)
        + png_chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(2**26)))
        + png_chunk(b"gAMA", bytes(3))
        + png_chunk(b"vpAg", bytes(10_000_000))
    )
    segments = jpeg_segment(0xFE, bytes(65_533)) + jpeg_segment(0xEB, bytes(65_533))
    files = [png[:33] + large + png[33:], jpeg[:2] + segments * 50 + jpeg[2:]]
    for pixels, file in zip(read_all(files), (png, jpeg), strict=True):
        assert not isinstance(pixels, str), pixels
        np.testing.assert_array_equal(pixels, python_pixels(file))


@pytest.mark.exhaustive
def test_every_flipped_bit_of_a_png_is_seen(read_all: ReadAll) -> None:
    picture = encoded(noise("RGB", 6, 5).quantize(4), "PNG")
    file = picture.replace(PNG_END, png_chunk(b"tEXt", b"Comment\0made for a test") + PNG_END)
    flipped = [with_bit_flipped(file, bit // 8, bit % 8) for bit in range(8 * len(file))]
    first, *others = refused(read_all([file, *flipped]))
    assert not first
    assert all(others)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG"])
def test_every_truncation_is_seen(file_format: str, read_all: ReadAll) -> None:
    # With a thumbnail in a segment of its own, which ends as a JPEG file does.
    exif = b"Exif\0\0" + encoded(noise("RGB", 8, 8), "JPEG") if file_format == "JPEG" else b""
    file = encoded(noise("RGB", 16, 16), file_format, exif=exif)
    first, *others = refused(read_all([file, *(file[:length] for length in range(1, len(file)))]))
    assert not first
    assert all(others)


def test_a_png_whose_checksums_are_good(read_all: ReadAll) -> None:
    header = png_header(2, 2, color_type=GRAY)
    rows = b"\0\1\2\0\3\4"
    data = zlib.compress(rows)

    def with_data(*chunks: bytes) -> bytes:
        return header + b"".join(png_chunk(b"IDAT", chunk) for chunk in chunks) + PNG_END

    good, *bad = read_all(
        [
            with_data(data[:3], data[3:]),
            with_data(with_bit_flipped(data, -1)),  # the zlib stream's own checksum
            with_data(data[:-4]),
            with_data(zlib.compress(rows[:3])),  # a row too few
            with_data(zlib.compress(rows + rows)),
            with_data(data, data),
            with_data(),
            header + png_chunk(b"IDAT", data),  # no end
            header
            + png_chunk(b"ABCD", b"")
            + png_chunk(b"IDAT", data)
            + PNG_END,  # an unknown critical chunk
        ]
    )
    assert np.asarray(good)[..., 0].tolist() == [[1, 2], [3, 4]]
    assert [outcome[: len("damaged or truncated (")] for outcome in bad] == ["damaged or truncated ("] * len(
        bad
    )


def test_memory_is_bounded_by_the_size_in_the_header(runner: Path, artifact: Path, tmp_path: Path) -> None:
    def peak(pixels: int) -> int:
        """Bytes resident at most, with an image of 1 x 1 whose data inflate to as many pixels."""
        path = tmp_path / f"{pixels}.png"
        data = zlib.compress(bytes(1 + pixels))
        path.write_bytes(png_header(1, 1, color_type=GRAY) + png_chunk(b"IDAT", data) + PNG_END)
        command = (runner, "detect", "--artifact", artifact, "--ops", library_path(), "--image", path)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == (0 if pixels == 1 else 4)
        return usage.ru_maxrss * 1024

    assert peak(2**28) < peak(1) + 2**26


@pytest.mark.parametrize(
    ("width", "height", "allowed"),
    [
        (7000, 7000, 21),
        pytest.param(8192, 8192, 20, marks=pytest.mark.exhaustive),
        pytest.param(65500, 1, 2049, marks=pytest.mark.exhaustive),
    ],
)
def test_too_many_scans(width: int, height: int, allowed: int, read_all: ReadAll) -> None:
    files = [flat_jpeg(width, height, scans) for scans in (allowed + 1, 1600 + allowed)]
    message = (
        f"the JPEG file has too many scans: at most {allowed} are accepted for {width} x {height} pixels, "
        f"got {allowed + 1} or more"
    )
    assert read_all(files) == [message, message]


def test_as_many_scans_as_are_allowed(read_all: ReadAll) -> None:
    sizes = [(65500, 1, 2049), (3000, 2000, 100), (8, 8, 5000)]
    for (width, height, _), pixels in zip(sizes, read_all([flat_jpeg(*size) for size in sizes]), strict=True):
        assert not isinstance(pixels, str), pixels
        assert pixels.shape == (height, width, 3)
        assert (pixels == 128).all()


def test_kinds_of_jpeg_that_are_not_read(read_all: ReadAll) -> None:
    file = encoded(noise("RGB", 16, 16), "JPEG")
    frame = file.index(b"\xff\xc0")
    arithmetic = file[: frame + 1] + b"\xc9" + file[frame + 2 :]
    twelve_bits = file[: frame + 4] + b"\x0c" + file[frame + 5 :]
    components = b"\1\x11\0\2\x11\0"
    two = jpeg_segment(0xC0, b"\x08\0\x08\0\x08\2" + components) + jpeg_segment(0xDA, b"\2\1\0\2\0\0\x3f\0")
    outcomes = read_all([arithmetic, twelve_bits, b"\xff\xd8" + two])
    assert outcomes[0] == "JPEG files with arithmetic coding are not read"
    assert "12" in outcomes[1]
    assert outcomes[2] == "a JPEG file must have 1, 3 or 4 components, got 2"


@pytest.mark.exhaustive
def test_damaged_files_are_read_as_in_python_or_refused(read_all: ReadAll) -> None:
    generator = random.Random(20261121)
    corpus = [*pngs(), *jpegs()]
    files = [(name, damaged(file, generator)) for name, file in generator.choices(corpus, k=400)]
    outcomes = read_all([file for _, file in files])
    assert 100 < sum(refused(outcomes)) < 400
    for (name, file), outcome in zip(files, outcomes, strict=True):
        if isinstance(outcome, str):
            assert outcome
            continue
        pixels = python_pixels(file)
        # Versions of libjpeg-turbo smooth blocks whose later scans are missing in different ways.
        if "progressive" in name:
            assert outcome.shape[:2] == pixels.shape[:2], name
        else:
            np.testing.assert_array_equal(outcome[..., :3], pixels, err_msg=name)
