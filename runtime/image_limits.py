"""What decoding an image may cost."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageLimits:
    """What decoding one image may cost. None: no limit, or only the decoder's own.

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
