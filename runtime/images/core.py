"""The image reader for JPEG and PNG files, in C++ (`cpp_runtime/core/images`), which all runtimes share.

Its functions run without Python's lock (GIL), except those that only look at a header.
"""

import ctypes
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lensbox.common.canvas import Canvas
from lensbox.common.errors import ExitCode, InputError, LensboxError
from lensbox.common.machine import library_folders
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.limits import ImageLimits, TooManyPixelsError
from lensbox.runtime.images.photo import Photo

LIBRARY_NAME = "liblensbox_images.so"
LIBRARY_VARIABLE = "LENSBOX_IMAGES_LIBRARY"

Buffer = bytes | bytearray | memoryview


class ImageLibraryError(LensboxError, ImportError):
    """The image reader is missing, or cannot be loaded."""

    exit_code = ExitCode.UNUSABLE


# The version, the structs and the outcomes of c_interface.h.
_INTERFACE = 1


def _integers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_int64) for name in names]


class _Reading(ctypes.Structure):
    _fields_ = (
        *_integers("canvas_width", "canvas_height", "canvas_channels", "jpeg_oversampling", "is_stored"),
        ("fit", ctypes.c_char_p),
    )


class _Limits(ctypes.Structure):
    _fields_ = (*_integers("max_pixels", "max_png_bytes"), ("deadline", ctypes.c_double))


class _Image(ctypes.Structure):
    _fields_ = (
        *_integers("width", "height", "left", "top", "right", "bottom", "rows", "columns", "channels"),
        ("pixels", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
    )


class ImageHeader(ctypes.Structure):
    """The header of a file. width, height: in pixels. orientation: EXIF's, 1 to 8."""

    _fields_ = _integers("width", "height", "orientation")
    width: int
    height: int
    orientation: int


_ERRORS = (None, InputError, TooManyPixelsError, TimeoutError, MemoryError, RuntimeError)
_REASON_SIZE = 512
_LARGEST = 2**63 - 1
_NO_CANVAS = Canvas(1, 1, 3)


def library_path() -> Path:
    """Return the file that LENSBOX_IMAGES_LIBRARY names, otherwise the installed one.

    Raise ImageLibraryError if there is none.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    folders = library_folders("runtime/images")
    candidates = [Path(named)] if named else [folder / LIBRARY_NAME for folder in folders]
    for path in candidates:
        if path.is_file():
            return path
    looked = ", ".join(str(path) for path in candidates)
    remedy = f"set {LIBRARY_VARIABLE} to the file" if named else "build it with: pip install ."
    raise ImageLibraryError(
        f"lensbox's image reader was not found. Looked at: {looked}. To fix this, {remedy}"
    )


@cache
def _library(holds_lock: bool) -> Any:
    """Return the open library. holds_lock: keep the GIL, for calls of microseconds."""
    path = library_path()
    try:
        library = ctypes.PyDLL(str(path)) if holds_lock else ctypes.CDLL(str(path))
    except OSError as error:
        raise ImageLibraryError(f"lensbox's image reader, {path}, could not be loaded: {error}") from error
    # A library without the function is older than the function, or another one.
    found = library.lensbox_image_interface() if hasattr(library, "lensbox_image_interface") else None
    if found != _INTERFACE:
        raise ImageLibraryError(
            f"{path} is not the image reader of this version of lensbox (interface {found}, not "
            f"{_INTERFACE}). Build it again with: pip install ."
        )
    file, reason = (ctypes.c_void_p, ctypes.c_size_t), (ctypes.c_char_p, ctypes.c_size_t)
    reading, limits, image, header = map(ctypes.POINTER, (_Reading, _Limits, _Image, ImageHeader))
    library.lensbox_image_read.argtypes = (*file, reading, limits, image, *reason)
    library.lensbox_image_free.argtypes = (ctypes.c_void_p,)
    library.lensbox_image_free.restype = None
    library.lensbox_image_read_header.argtypes = (*file, limits, header, *reason)
    library.lensbox_image_is_for_gpu.argtypes = (*file, reading, header)
    library.lensbox_image_exif_orientation.argtypes = file
    return library


class _Memory:
    """The memory of an image: an array of numpy keeps it, and frees it at its end."""

    def __init__(self, image: _Image) -> None:
        self._owner, self._free = image.owner, _library(True).lensbox_image_free
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (image.rows, image.columns, image.channels),
            "data": (image.pixels, False),
        }

    def __del__(self) -> None:
        self._free(self._owner)


def is_core_format(file: Buffer) -> bool:
    """Return whether a file begins like a JPEG or PNG file."""
    return bytes(file[:8]).startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))


def read_coded(file: Buffer, canvas: Canvas | None, reading: Reading, limits: ImageLimits) -> Photo:
    """Decode a JPEG or PNG file as `decode_photo` does, and raise its errors."""
    image, content = _Image(), _bytes(file)
    arguments = (*_address(content), _reading(canvas, reading), _limits(limits), image)
    _call(_library(False).lensbox_image_read, *arguments)
    # Not torch.frombuffer: each call of torch would release the GIL, and wait to get it back.
    pixels = torch.from_numpy(np.asarray(_Memory(image)).transpose(2, 0, 1))
    return Photo(pixels, image.width, image.height, (image.left, image.top, image.right, image.bottom))


def read_coded_header(file: Buffer, limits: ImageLimits) -> ImageHeader:
    """Read the header of a JPEG or PNG file, as stored. Raise InputError and TooManyPixelsError."""
    header, content = ImageHeader(), _bytes(file)
    _call(_library(True).lensbox_image_read_header, *_address(content), _limits(limits), header)
    return header


def gpu_header(file: Buffer, canvas: Canvas, reading: Reading) -> ImageHeader | None:
    """Return the header of a JPEG file that a GPU may decode, as the op `lensbox_jpeg::headers` finds it.

    width, height: of the photograph, upright if the reading turns it; otherwise the orientation is 1. None
    also for a file that the reading reduces: it is decoded at the scale 1/r, with r the largest of 1, 2, 4
    and 8 for which ceil(width / r) and ceil(height / r) are at least `jpeg_oversampling` times the size in
    the canvas, or 1 if that is 0.
    """
    header, content = ImageHeader(), _bytes(file)
    wanted = _reading(canvas, reading)
    return header if _library(True).lensbox_image_is_for_gpu(*_address(content), wanted, header) else None


def exif_orientation(exif: Buffer) -> int:
    """Return the orientation, 1 to 8, in EXIF data; 1 if it is missing or broken.

    exif: a TIFF structure, from its first byte, "II" or "MM", on. The first entry 0x0112 of the first
    directory counts, and must be one SHORT from 1 to 8. The data may be truncated behind that entry.
    """
    content = _bytes(exif)
    return int(_library(True).lensbox_image_exif_orientation(*_address(content)))


def _bytes(file: Buffer) -> Any:
    """Return the bytes as an array of numpy, which shares their memory and keeps it."""
    return np.frombuffer(file, np.uint8) if len(file) else np.empty(0, np.uint8)


def _address(content: Any) -> tuple[int, int]:
    return content.__array_interface__["data"][0], content.size


def _reading(canvas: Canvas | None, reading: Reading) -> _Reading:
    oversampling = reading.jpeg_oversampling if canvas else 0
    canvas = canvas or _NO_CANVAS
    size = canvas.width, canvas.height, canvas.channels
    return _Reading(*size, oversampling, reading.orientation == "stored", canvas.fit.encode())


def _limits(limits: ImageLimits) -> _Limits:
    most = (limits.max_pixels, limits.max_png_bytes)
    return _Limits(*(_LARGEST if limit == math.inf else int(limit) for limit in most), limits.deadline)


def _call(function: Any, *arguments: Any) -> None:
    """Call a function of the library, and raise the error for its outcome."""
    reason = ctypes.create_string_buffer(_REASON_SIZE)
    if error := _ERRORS[function(*arguments, reason, _REASON_SIZE)]:
        raise error(reason.value.decode(errors="replace"))
