"""Python function of the image op: names, types and documentation."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class LetterboxedImages(NamedTuple):
    """The result of `letterbox`: a canvas and its geometry for each image."""

    canvases: Tensor
    geometry: Tensor


def letterbox(
    images: Sequence[Tensor], height: int, width: int, channels: int = 1, fill: int = 0
) -> LetterboxedImages:
    """Scale images of any sizes to fit canvases of one size: aspect kept, centred, padded with `fill`.

    The side that limits fills the canvas; the other is rounded half up, and at least 1; an odd pixel of
    padding lies below or to the right. Gray levels and resampling equal Pillow's to the byte:
    `convert("L")` (ITU-R BT.601 luma) and `resize(..., BILINEAR)`, a triangle filter as wide as the
    reduction. CPU and CUDA give the same bytes.

    Args:
        images: at least one, uint8 `[C, H, W]` with C = 1 (gray), 3 (RGB) or 4 (RGBA, alpha ignored), sides
            from 1 to 2^24 pixels, of any strides. Pixels that lie interleaved, as decoders give them, are the
            fast path: `[H, W, C]` memory seen through `permute(2, 0, 1)`.
        height, width: of the canvases in pixels, 1 to 16384.
        channels: of the canvases: 1 for gray, 3 for RGB (a gray image gives three equal channels).
        fill: gray level of the padding, 0 to 255.

    Returns:
        canvases, uint8 `[B, channels, height, width]`, and geometry, float32 `[B, 6]`:
        (scale_x, scale_y, offset_x, offset_y, width, height) with canvas = image * scale + offset, in pixels.
        Bytes have no gradient.

    Raises:
        RuntimeError, TypeError, ValueError: an argument out of its rule, named in the message.
    """
    return LetterboxedImages(*torch.ops.lensbox.letterbox(list(images), height, width, channels, fill))
