"""The image files that the C++ library reads, its limits, and its messages about other files.

`tests/runtimes/test_photos.py` compares the pixels with those of Python.
"""

import os
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cpp_runtime.image_files import GRAY, flat_jpeg, noise
from cpp_runtime.photo_pixels import CanvasSize, PhotoPixels, cpp_photos
from damaged_files import with_bit_flipped
from exif_files import exif, jpeg_with_exif
from picture_files import encoded, jpeg_segment
from png_files import END, chunk, png_file, png_header

from lensbox.ops import library_path

CANVAS = CanvasSize(48, 32, 1)
Read = Callable[..., list[PhotoPixels | str]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that has the C++ library read files, by default at full size in color."""

    def read_in_new_folder(
        files: list[bytes], canvas: CanvasSize | None = None, oversampling: int = 2
    ) -> list[PhotoPixels | str]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return cpp_photos(files, folder, canvas, oversampling)

    return read_in_new_folder


def read_well(outcome: PhotoPixels | str) -> PhotoPixels:
    assert isinstance(outcome, PhotoPixels), outcome
    return outcome


def test_a_reduced_size_lifts_no_limit(read: Read) -> None:
    large, scans, *truncated = read(
        [
            flat_jpeg(8193, 8192, 1),
            flat_jpeg(7000, 7000, 22),
            encoded(noise("RGB", 640, 480), "JPEG")[:-1000],
            encoded(noise("RGB", 640, 480), "JPEG", progressive=True)[:-1000],
        ],
        CANVAS,
    )
    assert large == "at most 67108864 pixels are accepted, got 8193 x 8192"
    assert "too many scans: at most 21" in str(scans)
    assert truncated == ["the JPEG file is truncated"] * 2


def test_only_exif_segments_before_the_first_scan_count(read: Read) -> None:
    plain = encoded(noise("L", 20, 10), "JPEG")
    with_exif = jpeg_with_exif(plain, exif(6))
    segment = with_exif[2 : len(with_exif) - len(plain) + 2]
    progressive = encoded(noise("L", 20, 10), "JPEG", progressive=True)
    last_scan = progressive.rindex(b"\xff\xda")
    files = [
        with_exif,
        plain[:2] + jpeg_segment(0xE2, segment[4:]) + plain[2:],  # of another kind
        progressive[:last_scan] + segment + progressive[last_scan:],
        plain[:-2] + segment + plain[-2:],
    ]
    assert [read_well(photo).size for photo in read(files)] == [(10, 20)] + [(20, 10)] * 3


def test_chunks_and_segments_without_pixels_are_passed_over(read: Read) -> None:
    picture = noise("RGB", 30, 20)
    png, jpeg = encoded(picture, "PNG"), encoded(picture, "JPEG")
    inflates = zlib.compress(bytes(2**26))
    large = (
        chunk(b"zTXt", b"Comment\0\0" + inflates)
        + chunk(b"iCCP", b"name\0\0" + inflates)
        + chunk(b"gAMA", bytes(3))
        + chunk(b"vpAg", bytes(10_000_000))
    )
    segments = jpeg_segment(0xFE, bytes(65_533)) + jpeg_segment(0xEB, bytes(65_533))
    files = [png, png[:33] + large + png[33:], jpeg, jpeg[:2] + segments * 50 + jpeg[2:]]
    pixels = [read_well(outcome).pixels for outcome in read(files)]
    np.testing.assert_array_equal(pixels[0], pixels[1])
    np.testing.assert_array_equal(pixels[2], pixels[3])


def test_a_png_whose_checksums_are_good(read: Read) -> None:
    header = png_header(2, 2, color_type=GRAY)
    rows = b"\0\1\2\0\3\4"
    data = zlib.compress(rows)

    def with_data(*chunks: bytes) -> bytes:
        return header + b"".join(chunk(b"IDAT", content) for content in chunks) + END

    good, *bad = read(
        [
            with_data(data[:3], data[3:]),
            with_data(with_bit_flipped(data, -1)),  # the zlib stream's own checksum
            with_data(data[:-4]),
            with_data(zlib.compress(rows[:3])),  # a row too few
            with_data(zlib.compress(rows + rows)),
            with_data(data, data),
            with_data(),
            header + chunk(b"IDAT", data),  # no end
            header + chunk(b"ABCD") + chunk(b"IDAT", data) + END,  # an unknown critical chunk
        ]
    )
    assert read_well(good).pixels[..., 0].tolist() == [[1, 2], [3, 4]]
    assert all(str(outcome).startswith("damaged or truncated (") for outcome in bad)


def test_messages_about_bad_files(read: Read) -> None:
    jpeg, png = encoded(noise("RGB", 16, 16), "JPEG"), encoded(noise("RGB"), "PNG")
    frame = jpeg.index(b"\xff\xc0")
    two = jpeg_segment(0xC0, b"\x08\0\x08\0\x08\2\1\x11\0\2\x11\0")
    two += jpeg_segment(0xDA, b"\2\1\0\2\0\0\x3f\0")
    cases = [
        (b"", "the file is empty"),
        (b"not an image", "neither a JPEG nor a PNG file"),
        (encoded(noise("RGB"), "GIF"), "neither a JPEG nor a PNG file"),
        (jpeg[:100], "header is damaged"),
        (
            jpeg[: frame + 1] + b"\xc9" + jpeg[frame + 2 :],
            "a JPEG file must be Huffman-coded, got arithmetic coding",
        ),
        (jpeg[: frame + 4] + b"\x0c" + jpeg[frame + 5 :], "12"),  # bits
        (b"\xff\xd8" + two, "a JPEG file must have 1, 3 or 4 components, got 2"),
        (png.replace(b"IDAT", b"IDOT"), "damaged or truncated"),
        (png_header(20, 10), "damaged or truncated"),
        (png_header(8193, 8192), "at most 67108864 pixels are accepted, got 8193 x 8192"),
        (png_header(2**31 - 1, 2**31 - 1), "accepted, got 2147483647 x 2147483647"),
        (png_header(0, 10), "header is damaged"),
    ]
    for outcome, (_, message) in zip(read([file for file, _ in cases]), cases, strict=True):
        assert isinstance(outcome, str)
        assert message in outcome


def test_bounds_the_number_of_scans(read: Read) -> None:
    message = (
        "the JPEG file has too many scans: at most 21 are accepted for 7000 x 7000 pixels, got 22 or more"
    )
    assert read([flat_jpeg(7000, 7000, scans) for scans in (22, 1621)]) == [message, message]
    allowed = [(65500, 1, 2049), (3000, 2000, 100), (8, 8, 5000)]
    for (width, height, _), outcome in zip(
        allowed, read([flat_jpeg(*size) for size in allowed]), strict=True
    ):
        pixels = read_well(outcome).pixels
        assert pixels.shape == (height, width, 1)
        assert (pixels == 128).all()


def test_memory_is_bounded_by_the_size_in_the_header(runner: Path, artifact: Path, tmp_path: Path) -> None:
    def peak(pixels: int) -> int:
        """Bytes resident at most, with an image of 1 x 1 whose data inflate to as many pixels."""
        path = tmp_path / f"{pixels}.png"
        path.write_bytes(png_file(1, 1, GRAY, bytes(1 + pixels)))
        command = (runner, "detect", "--artifact", artifact, "--ops", library_path(), "--image", path)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == (0 if pixels == 1 else 4)
        return usage.ru_maxrss * 1024

    assert peak(2**28) < peak(1) + 2**26
