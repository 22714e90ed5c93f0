"""Files as the C++ library reads them, by the test program `read_files`; photographs compared with ours."""

import io
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.ImageOps
import programs
import pytest
import torch
from programs import built_runner
from torch import Tensor

from lensbox.common.errors import InputError
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime import Canvas, Photo, Reading, read_photo


def cpp_artifacts(*files: tuple[Path, Path | str]) -> list[dict[str, Any]]:
    """Return kind and name, or the error, of each artifact. files: paths, each with a public key or ""."""
    words = itertools.chain.from_iterable(files)
    found: list[dict[str, Any]] = json.loads(programs.run(_program(), "artifacts", *words).stdout)
    return found


def _program() -> Path:
    return built_runner().parent / "tests" / "read_files"


class PhotoPixels(NamedTuple):
    """pixels: [h, w, C]. size: width and height of the upright photograph. window: x1, y1, x2, y2."""

    pixels: npt.NDArray[np.uint8]
    size: tuple[int, int]
    window: tuple[float, ...]


def cpp_photos(
    files: Mapping[str, bytes], folder: Path, canvas: Canvas | None = None, reading: Reading | None = None
) -> dict[str, PhotoPixels | str]:
    """Return for each file its photograph, or the error without the file's name.

    folder: a new or an empty one. canvas: None reads at full size, in the file's own colors.
    """
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{index}.file" for index in range(len(files))]
    for path, file in zip(paths, files.values(), strict=True):
        path.write_bytes(file)
    reading = reading or Reading()
    sizes = (
        (canvas.width, canvas.height, canvas.channels, reading.jpeg_oversampling, canvas.fit)
        if canvas
        else (1, 1, 3, 0, "letterbox")
    )
    outcomes = json.loads(programs.run(_program(), folder, reading.orientation, *sizes, *paths).stdout)
    return {
        name: outcome["error"].removeprefix(f"image {path}: ")
        if "error" in outcome
        else PhotoPixels(
            np.fromfile(folder / path.stem, np.uint8).reshape(outcome["shape"]),
            tuple(outcome["size"]),
            tuple(outcome["window"]),
        )
        for name, path, outcome in zip(files, paths, outcomes, strict=True)
    }


def assert_like_pillow(file: bytes, photo: Photo, reading: Reading) -> None:
    """Assert that Pillow reads the same pixels of a JPEG or PNG file, at the scale of the photograph."""
    channels, height, width = photo.pixels.shape
    x1, y1, x2, y2 = photo.window
    reduction = round((x2 - x1) / width)
    assert (x2 - x1, y2 - y1) == (reduction * width, reduction * height)
    with PIL.Image.open(io.BytesIO(file)) as image:
        if image.format in ("JPEG", "MPO"):
            # Pillow divides by this size and truncates.
            size: Any = image.width / reduction, image.height / reduction
            image.draft("L" if channels == 1 else image.mode, size)
        if reading.orientation == "exif":
            image = PIL.ImageOps.exif_transpose(image)
        image.info.pop("transparency", None)
        if image.mode.startswith("I"):
            image = PIL.Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
        # LA, as 16 bits a sample, is RGBA to Pillow.
        upright = image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
        np.testing.assert_array_equal(
            photo.pixels.permute(1, 2, 0).numpy(), np.asarray(upright).reshape(height, width, channels)
        )
        assert reduction > 1 or (photo.width, photo.height) == upright.size


def compared(
    files: Mapping[str, bytes], folder: Path, canvas: Canvas, reading: Reading | None = None
) -> dict[str, str]:
    """Assert that Python and C++ read the same pixels, and refuse the same files.

    Returns the errors of C++ by file name.
    """
    errors = {}
    reading = reading or Reading()
    for name, outcome in cpp_photos(files, folder, canvas, reading).items():
        if isinstance(outcome, str):
            errors[name] = outcome
            with pytest.raises(InputError):
                read_photo(files[name], canvas, reading)
            continue
        photo = read_photo(files[name], canvas, reading)
        assert (photo.width, photo.height) == outcome.size, name
        assert photo.window == outcome.window, name
        pixels = photo.pixels.permute(1, 2, 0).numpy()
        np.testing.assert_array_equal(outcome.pixels, pixels, err_msg=name)
        theirs = torch.from_numpy(outcome.pixels).permute(2, 0, 1)
        assert _fitted(theirs, canvas).equal(_fitted(photo.pixels, canvas)), name
    return errors


def _fitted(pixels: Tensor, canvas: Canvas) -> Tensor:
    return fit_to_canvases([pixels], None, *canvas.as_tuple)[0]
