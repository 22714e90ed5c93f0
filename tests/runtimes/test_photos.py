"""Python and C++ make the same canvases of image files, to the bit, and refuse the same ones."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from cpp_runtime.image_files import jpegs, noise, pngs
from cpp_runtime.photo_pixels import CanvasSize, cpp_photos
from exif_files import broken_exif, exif, jpeg_with_exif, odd_exif, png_with_exif
from picture_files import encoded, jpeg_segment
from torch import Tensor

from lensbox.artifact.metadata import Canvas, Reading
from lensbox.common.errors import InputError
from lensbox.common.fields import Orientation
from lensbox.ops import letterbox
from lensbox.runtime.images.files import read_photo

# Pillow warns about some of the palettes.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency")

GRAY = Canvas(height=32, width=48, channels=1, fill=7)
COLOR = Canvas(height=32, width=48, channels=3, fill=7)
# For these canvases, 1, 1/2, 1/4 and 1/8, odd and even, one wide and one tall.
SIZES = ((128, 64), (95, 70), (320, 224), (191, 190), (400, 431), (1153, 65), (50, 1500), (768, 576))


def canvases(pixels: Tensor, canvas: Canvas) -> Tensor:
    return letterbox([pixels], canvas.height, canvas.width, canvas.channels, canvas.fill).canvases


def compare(
    files: dict[str, bytes],
    folder: Path,
    canvas: Canvas,
    oversampling: int = 2,
    orientation: Orientation = "exif",
) -> dict[str, str]:
    """Assert that both read the same pixels from each file. Return the errors of C++ by file name."""
    folder.mkdir()
    size = CanvasSize(canvas.width, canvas.height, canvas.channels)
    outcomes = cpp_photos(list(files.values()), folder, size, oversampling, orientation)
    errors = {}
    for (name, file), outcome in zip(files.items(), outcomes, strict=True):
        reading = Reading(orientation, oversampling)
        if isinstance(outcome, str):
            errors[name] = outcome
            with pytest.raises(InputError):
                read_photo(file, canvas, reading)
            continue
        photo = read_photo(file, canvas, reading)
        assert (photo.width, photo.height) == outcome.size, name
        assert photo.window == outcome.window, name
        pixels = photo.pixels.permute(1, 2, 0).numpy()
        # C++ keeps the unused alpha channel of a transparent palette.
        np.testing.assert_array_equal(outcome.pixels[..., : pixels.shape[2]], pixels, err_msg=name)
        theirs = torch.from_numpy(outcome.pixels).permute(2, 0, 1)
        assert canvases(theirs, canvas).equal(canvases(photo.pixels, canvas)), name
    return errors


def oriented(files: dict[str, bytes]) -> dict[str, bytes]:
    """Each file with each orientation in turn."""
    orientations = itertools.cycle(range(1, 9))
    return {
        f"{name}, orientation {number}": png_with_exif(file, exif(number, "<>"[number % 2]))
        if file.startswith(b"\x89PNG")
        else jpeg_with_exif(file, exif(number, "<>"[number % 2]))
        for number, (name, file) in zip(orientations, files.items(), strict=False)
    }


@pytest.mark.parametrize("canvas", [GRAY, COLOR])
def test_jpeg_of_every_kind_and_size(canvas: Canvas, tmp_path: Path) -> None:
    corpus = dict(jpegs(SIZES))
    assert len(corpus) > 80
    assert compare(corpus, tmp_path / "1", canvas) == {}
    assert compare(oriented(corpus), tmp_path / "2", canvas) == {}
    assert compare(oriented(corpus), tmp_path / "3", canvas, orientation="stored") == {}
    assert compare(corpus, tmp_path / "4", canvas, oversampling=0) == {}
    assert compare(corpus, tmp_path / "5", canvas, oversampling=1) == {}


@pytest.mark.parametrize("canvas", [GRAY, COLOR])
def test_png_of_every_kind(canvas: Canvas, tmp_path: Path) -> None:
    corpus = dict(pngs())
    assert compare(corpus, tmp_path / "1", canvas) == {}
    assert compare(oriented(corpus), tmp_path / "2", canvas) == {}


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
    assert compare(files, tmp_path / "1", GRAY) == {}


def test_both_refuse_truncated_files(tmp_path: Path) -> None:
    def truncations(file: bytes) -> Iterator[bytes]:
        return (file[:length] for length in range(1, len(file), max(1, len(file) // 60)))

    def kinds() -> Iterator[bytes]:
        for options in ({}, {"progressive": True}, {"subsampling": 0}):
            yield jpeg_with_exif(encoded(noise("RGB", 320, 224), "JPEG", **options), exif(6))
        yield encoded(noise("CMYK", 320, 224), "JPEG")
        yield png_with_exif(encoded(noise("RGB", 32, 20), "PNG"), exif(6))

    files = {
        f"{number} of {len(short)} bytes": short
        for number, file in enumerate(kinds())
        for short in truncations(file)
    }
    for folder, canvas in (("1", GRAY), ("2", COLOR)):
        assert len(compare(files, tmp_path / folder, canvas)) == len(files)
