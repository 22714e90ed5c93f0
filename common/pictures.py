"""Pictures as callers give them: files, file objects, Pillow images and arrays."""

import os
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import PIL.Image
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Picture = PIL.Image.Image | Pixels
ImageFile = str | Path | bytes | bytearray | memoryview | BinaryIO
ColorOrder = Literal["RGB", "BGR"]

# Of an image, in pixels, as in `fit`: float32 holds all positions in such an image.
LONGEST_SIDE = 1 << 24  # as kLongestSide in ops/csrc/fit.h

# Endings of the names of photographs in folders, in lower case.
IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"),
    *(".jp2", ".mpo", ".pbm", ".pgm", ".ppm"),
)

_SIXTEEN_BITS = 65_535
_SCALE = "scale its levels to 0..255 and convert them to uint8"


def content_of(source: Any, name: str) -> bytes | None:
    """Return the bytes of a file that is in memory or open; None for a path.

    source: bytes, bytearray, memoryview, or a file object in binary mode, which is read from its position.
    name: of the source, for messages. Raise TypeError for all others, and what `read` raises.
    """
    if isinstance(source, str | os.PathLike):
        return None
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if hasattr(source, "read"):
        content = source.read()
        if isinstance(content, bytes):
            return content
        raise TypeError(
            f"{name} must be a file open in binary mode, got one that reads {type(content).__name__}"
        )
    raise TypeError(
        f"{name} must be a path, the bytes of a file, an open file, a Pillow image or an array, "
        f"got {type(source).__name__}"
    )


def require_many(files: Any, name: str) -> None:
    """Raise TypeError for one image where many are expected: a text is an iterable of letters."""
    if isinstance(files, str | os.PathLike | bytes | bytearray | memoryview | PIL.Image.Image):
        got = f"the path {str(files)!r}" if isinstance(files, str | os.PathLike) else type(files).__name__
        raise TypeError(f"{name} must be a list or another iterable of images, got {got}: put it into [ ]")


def picture_pixels(image: Picture, name: str, color_order: ColorOrder = "RGB") -> Pixels:
    """Return the pixels of a Pillow image or an array: [H, W] (gray), [H, W, 3] (RGB) or [H, W, 4] (RGBA).

    image: an array, uint8, of one of these shapes or [H, W, 1]; or a Pillow image of any mode without levels
    outside of 16 bits, whose EXIF orientation is ignored. color_order: "BGR" for arrays of OpenCV. The result
    is contiguous and writable; it may share the memory of the array. Raise ValueError.
    """
    if isinstance(image, PIL.Image.Image):
        require_rgb(name, color_order)
        pixels = np.asarray(_of_pillow(image, name))
    else:
        pixels = _of_array(image, name, color_order)
    return np.require(pixels, requirements=["C", "W"])


def require_rgb(name: str, color_order: str) -> None:
    """Raise ValueError for another color order of an image that knows its own."""
    if color_order != "RGB":
        raise ValueError(
            f"color_order must be 'RGB' unless {name} is an array or a tensor, got {color_order!r}"
        )


def check_color_order(color_order: str) -> None:
    """Raise ValueError unless the color order is "RGB" or "BGR"."""
    if color_order not in ("RGB", "BGR"):
        raise ValueError(f"color_order must be 'RGB' or 'BGR', got {color_order!r}")


def _of_pillow(image: PIL.Image.Image, name: str) -> PIL.Image.Image:
    try:
        image.load()  # Pillow reads files lazily
    except Exception as error:  # decoders raise a dozen types on broken files
        raise ValueError(f"{name} must be a whole picture: {error or type(error).__name__}") from error
    if image.mode == "I" and 0 < np.asarray(image).max(initial=0) <= 255:
        raise ValueError(
            f"{name} of mode I must have levels of 16 bits, got at most 255: convert it to mode L"
        )
    try:
        return converted(image, target_mode(image.mode))
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error


def _of_array(pixels: NDArray[Any], name: str, color_order: ColorOrder) -> Pixels:
    check_color_order(color_order)
    if pixels.dtype != np.uint8:
        raise ValueError(f"{name} must be uint8, got {pixels.dtype}: {_SCALE}")
    is_gray = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 1)
    if 0 in pixels.shape or not (is_gray or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        shape = list(pixels.shape)
        hint = "; transpose(1, 2, 0) puts the channels last" if shape[:-2] in ([1], [3], [4]) else ""
        raise ValueError(f"{name} must have the shape [H, W], [H, W, 3] or [H, W, 4], got {shape}{hint}")
    if is_gray:
        return pixels.reshape(pixels.shape[:2])
    return pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if color_order == "BGR" else pixels


def target_mode(mode: str) -> str:
    """Return "L", "RGB" or "RGBA": the mode to which an image of a Pillow mode is converted."""
    if mode in ("L", "RGB", "RGBA"):
        return mode
    return "L" if mode in ("1", "LA", "La", "F") or mode.startswith("I") else "RGB"


def converted(image: PIL.Image.Image, mode: str) -> PIL.Image.Image:
    """Return an image in the mode "L", "RGB" or "RGBA". Raise ValueError for levels that do not fit.

    Of 16-bit levels, keep the high byte: Pillow's own conversion would clip them at 255. Pillow has 16-bit
    gray as mode I;16 or I. Levels outside of 0..65535, and floats, whose range is unknown, do not fit.
    """
    if image.mode == "F":
        raise ValueError(f"must have integers as levels, got floating-point numbers: {_SCALE}")
    if image.mode.startswith("I"):
        levels = np.asarray(image)
        if levels.min(initial=0) < 0 or levels.max(initial=0) > _SIXTEEN_BITS:
            found = f"{levels.min()} to {levels.max()}"
            raise ValueError(f"must have levels of 0 to {_SIXTEEN_BITS}, got {found}: {_SCALE}")
        image = PIL.Image.fromarray((levels >> 8).astype(np.uint8))
    return image if image.mode == mode else image.convert(mode)
