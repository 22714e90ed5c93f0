"""Limits on the cost of decoding an image, and a file object that enforces them during a decode."""

import time
from dataclasses import dataclass
from io import BytesIO
from math import inf

from lensbox.common.errors import InputError

# Chunks and sub-blocks of a file, and reads by a decoder (run-length BMP may read a million times more), as
# kMaxPieces of the image reader. A usual file of 16 MiB is read in a few thousand pieces. 100,000 take 0.2 s.
MAX_PIECES = 100_000


class TooManyPixelsError(InputError):
    """The image has more pixels than the limits allow, or a longer side."""


@dataclass(frozen=True)
class ImageLimits:
    """Limits on decoding one image; by default only the decoder's own, and MAX_PIECES.

    max_pixels: width * height. max_run_length_pixels: the same for run-length BMP, whose decoder is written
    in Python (up to 0.1 us per pixel). max_png_bytes: uncompressed pixels of a PNG file, at 5 to 6 ns per
    byte. deadline: on the clock of `time.monotonic`.
    """

    max_pixels: float = inf
    max_run_length_pixels: float = inf
    max_png_bytes: float = inf
    deadline: float = inf


NO_LIMITS = ImageLimits()


class BoundedFile(BytesIO):
    """The bytes of an image file, readable until the deadline and in at most MAX_PIECES reads.

    Decoders read at every marker, chunk, sub-block and run, and for every 64 KiB of compressed pixels, so
    `read` can stop a decoder in any thread.

    is_exhausted: whether a decoder wanted more than there is.
    """

    def __init__(self, content: bytes, limits: ImageLimits) -> None:
        super().__init__(content)
        self._deadline = limits.deadline
        self.max_reads = MAX_PIECES
        self._reads = 0
        self.is_exhausted = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes. Raise TimeoutError after the deadline, and InputError after too many reads."""
        self._reads += 1
        if self._reads > self.max_reads:
            raise InputError(f"it must be readable in at most {self.max_reads} pieces")
        self.check_deadline()
        content = super().read(size)
        self.is_exhausted |= not content and size != 0
        return content

    def check_deadline(self) -> None:
        """Raise TimeoutError after the deadline."""
        if time.monotonic() > self._deadline:
            raise TimeoutError("the image was not decoded in time")
