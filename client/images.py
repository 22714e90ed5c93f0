"""Encode images for a service."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

Image = str | Path | bytes | PIL.Image.Image | NDArray[np.uint8]
# Modes that PNG stores. Pillow converts all others to RGB.
_PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")


def image_bytes(image: Image) -> bytes:
    """Return the bytes of an image file.

    image: a path; the bytes of a file; a Pillow image; or uint8 [H, W] (gray), [H, W, 3] (RGB) or [H, W, 4]
    (RGBA). The last two become PNG files. Raise TypeError, ValueError, or OSError for an unreadable file.
    """
    if isinstance(image, (str, Path)):
        return Path(image).read_bytes()
    if isinstance(image, bytes):
        return image
    if isinstance(image, np.ndarray):
        return _png(_picture(image))
    if isinstance(image, PIL.Image.Image):
        try:
            image.load()  # Pillow reads files lazily
        except Exception as error:  # decoders raise a dozen types on broken files
            raise ValueError(f"image must be a whole picture: {error or type(error).__name__}") from error
        return _png(image if image.mode in _PNG_MODES else image.convert("RGB"))
    raise TypeError(
        f"image must be a path, the bytes of a file, a Pillow image or an array, got {type(image).__name__}"
    )


def _picture(pixels: NDArray[Any]) -> PIL.Image.Image:
    if pixels.dtype != np.uint8:
        raise ValueError(f"image must be uint8, got {pixels.dtype}")
    is_gray = pixels.ndim == 2
    if 0 in pixels.shape or not (is_gray or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        shape = list(pixels.shape)
        raise ValueError(f"image must have the shape [H, W], [H, W, 3] or [H, W, 4], got {shape}")
    return PIL.Image.fromarray(np.ascontiguousarray(pixels))


def _png(picture: PIL.Image.Image) -> bytes:
    buffer = io.BytesIO()
    # Level 1: compressing at higher levels usually takes longer than the network saves.
    picture.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
