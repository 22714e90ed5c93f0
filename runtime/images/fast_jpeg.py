"""Decode usual JPEG files in one call without Python's lock (GIL).

Pillow takes the GIL dozens of times per file, so threads that decode small photographs wait for each other.
simplejpeg, if installed, decodes the files for which its pixels equal Pillow's. Pillow decodes all other
files, and raises all errors.
"""

import time

import numpy as np
import PIL.features
import PIL.Image
import torch
from numpy.typing import NDArray

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.jpeg import JpegHeader, count_scans, jpeg_reduction, usual_header
from lensbox.runtime.images.limits import ImageLimits
from lensbox.runtime.images.orientation import exif_orientation, upright_array, upright_box, upright_size
from lensbox.runtime.images.photo import Photo

try:
    import simplejpeg
except ImportError:  # an extra: "fast"
    simplejpeg = None

# Both must use libjpeg-turbo: IJG's libjpeg gives other pixels at reduced scales.
_IS_USABLE = simplejpeg is not None and bool(PIL.features.check_feature("libjpeg_turbo"))

# A running call cannot be stopped; it takes a third of a second for noise. Phones store 12 million pixels.
_MAX_PIXELS = 1 << 24
_MAX_SCANNED_BLOCKS = 1 << 22

# For a smaller side simplejpeg could choose a smaller scale: 7/8 of 7 pixels, rounded up, is 7.
_MIN_SIDE = 16


def decode_usual_jpeg(
    file: bytes, canvas: Canvas | None, reading: Reading, limits: ImageLimits
) -> Photo | None:
    """Decode an intact, usual JPEG file within limits as `decode_photo` does; None for all other files."""
    if not _IS_USABLE:
        return None
    header = usual_header(file)
    if header is None or not _is_affordable(file, header, limits):
        return None
    stored = header.width, header.height
    orientation = exif_orientation(header.exif) if reading.orientation == "exif" else 1
    width, height = upright_size(stored, orientation)
    reduction = jpeg_reduction(width, height, canvas, reading.jpeg_oversampling)
    is_gray = header.components == 1 or (canvas is not None and canvas.channels == 1)
    columns, rows = (-(-side // reduction) for side in stored)
    try:
        # strict: libjpeg's warnings are errors.
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
            file, "GRAY" if is_gray else "RGB", min_height=rows, min_width=columns, min_factor=1, strict=True
        )
    except Exception:  # Pillow will report the error
        return None
    if time.monotonic() > limits.deadline or pixels.shape[:2] != (rows, columns):
        return None
    covered = (0, 0, columns * reduction, rows * reduction)
    window = upright_box(covered, stored, orientation)
    # numpy rotates and permutes: each call of torch would release the GIL, and wait to get it back.
    upright = np.ascontiguousarray(upright_array(pixels, orientation))
    return Photo(torch.from_numpy(upright.transpose(2, 0, 1)), width, height, window)


def is_quick_jpeg(file: bytes, most_pixels: int) -> bool:
    """Return whether a file is a usual JPEG of few pixels and one scan."""
    header = usual_header(file) if _IS_USABLE else None
    return header is not None and not header.has_more_scans and header.width * header.height <= most_pixels


def _is_affordable(file: bytes, header: JpegHeader, limits: ImageLimits) -> bool:
    """Return whether the file is within all limits, and decodes so fast that the deadline can be ignored."""
    pixels = header.width * header.height
    most = min(_MAX_PIXELS, limits.max_pixels)
    if PIL.Image.MAX_IMAGE_PIXELS is not None:
        most = min(most, PIL.Image.MAX_IMAGE_PIXELS)
    if min(header.width, header.height) < _MIN_SIDE or pixels > most:
        return False
    if not header.has_more_scans:
        return True
    scans = 64 * _MAX_SCANNED_BLOCKS // pixels
    try:
        return count_scans(file, scans) <= scans
    except InputError:
        return False
