"""The threads that decode images."""

import contextvars
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from lensbox.artifact.metadata import Canvas, Reading
from lensbox.runtime.images.fast_jpeg import is_quick_jpeg
from lensbox.runtime.images.photo import Photo
from lensbox.serve.image_body import photo_from_file

# Of a JPEG: half a millisecond to two.
_FEW_BYTES = 1 << 18
_FEW_PIXELS = 1 << 19

Result = TypeVar("Result")


class Decoders:
    """A few threads that turn files into photographs.

    threads: images decoded at a time; max_pixels: most pixels of an image; time_limit: seconds from `submit`
    after which decoding is given up, and nobody waits for the image any more; on_decoded: called in its
    thread with the seconds that an image took.
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
        self._limits: dict[int, float] = {}  # of the images that are being decoded, by thread

    def submit(
        self,
        file: bytes,
        canvas: Canvas | None,
        reading: Reading,
        deadline: float = math.inf,
        is_alone: bool = False,
    ) -> "Future[Photo]":
        """What `photo_from_file` makes of a file; cancelling the future before its turn drops it.

        deadline: on the clock of `time.monotonic`, for requests that have less time than others. is_alone:
        nobody else waits for the caller's thread, which then decodes what takes no longer than to wake up
        another.
        """
        if is_alone and not self._limits and len(file) <= _FEW_BYTES and is_quick_jpeg(file, _FEW_PIXELS):
            photo: Future[Photo] = Future()
            try:
                photo.set_result(self._decode(file, canvas, reading, deadline))
            except Exception as error:
                photo.set_exception(error)
            return photo
        return self.run(lambda until: self._decode(file, canvas, reading, until), deadline)

    def run(self, work: Callable[[float], Result], deadline: float = math.inf) -> "Future[Result]":
        """Other work with images in one of the threads, such as drawing. It is told when to give up."""
        limit = time.monotonic() + self._time_limit
        context = contextvars.copy_context()  # of the request, for logs and traces
        return self._pool.submit(context.run, self._timed, work, deadline, limit)

    @property
    def stuck(self) -> bool:
        """Whether every thread is busy with an image whose time is up: no image can be decoded then."""
        now = time.monotonic()
        return sum(limit < now for limit in list(self._limits.values())) == self._threads

    def stop(self) -> None:
        """Drops what waits and leaves behind what is being decoded."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _timed(self, work: Callable[[float], Result], deadline: float, limit: float) -> Result:
        thread = threading.get_ident()
        # Not the client's deadline: clients in a hurry would make it look as if all threads were stuck.
        self._limits[thread] = limit
        try:
            return work(min(deadline, limit))
        finally:
            del self._limits[thread]

    def _decode(self, file: bytes, canvas: Canvas | None, reading: Reading, until: float) -> Photo:
        start = time.monotonic()
        try:
            return photo_from_file(file, canvas, reading, self._max_pixels, until)
        finally:
            self._on_decoded(time.monotonic() - start)
