"""Photographs as the C++ library reads them, by the test program `photo_pixels`."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from built_runner import built_runner


@dataclass(frozen=True)
class CanvasSize:
    width: int
    height: int
    channels: int


@dataclass(frozen=True)
class PhotoPixels:
    """pixels: [h, w, C]. size: width and height of the upright photograph. window: x1, y1, x2, y2."""

    pixels: npt.NDArray[np.uint8]
    size: tuple[int, int]
    window: tuple[float, ...]


def cpp_photos(
    files: Sequence[bytes],
    folder: Path,
    canvas: CanvasSize | None,
    oversampling: int = 2,
    orientation: str = "exif",
) -> list[PhotoPixels | str]:
    """Return for each file its photograph, or the error without the file's name.

    folder: an empty folder. canvas: None reads at full size.
    """
    program = built_runner().parent / "tests" / "photo_pixels"
    if not program.is_file():
        pytest.fail(f"{program} is not there: build the runner with LENSBOX_RUNTIME_TESTS=ON")
    paths = [folder / f"{index}.file" for index in range(len(files))]
    for path, file in zip(paths, files, strict=True):
        path.write_bytes(file)
    # Without a canvas: at full size, in the file's own colors.
    sizes = (canvas.width, canvas.height, canvas.channels, oversampling) if canvas else (1, 1, 3, 0)
    words = (folder, orientation, *sizes, *paths)
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True)
    return [
        outcome["error"].removeprefix(f"image {path}: ")
        if "error" in outcome
        else PhotoPixels(
            np.fromfile(folder / str(index), np.uint8).reshape(outcome["shape"]),
            (outcome["size"][0], outcome["size"][1]),
            tuple(outcome["window"]),
        )
        for index, (path, outcome) in enumerate(zip(paths, json.loads(done.stdout), strict=True))
    ]
