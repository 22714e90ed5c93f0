"""Decode images in a few threads."""

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lensbox.runtime.file.metadata import Canvas, Reading
from lensbox.runtime.images.fast_jpeg import is_quick_jpeg
from lensbox.runtime.images.photo import Photo
from lensbox.serve.requests.image_file import photo_from_file

# A JPEG of this size decodes in half a millisecond to two.
_FEW_BYTES = 1 << 18
_FEW_PIXELS = 1 << 19

Submit = Callable[[Photo], "Future[Any]"]


class Decoders:
    """A pool of threads that decode image files.

    threads: number of threads. max_pixels: most pixels of an image. time_limit: seconds from `submit`
    until decoding is given up. on_decoded: called in the thread with the seconds that an image took.
    """

    def __init__(
        self,
        threads: int,
        max_pixels: int,
        time_limit: float,
        on_decoded: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._threads = threads
        self._max_pixels = max_pixels
        self._time_limit = time_limit
        self._on_decoded = on_decoded
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lensbox-decode")
        self._limits: dict[int, float] = {}  # by thread: when its image counts as stuck

    def submit(
        self,
        file: bytes,
        canvas: Canvas | None,
        reading: Reading,
        deadline: float,
        follow: Submit,
        is_alone: bool = False,
    ) -> "Future[Any]":
        """Decode a file as `photo_from_file` does, and pass the photograph to `follow` in the same thread.

        Return a future of the future that `follow` returns, or that future itself. Cancelling the returned
        future drops a queued file. deadline: of the request, on the clock of `time.monotonic`. is_alone: True
        if no other request is in progress; a small JPEG is then decoded in the caller's thread, which is
        faster than waking a thread, and its errors are raised.
        """
        if is_alone and not self._limits and len(file) <= _FEW_BYTES and is_quick_jpeg(file, _FEW_PIXELS):
            return follow(self._decode(file, canvas, reading, deadline))
        limit = time.monotonic() + self._time_limit

        def decode() -> "Future[Any]":
            thread = threading.get_ident()
            # Not the client's deadline, because short deadlines would make all threads look stuck.
            self._limits[thread] = limit
            try:
                photo = self._decode(file, canvas, reading, min(deadline, limit))
            finally:
                del self._limits[thread]
            return follow(photo)

        return self._pool.submit(contextvars.copy_context().run, decode)  # for logs and traces

    @property
    def stuck(self) -> bool:
        """True if every thread is busy with an image past its time limit, so that no image can be decoded."""
        now = time.monotonic()
        return sum(limit < now for limit in list(self._limits.values())) == self._threads

    def stop(self) -> None:
        """Drop waiting images. Do not wait for images that are being decoded."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _decode(self, file: bytes, canvas: Canvas | None, reading: Reading, until: float) -> Photo:
        start = time.monotonic()
        try:
            return photo_from_file(file, canvas, reading, self._max_pixels, until)
        finally:
            self._on_decoded(time.monotonic() - start)
