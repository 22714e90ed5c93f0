"""Limits on the cost of decoding an image, and a file object that enforces them during a decode."""

import time
from dataclasses import dataclass
from io import BytesIO
from math import inf

from lensbox.common.errors import InputError


@dataclass(frozen=True)
class ImageLimits:
    """Limits on decoding one image. None: no limit, or only the decoder's own.

    max_pixels: width * height. max_run_length_pixels: the same for run-length BMP, whose decoder is written
    in Python and takes up to 0.1 us a pixel. max_png_bytes: of the pixels of a PNG file, uncompressed, at 5
    to 6 ns each. max_pieces: of a file, which are its segments, chunks and sub-blocks, and every further time
    that a decoder reads from it (run-length BMP may be read a million times more, twice for each run).
    deadline: on the clock of `time.monotonic`.
    """

    max_pixels: int | None = None
    max_run_length_pixels: int | None = None
    max_png_bytes: int | None = None
    max_pieces: int | None = None
    deadline: float | None = None


NO_LIMITS = ImageLimits()


class BoundedFile(BytesIO):
    """The bytes of an image file, readable until a deadline and at most a number of times.

    Decoders come back for more at every marker, chunk, sub-block and run, and for every 64 KiB of compressed
    pixels, so `read` is the place where any of them can be stopped, in a thread too.

    deadline: on the clock of `time.monotonic`; max_reads: calls of `read`. None: no such limit.
    """

    def __init__(self, content: bytes, deadline: float | None = None, max_reads: int | None = None) -> None:
        super().__init__(content)
        self._deadline = inf if deadline is None else deadline
        self._max_reads = inf if max_reads is None else max_reads
        self._reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """A BytesIO that raises TimeoutError after the deadline, and InputError if read too often."""
        self._reads += 1
        if self._reads > self._max_reads:
            raise InputError(f"it must be readable in at most {self._max_reads} pieces")
        if time.monotonic() > self._deadline:
            raise _late()
        return super().read(size)

    def allow_more_reads(self, count: int) -> None:
        """Raises the limit on the number of reads, if there is one."""
        self._max_reads += count

    def check_deadline(self) -> None:
        """Raises TimeoutError after the deadline."""
        if time.monotonic() > self._deadline:
            raise _late()


def _late() -> TimeoutError:
    return TimeoutError("the image was not decoded in time")
