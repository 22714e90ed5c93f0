"""The image reader for JPEG and PNG files, in C++ (`cpp_runtime/core/images`), which all runtimes share.

Its functions run without Python's lock (GIL), except those that only look at a header.
"""

import ctypes
import math
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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


# The structs and outcomes of c_interface.h.


class _Reading(ctypes.Structure):
    _fields_ = (
        ("canvas_width", ctypes.c_int64),
        ("canvas_height", ctypes.c_int64),
        ("canvas_channels", ctypes.c_int64),
        ("fit", ctypes.c_char_p),
        ("jpeg_oversampling", ctypes.c_int64),
        ("is_stored", ctypes.c_int32),
    )


class _Limits(ctypes.Structure):
    _fields_ = (
        ("max_pixels", ctypes.c_int64),
        ("max_png_bytes", ctypes.c_int64),
        ("deadline", ctypes.c_double),
    )


class _Image(ctypes.Structure):
    _fields_ = (
        ("width", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("window", ctypes.c_int64 * 4),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("pixels", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
    )


class _Header(ctypes.Structure):
    _fields_ = (
        ("width", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("orientation", ctypes.c_int32),
    )


_BAD, _TOO_MANY_PIXELS, _TIMEOUT, _OUT_OF_MEMORY, _INTERNAL = range(1, 6)
_ERRORS: dict[int, type[Exception]] = {
    _BAD: InputError,
    _TOO_MANY_PIXELS: TooManyPixelsError,
    _TIMEOUT: TimeoutError,
    _OUT_OF_MEMORY: MemoryError,
    _INTERNAL: RuntimeError,
}
_REASON_SIZE = 512
_LARGEST = 2**63 - 1


class ImageHeader(NamedTuple):
    """The header of a file. width, height: of the pixels as stored. orientation: EXIF's, 1 to 8."""

    width: int
    height: int
    orientation: int


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
    file = (ctypes.c_void_p, ctypes.c_size_t)
    reason = (ctypes.c_char_p, ctypes.c_size_t)
    image, header = ctypes.POINTER(_Image), ctypes.POINTER(_Header)
    reading, limits = ctypes.POINTER(_Reading), ctypes.POINTER(_Limits)
    library.lensbox_image_read.argtypes = (*file, reading, limits, image, *reason)
    library.lensbox_image_free.argtypes = (ctypes.c_void_p,)
    library.lensbox_image_free.restype = None
    library.lensbox_image_read_header.argtypes = (*file, limits, header, *reason)
    library.lensbox_image_is_for_gpu.argtypes = (*file, header)
    library.lensbox_image_reduction.argtypes = (ctypes.c_int64, ctypes.c_int64, reading)
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
    image, reason = _Image(), ctypes.create_string_buffer(_REASON_SIZE)
    content = _bytes(file)
    outcome = _library(False).lensbox_image_read(
        *_address(content), _reading(canvas, reading), _limits(limits), image, reason, _REASON_SIZE
    )
    _check(outcome, reason)
    # Not torch.frombuffer: each call of torch would release the GIL, and wait to get it back.
    pixels = torch.from_numpy(np.asarray(_Memory(image)).transpose(2, 0, 1))
    left, top, right, bottom = image.window
    return Photo(pixels, image.width, image.height, (left, top, right, bottom))


def read_coded_header(file: Buffer, limits: ImageLimits) -> ImageHeader:
    """Read the header of a JPEG or PNG file. Raise InputError and TooManyPixelsError."""
    header, reason = _Header(), ctypes.create_string_buffer(_REASON_SIZE)
    content = _bytes(file)
    _check(
        _library(True).lensbox_image_read_header(
            *_address(content), _limits(limits), header, reason, _REASON_SIZE
        ),
        reason,
    )
    return _as_tuple(header)


def gpu_header(file: Buffer) -> ImageHeader | None:
    """Return the header of a JPEG file that a GPU may decode, as the op `lensbox_jpeg::headers` finds it."""
    header, content = _Header(), _bytes(file)
    is_accepted = _library(True).lensbox_image_is_for_gpu(*_address(content), header)
    return _as_tuple(header) if is_accepted else None


def jpeg_reduction(width: int, height: int, canvas: Canvas | None, oversampling: int) -> int:
    """Return r = 1, 2, 4 or 8: a JPEG file is decoded at the scale 1/r for a canvas.

    width, height: of the upright photograph. r is the largest one for which ceil(width / r) and
    ceil(height / r) are at least `oversampling` times the size in the canvas; 1 if `oversampling` is 0, and
    without a canvas.
    """
    reading = _reading(canvas, Reading(jpeg_oversampling=oversampling))
    return int(_library(True).lensbox_image_reduction(width, height, reading))


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
    is_stored = reading.orientation == "stored"
    if canvas is None:
        return _Reading(1, 1, 3, b"letterbox", 0, is_stored)
    size = canvas.width, canvas.height, canvas.channels
    return _Reading(*size, canvas.fit.encode(), reading.jpeg_oversampling, is_stored)


def _limits(limits: ImageLimits) -> _Limits:
    most = (limits.max_pixels, limits.max_png_bytes)
    return _Limits(*(_LARGEST if limit == math.inf else int(limit) for limit in most), limits.deadline)


def _check(outcome: int, reason: Any) -> None:
    if outcome:
        raise _ERRORS[outcome](reason.value.decode(errors="replace"))


def _as_tuple(header: _Header) -> ImageHeader:
    return ImageHeader(header.width, header.height, header.orientation)
