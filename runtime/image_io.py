"""Reading image files."""

import io
from pathlib import Path

import numpy as np
import PIL.Image
import torch
from torch import Tensor


def read_image(source: str | Path | bytes) -> Tensor:
    """Decodes an image file to uint8 [C, H, W]: C = 1 (gray), 3 (RGB) or 4 (RGBA).

    source: a path, or the bytes of a file. Other color modes are converted: palettes and CMYK to RGB, one bit
    and 16 bit to gray levels of 8 bit. As in the C++ runner, it is not rotated by EXIF.
    Raises FileNotFoundError if there is no such file and ValueError, naming the file, if it is not an image
    that Pillow can decode (or one of more than 179 million pixels, which Pillow refuses).
    """
    name = "the image data" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise FileNotFoundError(f"source must be an image file, got {name}")
    try:
        with PIL.Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            pixels = _to_pixels(image)
    # Pillow's decoders raise SyntaxError for a damaged PNG and OSError or ValueError for most others.
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        raise ValueError(f"{name} must be an image that Pillow can decode: {error}") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _to_pixels(image: PIL.Image.Image) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    if image.mode.startswith("I"):
        # 16-bit gray. Pillow's own conversion would clip at 255 instead of dropping the low byte.
        return (np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)[..., None]
    if image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("L" if image.mode in ("1", "LA", "La", "F") else "RGB")
    pixels = np.array(image, dtype=np.uint8)
    return pixels.reshape(image.height, image.width, -1)
