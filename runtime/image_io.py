"""Reading image files."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from lensbox.errors import InputError
from lensbox.runtime import jpeg_structure, png_structure
from lensbox.runtime.bounded_file import BoundedFile

_TILE_PIXELS = 1 << 19  # converted at a time: fits the caches, and keeps the GIL for a millisecond or so


class TooManyPixelsError(InputError):
    """The image has more pixels than the limits allow."""


@dataclass(frozen=True)
class ImageLimits:
    """What decoding one image may cost. None: no limit, or only the decoder's own.

    max_pixels: width * height. max_run_length_pixels: the same for files whose decoder is written in Python,
    which takes 0.1 us a pixel and holds the GIL: run-length BMP. max_pieces: of a file, which are its
    segments, chunks and sub-blocks, and every further time that a decoder reads from it (run-length BMP may
    be read twice more for each pixel). deadline: on the clock of `time.monotonic`.
    """

    max_pixels: int | None = None
    max_run_length_pixels: int | None = None
    max_pieces: int | None = None
    deadline: float | None = None


def read_image(source: str | Path | bytes) -> Tensor:
    """Decodes an image file to uint8 [C, H, W]: C = 1 (gray), 3 (RGB) or 4 (RGBA).

    source: a path, or the bytes of a file. Other color modes are converted: palettes and CMYK to RGB, one bit
    and 16 bit to gray levels of 8 bit. As in the C++ runner, it is not rotated by EXIF.
    Raises FileNotFoundError if there is no such file and InputError, naming the file, if it is not an image
    that Pillow can decode, has more than 179 million pixels, which Pillow refuses, or is a JPEG file that
    `check_jpeg` refuses.
    """
    name = "the image data" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise FileNotFoundError(f"source must be an image file, got {name}")
    try:
        return decode_image(source if isinstance(source, bytes) else Path(source).read_bytes())
    except (InputError, OSError) as error:
        raise InputError(f"{name} must be an image that Pillow can decode: {error}") from error


def decode_image(
    file: bytes,
    limits: ImageLimits = ImageLimits(),
    open_image: Callable[[io.BytesIO], PIL.Image.Image] = PIL.Image.open,
) -> Tensor:
    """Decodes the bytes of an image file as `read_image` does, within limits.

    open_image: reads the header; one of Pillow's classes for a single format, or `PIL.Image.open` for all.
    Raises TooManyPixelsError, TimeoutError after the deadline, MemoryError, and InputError, which says what
    is wrong but not with which file, for everything else that a decoder may raise.
    """
    try:
        file = jpeg_structure.without_metadata(file, limits.max_pieces)
        file = png_structure.without_metadata(file, limits.max_pieces)
        bounded = BoundedFile(file, limits.deadline, limits.max_pieces)
        with open_image(bounded) as image:
            _check_header(image, file, bounded, limits)
            image.load()
            return _to_tensor(image, bounded)
    except (InputError, TimeoutError, MemoryError):
        raise
    except PIL.Image.DecompressionBombError as error:
        raise TooManyPixelsError(str(error)) from error
    except PIL.UnidentifiedImageError as error:
        raise InputError("its format is unknown, or its header is damaged") from error
    except Exception as error:  # decoders raise a dozen types on broken files
        raise InputError(str(error) or type(error).__name__) from error


def _check_header(image: PIL.Image.Image, file: bytes, bounded: BoundedFile, limits: ImageLimits) -> None:
    width, height = image.size
    _check_pixels("the image", width, height, limits.max_pixels)
    if any(tile[0] in PIL.Image.DECODERS for tile in getattr(image, "tile", ())):
        _check_pixels("a run-length BMP image", width, height, limits.max_run_length_pixels)
        bounded.allow_more_reads(2 * (width + 1) * height)  # two for a run, and for the end of a row
    if jpeg_structure.is_jpeg(file):
        jpeg_structure.check_jpeg(file, width, height, limits.max_pieces)
    if image.mode == "P" and image.palette is None:
        raise InputError("an image of palette indices must have a palette")


def _check_pixels(name: str, width: int, height: int, limit: int | None) -> None:
    if limit is not None and width * height > limit:
        raise TooManyPixelsError(
            f"{name} must have at most {limit} pixels, got {width} x {height} = {width * height}"
        )


def _to_tensor(image: PIL.Image.Image, bounded: BoundedFile) -> Tensor:
    """Converts tile by tile into the tensor: a large image is never held a third time."""
    image.info.pop("transparency", None)  # of a palette; `convert` would spend time on it for nothing
    mode = _target_mode(image.mode)
    pixels = torch.empty((len(mode), image.height, image.width), dtype=torch.uint8)
    planes = pixels.numpy()
    for left, top, right, bottom in _tiles(image.width, image.height):
        bounded.check_deadline()
        tile = _converted(image.crop((left, top, right, bottom)), mode)
        for plane, band in zip(planes, mode, strict=True):
            values = np.frombuffer(tile.tobytes("raw", band), np.uint8)
            plane[top:bottom, left:right] = values.reshape(tile.height, tile.width)
    return pixels


def _tiles(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    """Boxes that cover an image, each of at most _TILE_PIXELS."""
    tile_width = min(width, _TILE_PIXELS)
    tile_height = _TILE_PIXELS // tile_width
    for top in range(0, height, tile_height):
        for left in range(0, width, tile_width):
            yield left, top, min(left + tile_width, width), min(top + tile_height, height)


def _target_mode(mode: str) -> str:
    """The mode to convert to; each letter of its name is a channel."""
    if mode in ("L", "RGB", "RGBA"):
        return mode
    return "L" if mode in ("1", "LA", "La", "F") or mode.startswith("I") else "RGB"


def _converted(tile: PIL.Image.Image, mode: str) -> PIL.Image.Image:
    if tile.mode.startswith("I"):
        # 16-bit gray. Pillow's own conversion would clip at 255 instead of dropping the low byte.
        return PIL.Image.fromarray((np.asarray(tile).clip(0, 65535) >> 8).astype(np.uint8))
    return tile if tile.mode == mode else tile.convert(mode)
