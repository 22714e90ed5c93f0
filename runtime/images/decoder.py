"""Decode the bytes of an image file to a photograph, at a bounded cost."""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageFile
import torch
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.common.pictures import LONGEST_SIDE, converted, target_mode
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images import jpeg, png
from lensbox.runtime.images.fast_jpeg import decode_usual_jpeg
from lensbox.runtime.images.jpeg import jpeg_reduction
from lensbox.runtime.images.limits import NO_LIMITS, BoundedFile, ImageLimits
from lensbox.runtime.images.orientation import (
    Box,
    exif_orientation,
    split_exif,
    upright_array,
    upright_box,
    upright_size,
)
from lensbox.runtime.images.photo import Photo

_FILLED_UP = ("JPEG", "MPO", "GIF", "BMP", "TIFF", "PPM")  # other formats may read beyond a sound file's end
_RUN_LENGTH_READS = 1 << 20  # of a byte or two, half a second in all


class TooManyPixelsError(InputError):
    """The image has more pixels than the limits allow, or a longer side."""


def decode_photo(
    file: bytes,
    canvas: Canvas | None,
    reading: Reading,
    limits: ImageLimits = NO_LIMITS,
    open_image: Callable[[io.BytesIO], PIL.Image.Image] = PIL.Image.open,
) -> Photo:
    """Decode the bytes of an image file as `read_photo` does. limits: apply to the full size.

    open_image: reads the header; one of Pillow's classes for a single format, or `PIL.Image.open` for all.
    Raise TooManyPixelsError, TimeoutError after the deadline, MemoryError, and InputError for all other
    errors; the messages do not name the file.
    """
    if (photo := decode_usual_jpeg(file, canvas, reading, limits)) is not None:
        return photo
    with _plain_errors(file):
        file, exif = split_exif(file)
        bounded = BoundedFile(file, limits)
        with open_image(bounded) as image:
            _check_header(image, file, bounded, limits)
            orientation = _orientation_of(image, exif) if reading.orientation == "exif" else 1
            stored = image.size
            is_gray = isinstance(image, PngImageFile) and _raw_mode(image).startswith("LA")
            reduction = _reduce(image, orientation, canvas, reading)
            image.load()
            # Pillow fills these up with gray if the program has set its switch, for all threads.
            if bounded.is_exhausted and PIL.ImageFile.LOAD_TRUNCATED_IMAGES and image.format in _FILLED_UP:
                raise InputError("image file is truncated")
            if reduction == 1:
                stored = image.size  # Pillow rotates TIFF files while it loads them
            width, height = upright_size(stored, orientation)
            covered = (0, 0, image.width * reduction, image.height * reduction)
            window = upright_box(covered, stored, orientation)
            # Pillow's mode for 16-bit gray with alpha is RGBA.
            mode = "L" if is_gray else target_mode(image.mode)
            pixels = upright_pixels(image, mode, orientation, bounded.check_deadline)
            return Photo(pixels, width, height, window)


def read_header(file: bytes, reading: Reading) -> tuple[int, int, int]:
    """Return width and height of the photograph that `decode_photo` gives, and its EXIF orientation, 1 to 8.

    The pixels are not decoded, except those of TIFF files. Raise InputError.
    """
    with _plain_errors(file):
        rest, exif = split_exif(file)
        with PIL.Image.open(io.BytesIO(rest)) as image:
            if image.format == "TIFF":
                image.load()  # Pillow rotates TIFF files while it loads them
            orientation = _orientation_of(image, exif)
            width, height = upright_size(image.size, orientation if reading.orientation == "exif" else 1)
            return width, height, orientation


def _orientation_of(image: PIL.Image.Image, exif: bytes) -> int:
    """Return the EXIF orientation of an open image. exif: the data that `split_exif` found."""
    if image.format == "AVIF":
        # Pillow finds the data in the file's boxes, and converts AVIF's own turns to an orientation.
        exif = image.info.get("exif", b"").removeprefix(jpeg.EXIF_HEADER)
    return exif_orientation(exif)


@contextlib.contextmanager
def _plain_errors(file: bytes) -> Iterator[None]:
    """Raise the errors of `decode_photo` for those of the decoders."""
    try:
        yield
    except (InputError, TimeoutError, MemoryError):
        raise
    except PIL.Image.DecompressionBombError as error:
        raise TooManyPixelsError(str(error)) from error
    except PIL.UnidentifiedImageError as error:
        reason = "its format is unknown, or its header is damaged" if file else "it is empty"
        raise InputError(reason) from error
    except Exception as error:  # decoders raise a dozen types on broken files
        raise InputError(str(error) or type(error).__name__) from error


def _check_header(image: PIL.Image.Image, file: bytes, bounded: BoundedFile, limits: ImageLimits) -> None:
    _check_size(image, "the image", limits.max_pixels)
    if any(tile[0] in PIL.Image.DECODERS for tile in getattr(image, "tile", ())):
        _check_size(image, "a run-length BMP image", limits.max_run_length_pixels)
        bounded.max_reads += _RUN_LENGTH_READS
    if max(image.size) > LONGEST_SIDE:
        got = f"{image.width} x {image.height}"
        raise TooManyPixelsError(f"the image must have sides of at most {LONGEST_SIDE} pixels, got {got}")
    if isinstance(image, PngImageFile):
        # A file of kilobytes can inflate to 8 bytes per pixel.
        samples, _, bits = _raw_mode(image).partition(";")
        size = len(samples) * (2 if bits.startswith("16") else 1)
        _check_size(image, "a PNG image", limits.max_png_bytes, "bytes of pixels", size)
        png.check_pixels(file, bounded.check_deadline)
    if jpeg.has_signature(file):
        jpeg.check_jpeg(file, *image.size)
    if image.mode == "P" and image.palette is None:
        raise InputError("an image of palette indices must have a palette")


def _reduce(image: PIL.Image.Image, orientation: int, canvas: Canvas | None, reading: Reading) -> int:
    """Reduce a JPEG image to the scale 1/r that suffices for the canvas; return r, 1 for other formats."""
    if canvas is None or not isinstance(image, JpegImageFile):
        return 1
    width, height = upright_size(image.size, orientation)
    reduction = jpeg_reduction(width, height, canvas, reading.jpeg_oversampling)
    # Pillow divides by this size and truncates: floats give exactly 1/r, and are never 0.
    size: Any = (image.width / reduction, image.height / reduction)
    image.draft("L" if canvas.channels == 1 else image.mode, size)
    return reduction


def _check_size(
    image: PIL.Image.Image, name: str, limit: float, unit: str = "pixels", size: int | None = None
) -> None:
    """Limit the pixels, or their bytes. size: bytes of a pixel."""
    number, each = image.width * image.height * (size or 1), "" if size is None else f" of {size} bytes"
    if number > limit:
        found = f"{image.width} x {image.height}{each} = {number}"
        raise TooManyPixelsError(f"{name} must have at most {limit} {unit}, got {found}")


def _raw_mode(image: PngImageFile) -> str:
    """Return the layout of samples in the file, such as "RGB", "L;4" or "LA;16B"."""
    return str(image.tile[0][3] if image.tile else image.mode)


_TILE_PIXELS = 1 << 19  # converted at a time: fits into the caches, and holds the GIL for about 1 ms


def upright_pixels(
    image: PIL.Image.Image, mode: str, orientation: int, before_each_tile: Callable[[], None]
) -> Tensor:
    """Return an upright image: uint8 [C, H, W], C = 1 (gray), 3 (RGB) or 4 (RGBA), in interleaved memory.

    mode: "L", "RGB" or "RGBA". The image is converted and rotated tile by tile, to save memory.
    before_each_tile: may raise.
    """
    image.info.pop("transparency", None)  # of a palette: `convert` would waste time on it
    width, height = upright_size(image.size, orientation)
    pixels = torch.empty((height, width, len(mode)), dtype=torch.uint8, device="cpu")
    upright = pixels.numpy()
    for box in _tiles(image.width, image.height):
        before_each_tile()
        part = image if box == (0, 0, *image.size) else image.crop(box)
        tile = np.asarray(converted(part, mode)).reshape(part.height, part.width, len(mode))
        left, top, right, bottom = upright_box(box, image.size, orientation)
        upright[top:bottom, left:right] = upright_array(tile, orientation)
    return pixels.permute(2, 0, 1)


def _tiles(width: int, height: int) -> Iterator[Box]:
    """Yield boxes that cover an image, each of at most _TILE_PIXELS."""
    tile_width = min(width, _TILE_PIXELS)
    tile_height = _TILE_PIXELS // tile_width
    for top in range(0, height, tile_height):
        for left in range(0, width, tile_width):
            yield left, top, min(left + tile_width, width), min(top + tile_height, height)
