"""Decode images in a few threads, and refuse files early that would be expensive to decode."""

import asyncio
import contextvars
import math
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import PIL.Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.WebPImagePlugin import WebPImageFile

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.limits import ImageLimits, TooManyPixelsError
from lensbox.runtime.images.photo import Photo
from lensbox.serve.errors import ApiError, DeadlineError, NotReadyError, shortened
from lensbox.serve.settings import Settings

# Enough for a screenshot of 1920 x 1080, the typical use of run-length coding.
MAX_RUN_LENGTH_PIXELS = 1 << 21

# Limit of inflated bytes: 40 million pixels of RGB, 30 million of RGBA, 15 million of RGBA with 16 bits per
# sample. The slowest such PNG takes 1.6 s of a thread.
MAX_PNG_BYTES = 120_000_000


# Offset, content, format, and Pillow's reader, which is not called for JPEG and PNG; None: known, but not
# supported. Few formats on purpose, because every decoder reads untrusted bytes.
_SIGNATURES: tuple[tuple[int, bytes, str, Callable[[Any], PIL.Image.Image] | None], ...] = (
    (0, b"\xff\xd8\xff", "JPEG", PIL.Image.open),
    (0, b"\x89PNG\r\n\x1a\n", "PNG", PIL.Image.open),
    (8, b"WEBP", "WebP", WebPImageFile),
    (0, b"BM", "BMP", BmpImageFile),
    (0, b"GIF8", "GIF", GifImageFile),
    (0, b"II*\x00", "TIFF", None),
    (0, b"MM\x00*", "TIFF", None),
    (4, b"ftyp", "HEIF, AVIF or MP4", None),
    (0, b"%PDF", "PDF", None),
    (0, b"<svg", "SVG", None),
)
_LONGEST_NAME = 256  # bytes; a shorter text may be a name, sent in place of the file
_SUPPORTED = ", ".join(name for _, _, name, reader in _SIGNATURES if reader)

Returned = TypeVar("Returned")


class Decoders:
    """A pool of `decode_threads` threads that decode image files, each for at most `answer_timeout` seconds.

    on_decoded: called in the thread with the seconds that an image took, and the model.
    """

    def __init__(
        self, settings: Settings, on_decoded: Callable[[float, str], None] = lambda seconds, model: None
    ) -> None:
        self._settings = settings
        self._on_decoded = on_decoded
        self._pool = ThreadPoolExecutor(settings.decode_threads, thread_name_prefix="lensbox-decode")
        self._limits: dict[int, float] = {}  # by thread: when its image counts as stuck

    async def decode(
        self, file: bytes, canvas: Canvas | None, reading: Reading, deadline: float, model: str = ""
    ) -> Photo:
        """Decode a file in a thread, as `photo_from_file` does. Cancel the call to drop a file that waits.

        deadline: of the request, on the clock of `time.monotonic`.
        """
        limit = time.monotonic() + self._settings.answer_timeout

        def decode() -> Photo:
            thread, start = threading.get_ident(), time.monotonic()
            # Not the client's deadline, because short deadlines would make all threads look stuck.
            self._limits[thread] = limit
            try:
                return photo_from_file(file, canvas, reading, self._settings.max_pixels, min(deadline, limit))
            finally:
                del self._limits[thread]
                self._on_decoded(time.monotonic() - start, model)

        return await in_thread(self._pool, decode)

    def check(self) -> None:
        """Raise NotReadyError if every thread is busy with an image past its time limit."""
        now = time.monotonic()
        if sum(limit < now for limit in list(self._limits.values())) == self._settings.decode_threads:
            raise NotReadyError("all decoding threads are stuck in images that take too long")

    def stop(self) -> None:
        """Drop waiting images. Do not wait for images that are being decoded."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def in_thread(pool: ThreadPoolExecutor, function: Callable[..., Returned], *arguments: Any) -> Returned:
    """Call a function in a pool, with the IDs for logs and traces. Cancel the call to drop one that waits."""
    call = partial(contextvars.copy_context().run, function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(pool, call)


def photo_from_file(
    file: bytes, canvas: Canvas | None, reading: Reading, max_pixels: int, deadline: float = math.inf
) -> Photo:
    """Return the photograph in a file, decoded for a canvas as `decode_photo` does.

    deadline: when to give up, on the clock of `time.monotonic`. Raise DeadlineError; ApiError: 400 for an
    undecodable file, 413 for more than `max_pixels` pixels, 415 for an unsupported format.
    """
    limits = ImageLimits(
        max_pixels=max_pixels,
        max_run_length_pixels=MAX_RUN_LENGTH_PIXELS,
        max_png_bytes=MAX_PNG_BYTES,
        deadline=deadline,
    )
    try:
        return decode_photo(file, canvas, reading, limits, _reader(file))
    except TooManyPixelsError as error:
        raise ApiError(413, "too_many_pixels", str(error)) from error
    except TimeoutError as error:
        raise DeadlineError(f"{error}; try again later") from error
    except InputError as error:
        message = f"the image must be a complete, valid file: {error}"
        raise ApiError(400, "undecodable_image", message) from error


def _reader(file: bytes) -> Callable[[Any], PIL.Image.Image]:
    if not file:
        raise ApiError(400, "empty_image", "the image must not be empty, got 0 bytes")
    for offset, content, name, reader in _SIGNATURES:
        if file.startswith(content, offset):
            if reader is None:
                rule = f"the image must be one of {_SUPPORTED}"
                raise ApiError(415, "unsupported_format", f"{rule}, got {name}")
            return reader
    got = f"{len(file)} bytes that begin with {shortened(file[:8])}"
    if len(file) <= _LONGEST_NAME and file.isascii() and (text := file.decode("ascii").strip()).isprintable():
        got = f"the text {shortened(text)}"
        if re.search(r"\.\w+$", text):
            got += "; curl sends a file with --data-binary @photo.jpg"
    raise ApiError(400, "undecodable_image", f"the image must be one of {_SUPPORTED}, got {got}")
