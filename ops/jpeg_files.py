"""Decode JPEG files to tensors: on a GPU the files that it decodes exactly, else on the CPU."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lensbox.common.errors import InputError

# nvJPEG's hardware is slower on fewer files than on a batch; beyond this a call only keeps more memory.
_BATCH = 256


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

    Raises:
        InputError: a file is no JPEG file, is damaged, is larger than Pillow allows, or is another tensor.
            The message has its index or path.
        ValueError: another mode.
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
        content = file if isinstance(file, bytes) else Path(file).read_bytes()
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
