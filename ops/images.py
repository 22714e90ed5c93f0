"""Python functions of the image ops: names, types and documentation."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lensbox.common.canvas import Filter, Fit, Order


class FittedImages(NamedTuple):
    """The result of `fit`: a canvas and its geometry for each image."""

    canvases: Tensor
    geometry: Tensor


def letterbox(
    images: Sequence[Tensor], height: int, width: int, channels: int = 1, fill: int = 0
) -> FittedImages:
    """Scale images to fit canvases of one size: aspect kept, centred, padded with `fill`.

    This is the case of `fit` that detectors use if their specification names no other one. The side that
    limits fills the canvas; the other is rounded half up, and at least 1; an odd pixel of padding lies below
    or to the right. Pixels that lie interleaved, as decoders give them, are the fast path: `[H, W, C]` memory
    seen through `permute(2, 0, 1)`.

    images, height, width, fill: as for `fit`. channels: 1 for gray, 3 for RGB. Returns what `fit` returns.

    Raises:
        RuntimeError, TypeError, ValueError: an argument out of its rule, named in the message.
    """
    if channels not in (1, 3):
        raise ValueError(f"lensbox::fit: channels must be 1 or 3, got {channels}")
    return fit(images, height, width, order="gray" if channels == 1 else "rgb", fill=fill)


def fit(
    images: Sequence[Tensor],
    height: int,
    width: int,
    fit: Fit = "letterbox",
    filter: Filter = "bilinear",  # noqa: A002 (the name of the op's argument)
    order: Order = "rgb",
    fill: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    dtype: torch.dtype | None = None,
) -> FittedImages:
    """Scale images of any sizes to canvases of one size, with Pillow's or OpenCV's pixels.

    On CPU and CUDA, every byte is that of Pillow 13's `resize(..., FILTER)`, after `convert("L")` for gray;
    for "opencv_linear", that of OpenCV's `cv2.resize(..., interpolation=cv2.INTER_LINEAR)`.
    `fit="letterbox", filter="bilinear"` is `letterbox`.

    Args:
        images: at least one, uint8 `[C, H, W]` with C = 1 (gray), 3 (RGB) or 4 (RGBA, alpha ignored), sides
            from 1 to 2^24 pixels, of any strides.
        height, width: of the canvases in pixels, 1 to 16384.
        fit: "letterbox" keeps the aspect and pads (see `letterbox`); "stretch" makes each side fit; "crop"
            keeps the aspect, covers the canvas and shows the centre: torchvision's `Resize` of the shorter
            side and `CenterCrop` for a square canvas. "ultralytics" is a letterbox with the sides of
            ultralytics' `LetterBox(auto=False)`, rounded half to even; "ultralytics_shrink" the same with
            `scaleup=False`: a smaller image keeps its size.
        filter: of Pillow's `Resampling`, or "opencv_linear", which has no antialiasing.
        order: of the canvas's channels: "gray" for one channel, "rgb", or "bgr".
        fill: level of the padding of a letterbox, 0 to 255.
        mean, std: one number for each channel of the canvas, in its order, for levels from 0 to 1; std above
            0. By default 0 and 1.
        dtype: uint8 for levels; float32, float16 or bfloat16 for (level / 255 - mean) / std, each step
            rounded to float32, the result to the dtype. By default uint8, or float32 with a mean or std.

    Returns:
        canvases, `[B, C, height, width]` of the dtype, and geometry, float32 `[B, 6]`:
        (scale_x, scale_y, offset_x, offset_y, width, height) with canvas = image * scale + offset, in pixels.
        There is no gradient.

    Raises:
        RuntimeError, TypeError, ValueError: an argument out of its rule, named in the message.
    """
    return FittedImages(
        *torch.ops.lensbox.fit(list(images), height, width, fit, filter, order, fill, mean, std, dtype)
    )


def resize(
    images: Sequence[Tensor],
    height: int,
    width: int,
    filter: Filter = "bicubic",  # noqa: A002 (as in `fit`)
    order: Order = "rgb",
) -> Tensor:
    """Return images of any sizes as one batch, resized as Pillow's `resize((width, height), FILTER)` does.

    `filter="opencv_linear"`: as `cv2.resize(image, (width, height))` does.

    images, height, width, filter, order: as for `fit`. Returns uint8 `[B, C, height, width]`. Raise what
    `fit` raises.
    """
    return fit(images, height, width, "stretch", filter, order).canvases
