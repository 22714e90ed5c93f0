"""The limits of the C++ library's image readers, and its messages.

`tests/runtimes/test_photos.py` compares the pixels with Python's, and truncated and damaged files.
"""

import os
import subprocess
import zlib
from pathlib import Path

import numpy as np
from built_runner import built_runner
from photo_pixels import PhotoPixels, cpp_photos
from picture_files import chunk, encoded, flat_jpeg, jpeg_segment, noise, png_file, png_header

from lensbox.ops import library_path
from lensbox.runtime.file.metadata import Canvas

GRAY = 0  # a color type of PNG
JPEG, PNG = encoded(noise("RGB")), encoded(noise("RGB"), "PNG")


def read(folder: Path, *files: bytes, canvas: Canvas | None = None) -> list[PhotoPixels | str]:
    """Have the C++ library read files, by default at full size in color."""
    return list(cpp_photos({str(i): file for i, file in enumerate(files)}, folder, canvas).values())


def pixels_of(outcome: PhotoPixels | str) -> np.ndarray:
    assert isinstance(outcome, PhotoPixels), outcome
    return outcome.pixels


def test_messages_about_bad_files(tmp_path: Path) -> None:
    frame = JPEG.index(b"\xff\xc0")
    two = jpeg_segment(0xC0, b"\x08\0\x08\0\x08\2\1\x11\0\2\x11\0")
    two += jpeg_segment(0xDA, b"\2\1\0\2\0\0\x3f\0")
    cases = [
        (b"", "the file is empty"),
        (b"not an image", "neither a JPEG nor a PNG"),
        (JPEG[:100], "header is damaged"),
        (JPEG[:-100], "truncated"),
        (JPEG[: frame + 1] + b"\xc9" + JPEG[frame + 2 :], "arithmetic coding"),
        (JPEG[: frame + 4] + b"\x0c" + JPEG[frame + 5 :], "12"),  # bits
        (b"\xff\xd8" + two, "components, got 2"),
        (PNG.replace(b"IDAT", b"IDOT"), "damaged or truncated"),
        (png_header(20, 10), "damaged or truncated"),
        (png_header(8193, 8192), "at most 67108864 pixels are accepted, got 8193 x 8192"),
        (png_header(2**31 - 1, 2**31 - 1), "got 2147483647 x 2147483647"),
        (png_header(0, 10), "header is damaged"),
        (flat_jpeg(8193, 8192, 1), "got 8193 x 8192"),
        (flat_jpeg(7000, 7000, 22), "too many scans: at most 21 are accepted for 7000 x 7000 pixels"),
    ]
    for canvas in (None, Canvas(48, 32, 1)):  # a reduced size lifts no limit
        outcomes = read(tmp_path, *(file for file, _ in cases), canvas=canvas)
        for outcome, (_, message) in zip(outcomes, cases, strict=True):
            assert isinstance(outcome, str)
            assert message in outcome


def test_reads_as_many_scans_as_the_size_allows(tmp_path: Path) -> None:
    allowed = [(65500, 1, 2049), (3000, 2000, 100), (8, 8, 5000)]
    outcomes = read(tmp_path, *(flat_jpeg(*size) for size in allowed))
    for (width, height, _), outcome in zip(allowed, outcomes, strict=True):
        pixels = pixels_of(outcome)
        assert pixels.shape == (height, width, 1)
        assert (pixels == 128).all()


def test_passes_over_chunks_and_segments_without_pixels(tmp_path: Path) -> None:
    inflates = zlib.compress(bytes(2**26))
    large = (
        chunk(b"zTXt", b"Comment\0\0" + inflates)
        + chunk(b"iCCP", b"name\0\0" + inflates)
        + chunk(b"gAMA", bytes(3))
        + chunk(b"vpAg", bytes(10_000_000))
    )
    segments = jpeg_segment(0xFE, bytes(65_533)) + jpeg_segment(0xEB, bytes(65_533))
    files = [PNG, PNG[:33] + large + PNG[33:], JPEG, JPEG[:2] + segments * 50 + JPEG[2:]]
    pixels = [pixels_of(outcome) for outcome in read(tmp_path, *files)]
    np.testing.assert_array_equal(pixels[0], pixels[1])
    np.testing.assert_array_equal(pixels[2], pixels[3])


def test_memory_is_bounded_by_the_size_in_the_header(artifact: Path, tmp_path: Path) -> None:
    def peak(pixels: int) -> int:
        """Return the bytes resident at most, with an image of 1 x 1 whose data inflate to as many pixels."""
        path = tmp_path / f"{pixels}.png"
        path.write_bytes(png_file(1, 1, GRAY, bytes(1 + pixels)))
        command = (built_runner(), "detect", "--artifact", artifact, "--ops", library_path(), "--image", path)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == (0 if pixels == 1 else 4)
        return usage.ru_maxrss * 1024

    assert peak(2**28) < peak(1) + 2**26
