"""Decode the bytes of an image file to a photograph, at a bounded cost.

The image reader (`core.py`) decodes JPEG and PNG files, Pillow all others.
"""

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import PIL.Image
import PIL.ImageFile
import torch
from torch import Tensor

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.common.pictures import LONGEST_SIDE, converted, target_mode
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.core import exif_orientation, is_core_format, read_coded, read_coded_header
from lensbox.runtime.images.limits import NO_LIMITS, BoundedFile, ImageLimits, TooManyPixelsError
from lensbox.runtime.images.orientation import as_stored, upright_size
from lensbox.runtime.images.photo import Photo

_FILLED_UP = ("GIF", "BMP", "TIFF", "PPM")  # other formats may read beyond a sound file's end
_RUN_LENGTH_READS = 1 << 20  # of a byte or two, half a second in all
_EXIF_HEADER = b"Exif\0\0"


def decode_photo(
    file: bytes,
    canvas: Canvas | None,
    reading: Reading,
    limits: ImageLimits = NO_LIMITS,
    open_image: Callable[[io.BytesIO], PIL.Image.Image] = PIL.Image.open,
) -> Photo:
    """Decode the bytes of an image file as `read_photo` does. limits: apply to the full size.

    open_image: reads the header of a file that is neither JPEG nor PNG; one of Pillow's classes for a single
    format, or `PIL.Image.open` for all. Raise TooManyPixelsError, TimeoutError after the deadline,
    MemoryError, and InputError for all other errors; the messages do not name the file.
    """
    if is_core_format(file):
        return read_coded(file, canvas, reading, _with_pillow_limit(limits))
    with _plain_errors(file):
        bounded = BoundedFile(file, limits)
        with open_image(bounded) as image:
            _check_header(image, bounded, limits)
            orientation = _orientation_of(image) if reading.orientation == "exif" else 1
            image.load()
            # Pillow fills these up with gray if the program has set its switch, for all threads.
            if bounded.is_exhausted and PIL.ImageFile.LOAD_TRUNCATED_IMAGES and image.format in _FILLED_UP:
                raise InputError("image file is truncated")
            return Photo.of(_upright_pixels(image, orientation, bounded.check_deadline))


def read_header(file: bytes, reading: Reading) -> tuple[int, int, int]:
    """Return width and height of the photograph that `decode_photo` gives, and its EXIF orientation, 1 to 8.

    The pixels are not decoded, except those of TIFF files. Raise InputError.
    """
    if is_core_format(file):
        header = read_coded_header(file, _with_pillow_limit(NO_LIMITS))
        size, orientation = (header.width, header.height), header.orientation
    else:
        with _plain_errors(file), PIL.Image.open(io.BytesIO(file)) as image:
            if image.format == "TIFF":
                image.load()  # Pillow rotates TIFF files while it loads them
            size, orientation = image.size, _orientation_of(image)
    width, height = upright_size(size, orientation if reading.orientation == "exif" else 1)
    return width, height, orientation


def _with_pillow_limit(limits: ImageLimits) -> ImageLimits:
    """Return the limits with Pillow's own on the number of pixels, which a program may have changed."""
    most = PIL.Image.MAX_IMAGE_PIXELS
    return limits if most is None else replace(limits, max_pixels=min(limits.max_pixels, 2 * most))


def _orientation_of(image: PIL.Image.Image) -> int:
    """Return the EXIF orientation of an open WebP or AVIF image, and 1 for other formats."""
    # Pillow converts AVIF's own turns to an orientation.
    data = image.info.get("exif", b"") if image.format in ("AVIF", "WEBP") else b""
    return exif_orientation(data.removeprefix(_EXIF_HEADER))


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


def _check_header(image: PIL.Image.Image, bounded: BoundedFile, limits: ImageLimits) -> None:
    _check_size(image, "the image", limits.max_pixels)
    if any(tile[0] in PIL.Image.DECODERS for tile in getattr(image, "tile", ())):
        _check_size(image, "a run-length BMP image", limits.max_run_length_pixels)
        bounded.max_reads += _RUN_LENGTH_READS
    if max(image.size) > LONGEST_SIDE:
        got = f"{image.width} x {image.height}"
        raise TooManyPixelsError(f"the image must have sides of at most {LONGEST_SIDE} pixels, got {got}")
    if image.mode == "P" and image.palette is None:
        raise InputError("an image of palette indices must have a palette")


def _check_size(image: PIL.Image.Image, name: str, limit: float) -> None:
    number = image.width * image.height
    if number > limit:
        got = f"{image.width} x {image.height} = {number}"
        raise TooManyPixelsError(f"{name} must have at most {limit} pixels, got {got}")


_TILE_PIXELS = 1 << 19  # converted at a time: fits into the caches, and holds the GIL for about 1 ms


def _upright_pixels(image: PIL.Image.Image, orientation: int, check_deadline: Callable[[], None]) -> Tensor:
    """Return an upright image: uint8 [C, H, W], C = 1 (gray), 3 (RGB) or 4 (RGBA), in interleaved memory.

    The image is converted and turned tile by tile, to save memory.
    """
    image.info.pop("transparency", None)  # of a palette: `convert` would waste time on it
    mode = target_mode(image.mode)
    width, height = upright_size(image.size, orientation)
    pixels = torch.empty((height, width, len(mode)), dtype=torch.uint8, device="cpu")
    stored = as_stored(pixels.numpy(), orientation)
    columns = min(image.width, _TILE_PIXELS)
    rows = _TILE_PIXELS // columns
    for top, left in itertools.product(range(0, image.height, rows), range(0, image.width, columns)):
        check_deadline()
        tile = stored[top : top + rows, left : left + columns]
        box = (left, top, left + tile.shape[1], top + tile.shape[0])
        part = image if box == (0, 0, *image.size) else image.crop(box)
        tile[:] = np.asarray(converted(part, mode)).reshape(tile.shape)
    return pixels.permute(2, 0, 1)
