"""Encode images for a service."""

import io
from pathlib import Path
from typing import cast

import numpy as np
import PIL.Image

from lensbox.common.pictures import ColorOrder, ImageFile, Picture, content_of, picture_pixels, require_rgb

Image = ImageFile | Picture


def image_bytes(image: Image, color_order: ColorOrder = "RGB") -> bytes:
    """Return the bytes of an image file: a PNG file for Pillow images and arrays, else the file itself.

    image: a path, what `content_of` takes, or what `picture_pixels` takes. Raise TypeError, ValueError, or
    OSError for an unreadable file.
    """
    if isinstance(image, np.ndarray | PIL.Image.Image):
        buffer = io.BytesIO()
        # Level 1: compressing at higher levels usually takes longer than the network saves.
        PIL.Image.fromarray(picture_pixels(image, "image", color_order)).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
    require_rgb("image", color_order)
    content = content_of(image, "image")
    return Path(cast(str, image)).read_bytes() if content is None else content
