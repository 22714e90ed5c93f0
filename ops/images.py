"""Python functions of the image ops: names, types and documentation; JPEG files as tensors."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lensbox.common.canvas import Filter, Fit, Order
from lensbox.common.errors import InputError
from lensbox.common.files import read_regular

# nvJPEG's hardware is slower on fewer files than on a batch; beyond this a call only keeps more memory.
_BATCH = 256


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

    Raise RuntimeError, TypeError or ValueError for an argument out of its rule, which the message names.
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

    Raise RuntimeError, TypeError or ValueError for an argument out of its rule, which the message names.
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


class DecodedFiles(NamedTuple):
    """The result of `decode_jpeg`.

    images: uint8 [C, H, W] of each file, in order. decoded_on_cpu: the number of files that the CPU decoded.
    """

    images: list[Tensor]
    decoded_on_cpu: int


def decode_jpeg(
    files: Sequence[bytes | str | Path | Tensor],
    device: torch.device | str = "cpu",
    mode: Literal["gray", "rgb"] = "rgb",
) -> DecodedFiles:
    """Decode JPEG files of any sizes. The pixels equal Pillow's to the byte, on CPU and CUDA.

    A GPU with a JPEG decoder decodes the baseline files that it is known to decode exactly. The CPU decodes
    all other files with Pillow, and their pixels are copied to the device.

    Args:
        files: bytes of files, paths, or uint8 [N] on the CPU.
        device: of the images. For "cpu", and a GPU without such a decoder, the CPU decodes all files.
        mode: "gray" for one channel, the file's luma (Pillow's `draft("L", ...)`); "rgb" for three.

    Returns:
        the images, uint8 [C, H, W] each, as they are stored (EXIF orientation is not applied), on the device,
        ready for its current stream; and the number of files that the CPU decoded. `fit` and `resize` make
        one batch of the images.

    Raise InputError for a file that is no JPEG file, is damaged, or is larger than Pillow allows, and for
    another tensor, with its index or path; ValueError for another mode.
    """
    if mode not in ("gray", "rgb"):
        raise ValueError(f"mode must be 'gray' or 'rgb', got {mode!r}")
    device = torch.device(device)
    jpeg = torch.ops.lensbox_jpeg
    # torch takes no lone surrogates. No file has an empty path.
    paths = [str(file) if isinstance(file, (str, Path)) and str(file).isprintable() else "" for file in files]
    read = jpeg.read_files(paths)  # in one call without the GIL
    contents = [
        found if found.numel() else _content(file, index)
        for index, (file, found) in enumerate(zip(files, read, strict=True))
    ]
    images: list[Tensor] = []
    if device.type == "cuda" and not jpeg.decoder_fault(device):
        decode = jpeg.decode_luma if mode == "gray" else jpeg.decode_rgb
        for start in range(0, len(contents), _BATCH):
            images += decode(contents[start : start + _BATCH], device)
    images = images or [torch.empty(0, dtype=torch.uint8)] * len(contents)
    on_cpu = 0
    for index, (file, content, image) in enumerate(zip(files, contents, images, strict=True)):
        if image.numel() == 0:
            on_cpu += 1
            images[index] = _decoded(content, mode, _name(file, index)).to(device)
        elif mode == "rgb" and image.shape[0] == 1:
            images[index] = image.expand(3, -1, -1)
    return DecodedFiles(images, on_cpu)


def _name(file: bytes | str | Path | Tensor, index: int) -> str:
    return str(file) if isinstance(file, (str, Path)) else f"files[{index}]"


def _content(file: bytes | str | Path | Tensor, index: int) -> Tensor:
    """Return the bytes of a file, uint8 [N] on the CPU."""
    if isinstance(file, Tensor):
        if file.dtype != torch.uint8 or file.dim() != 1 or file.device.type != "cpu":
            got = f"{file.dtype} {list(file.shape)} on {file.device}"
            raise InputError(f"{_name(file, index)} must be uint8 [N] on the CPU, got {got}")
        return file.contiguous()
    try:
        content = file if isinstance(file, bytes) else read_regular(file)
    except OSError as error:
        raise InputError(f"cannot read {_name(file, index)}: {error.strerror}") from error
    if not content:
        raise InputError(f"{_name(file, index)} must be a JPEG file, got an empty file")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _decoded(content: Tensor, mode: str, name: str) -> Tensor:
    """Decode a file with Pillow, which is imported when the first file needs it."""
    import numpy as np
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(content.numpy().tobytes()), formats=["JPEG"]) as image:
            if mode == "gray":
                image.draft("L", image.size)
            pixels = np.array(image.convert("L" if mode == "gray" else "RGB"))
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        raise InputError(f"{name} must be a sound JPEG file: {error}") from error
    found = torch.from_numpy(pixels)
    return found.unsqueeze(0) if mode == "gray" else found.permute(2, 0, 1)
