"""Pictures with large structures, so that detectors find something in them, and their files."""

import io
import struct
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor


def smooth_image(channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Return a random image without hard edges, uint8 [channels, height, width]."""
    coarse = torch.rand(1, channels, 12, 12, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
    return (smooth * 255).to(torch.uint8)


def noise(mode: str, width: int = 90, height: int = 70) -> PIL.Image.Image:
    """A random image, the same in every run, with large structures so that it survives being made smaller."""
    generator = np.random.default_rng(7)
    coarse = PIL.Image.fromarray(generator.integers(0, 256, (9, 11, 4), dtype=np.uint8), "RGBA")
    picture = coarse.resize((width, height), PIL.Image.Resampling.BICUBIC)
    if mode == "I;16":
        return PIL.Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 256 + 77)
    # Not RGBA to P, which quantises the alpha too.
    return picture.convert("RGB").convert(mode) if mode == "P" else picture.convert(mode)


def squares(scale: int = 1) -> Tensor:
    """Return a gray picture, uint8 [3, 96, 160], with a red square at (10, 20) and a blue one at (120, 60).

    The squares have sides of 12 pixels. scale: of everything.
    """
    picture = torch.full((3, 96, 160), 110, dtype=torch.uint8)
    for x, y, color in ((10, 20, (250, 10, 10)), (120, 60, (10, 10, 240))):
        picture[:, y : y + 12, x : x + 12] = torch.tensor(color, dtype=torch.uint8)[:, None, None]
    return picture.repeat_interleave(scale, 1).repeat_interleave(scale, 2)


def encoded(image: PIL.Image.Image, file_format: str = "JPEG", **options: Any) -> bytes:
    """Return the file of an image. options: of Pillow's `save`."""
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def jpeg_segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content
