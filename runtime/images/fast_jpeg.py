"""Decode usual JPEG files in one call outside of Python's lock.

Pillow takes the lock dozens of times a file, so threads that decode small photographs wait for each other.
simplejpeg, where it is installed, decodes the files for which it gives the very same pixels. All other files,
and every error, are left to Pillow.
"""

import time
from typing import Any

import numpy as np
import PIL.features
import PIL.Image
import torch
from numpy.typing import NDArray

from lensbox.artifact.metadata import Canvas, Reading
from lensbox.runtime.images.jpeg import JpegHeader, jpeg_reduction, most_scans, usual_header
from lensbox.runtime.images.limits import ImageLimits
from lensbox.runtime.images.orientation import exif_orientation, upright_array, upright_box, upright_size
from lensbox.runtime.images.photo import Photo

try:
    import simplejpeg
except ImportError:  # an extra: "fast"
    simplejpeg = None

# Both must be libjpeg-turbo: IJG's libjpeg gives other pixels at reduced scales.
_IS_USABLE = simplejpeg is not None and bool(PIL.features.check_feature("libjpeg_turbo"))

# The call cannot be ended from inside: a third of a second for noise. Phones store 12 million pixels.
_MAX_PIXELS = 1 << 24
_MAX_SCANNED_BLOCKS = 1 << 22

# For a smaller side simplejpeg could take a smaller scale: 7/8 of 7 are 7, too.
_MIN_SIDE = 16

# More pieces than Pillow would read a usual header in; behind it, pieces have 64 KiB.
_HEADER_PIECES = 1000


def decode_usual_jpeg(
    file: bytes, canvas: Canvas | None, reading: Reading, limits: ImageLimits
) -> Photo | None:
    """Decode a sound and usual JPEG file within limits as `decode_photo` does; None for all other files."""
    if not _IS_USABLE:
        return None
    header = usual_header(file)
    if header is None or not _is_affordable(file, header, limits):
        return None
    stored = header.width, header.height
    orientation = exif_orientation(header.exif) if reading.orientation == "exif" else 1
    width, height = upright_size(stored, orientation)
    reduction = 1
    if canvas is not None:
        reduction = jpeg_reduction(width, height, canvas.width, canvas.height, reading.jpeg_oversampling)
    is_gray = header.components == 1 or (canvas is not None and canvas.channels == 1)
    pixels = _decode(file, "GRAY" if is_gray else "RGB", stored, reduction)
    if pixels is None or _is_late(limits):
        return None
    covered = (0, 0, pixels.shape[1] * reduction, pixels.shape[0] * reduction)
    window = upright_box(covered, stored, orientation)
    # Turned and permuted by numpy: each call of torch would release the lock, and wait for it.
    upright = upright_array(pixels, orientation)
    return Photo(torch.from_numpy(upright.transpose(2, 0, 1)), width, height, window)


def is_quick_jpeg(file: bytes, most_pixels: int) -> bool:
    """Whether a file is a usual JPEG of few pixels and one scan."""
    header = usual_header(file) if _IS_USABLE else None
    return header is not None and not header.has_more_scans and header.width * header.height <= most_pixels


def _is_affordable(file: bytes, header: JpegHeader, limits: ImageLimits) -> bool:
    """Whether the file is within all limits, and decoded so soon that no deadline need be watched."""
    pixels = header.width * header.height
    if min(header.width, header.height) < _MIN_SIDE or pixels > _MAX_PIXELS:
        return False
    for limit, number in (
        (limits.max_pixels, pixels),
        (PIL.Image.MAX_IMAGE_PIXELS, pixels),
        (limits.max_pieces, _HEADER_PIECES + (len(file) >> 16)),
    ):
        if limit is not None and number > limit:
            return False
    return not header.has_more_scans or most_scans(file) * pixels <= 64 * _MAX_SCANNED_BLOCKS


def _is_late(limits: ImageLimits) -> bool:
    return limits.deadline is not None and time.monotonic() > limits.deadline


def _decode(file: bytes, colors: str, size: tuple[int, int], reduction: int) -> NDArray[np.uint8] | None:
    """Pixels [h, w, C] of a stored picture at the scale 1 / reduction; None if anything is wrong with it."""
    width, height = (-(-side // reduction) for side in size)
    try:
        # strict: what libjpeg would only warn of is an error.
        pixels: Any = simplejpeg.decode_jpeg(
            file, colors, min_height=height, min_width=width, min_factor=1, strict=True
        )
    except Exception:  # whatever it is, Pillow will find it, and say so
        return None
    return pixels if pixels.shape[:2] == (height, width) else None
