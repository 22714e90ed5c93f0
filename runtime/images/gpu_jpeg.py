"""Decode JPEG files with the decoder in a GPU's hardware, in batches, where its pixels are libjpeg-turbo's.

nvJPEG, the library that reaches it, comes with torchvision, with CUDA, and as the package nvidia-nvjpeg.
Other kinds of files, damaged files and other machines are left to the CPU.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lensbox.common.canvas import Canvas
from lensbox.common.errors import DeviceError
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.core import gpu_header
from lensbox.runtime.images.orientation import upright_tensor
from lensbox.runtime.images.photo import Photo

Decode = Literal["auto", "cpu", "gpu"]

# An H100 decodes 16 files 1.3 times as fast as 8 threads on 16 CPU cores, and 4 files 0.8 times as fast.
_LEAST_BATCH = 16


class CodedPhoto(NamedTuple):
    """A JPEG file that a GPU may decode.

    source: what it was read from; "" for a file of a service. file: uint8 [N] on the CPU, or N bytes.
    width, height: of the upright photograph.
    """

    source: str | Path | bytes
    file: Tensor | memoryview
    orientation: int
    width: int
    height: int


def coded_photo(
    file: bytes | bytearray | Tensor, canvas: Canvas, reading: Reading, source: str | Path | bytes = ""
) -> CodedPhoto | None:
    """Return a file for `decoded_pixels`, not copied; None if size or header shows that the CPU must decode.

    For front ends, which do not load the op library: `decoded_pixels` rejects further files.
    """
    content = file.numpy().data if isinstance(file, Tensor) else memoryview(file)
    header = gpu_header(content, canvas, reading)
    if header is None:
        return None
    held = file if isinstance(file, Tensor) else content
    return CodedPhoto(source, held, header.orientation, header.width, header.height)


def file_tensor(file: memoryview) -> Tensor:
    """Return the bytes of a file as a tensor, uint8 [N]; a copy if they are read-only."""
    if not file:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.frombuffer(bytearray(file) if file.readonly else file, dtype=torch.uint8)


def decoded_pixels(photos: Sequence[CodedPhoto], device: torch.device, canvas: Canvas) -> list[Tensor]:
    """Decode a batch: the pixels as stored, uint8 [C, H, W]; empty if the file is damaged or refused.

    Decode luma alone for a gray canvas; else RGB, or luma for gray files. The pixels are ready for the
    current stream.
    """
    if not photos:
        return []
    jpeg = torch.ops.lensbox_jpeg
    decode = jpeg.decode_luma if canvas.channels == 1 else jpeg.decode_rgb
    files = [photo.file if isinstance(photo.file, Tensor) else file_tensor(photo.file) for photo in photos]
    pixels: list[Tensor] = decode(files, device)
    return pixels


def decoded_photos(pixels: Sequence[Tensor], photos: Sequence[CodedPhoto]) -> list[Photo | None]:
    """Return the result of `decoded_pixels` as upright photographs; None for each file without pixels."""
    return [
        Photo.of(upright_tensor(one, photo.orientation)) if one.numel() else None
        for one, photo in zip(pixels, photos, strict=True)
    ]


def coded_photos(
    sources: Sequence[str | Path | bytes], canvas: Canvas, reading: Reading
) -> list[CodedPhoto | None]:
    """Read several files in one call without the GIL; None for each file that the CPU must decode."""
    # torch takes no lone surrogates. No file has an empty path.
    paths = ["" if isinstance(one, bytes) or not str(one).isprintable() else str(one) for one in sources]
    return [
        coded_photo(
            file_tensor(memoryview(source)) if isinstance(source, bytes) else file, canvas, reading, source
        )
        for source, file in zip(sources, torch.ops.lensbox_jpeg.read_files(paths), strict=True)
    ]


def decodes_on_gpu(device: torch.device, decode: Decode, batch_size: int) -> bool:
    """Return whether a GPU decodes JPEG files for a detector.

    decode: "auto" uses the GPU where it can decode, for batches so large that the GPU is faster than the CPU.
    Raise ValueError for another word, and DeviceError if the GPU must decode but cannot.
    """
    if decode not in ("auto", "cpu", "gpu"):
        raise ValueError(f"decode must be 'auto', 'cpu' or 'gpu', got {decode!r}")
    if decode == "cpu" or (decode == "auto" and batch_size < _LEAST_BATCH):
        return False
    if device.type != "cuda":
        fault = f"the detector is on the device {device.type}"
    # Not imported here: a detector that needs no op library has none loaded.
    elif not hasattr(torch.ops.lensbox_jpeg, "decoder_fault"):
        fault = "the op library, which calls nvJPEG, is not loaded"
    else:
        fault = torch.ops.lensbox_jpeg.decoder_fault(device)
    if fault and decode == "gpu":
        raise DeviceError(f"decode must be 'auto' or 'cpu' here, got 'gpu': {fault}")
    return not fault
