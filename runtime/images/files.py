"""Read image files, one by one, or many in threads ahead of their use."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from lensbox.artifact.metadata import Canvas, Reading
from lensbox.common.errors import InputError, system_reason
from lensbox.common.fields import Orientation
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.limits import ImageLimits
from lensbox.runtime.images.photo import Photo

DEFAULT_READING = Reading()

# An honest file of 16 MiB is read in a few thousand pieces. A hundred thousand take a fifth of a second.
MAX_PIECES = 100_000


def read_image(source: str | Path | bytes, orientation: Orientation = "exif") -> Tensor:
    """Decode an image file at full size to uint8 [C, H, W]: C = 1 (gray), 3 (RGB) or 4 (RGBA).

    source: a path, or the bytes of a file. orientation: "exif" turns the picture upright by its EXIF data,
    "stored" leaves the pixels as stored. Other color modes are converted: palettes and CMYK to RGB, one bit
    and 16 bit to gray levels of 8 bit. The channels of a pixel lie side by side in memory.
    Raises ValueError for another orientation, FileNotFoundError if there is no such file and InputError,
    naming the file, if it is not an image that Pillow can decode, has more than 179 million pixels, which
    Pillow refuses, is a JPEG file that `check_jpeg` refuses, or consists of more than MAX_PIECES pieces.
    """
    return read_photo(source, reading=DEFAULT_READING.asked(orientation)).pixels


def _content(path: Path) -> bytes:
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {system_reason(error)}") from error
    raise FileNotFoundError(f"source must be an image file, got {path}")


def read_photo(
    source: str | Path | bytes, canvas: Canvas | None = None, reading: Reading = DEFAULT_READING
) -> Photo:
    """Decode an image file for a canvas by the rule that all runtimes share.

    That is "Reading images" in `docs/artifact.md`: JPEG files at a scale that suffices for the canvas, and
    for a gray one without their colors. Without a canvas, as `read_image`, which says what it raises.
    """
    name = "the image data" if isinstance(source, bytes) else str(source)
    file = source if isinstance(source, bytes) else _content(Path(source))
    try:
        return decode_photo(file, canvas, reading, ImageLimits(max_pieces=MAX_PIECES))
    except (InputError, OSError) as error:
        raise InputError(f"{name} must be an image that Pillow can decode: {error}") from error


_MAX_GROUP = 8

File = TypeVar("File")


def read_batches(
    files: Iterable[File], read: Callable[[File], Photo], batch_size: int, threads: int
) -> Generator[list[Photo | InputError], None, None]:
    """Yield photographs in the order of their files, `batch_size` at a time; an error for an unreadable file.

    Beside the batch that was given out, at most two batches, or one and a photograph for each thread, are in
    memory. Closing the generator waits for the few files that each thread has taken, and leaves no thread.
    """
    # Threads take a few files at a time: each hand-over costs. Two turns a batch are left to each thread, so
    # that none waits long for another.
    group_size = max(1, min(_MAX_GROUP, batch_size // (2 * threads)))
    ahead = batch_size + max(batch_size, threads)
    remaining = iter(files)
    taken = given = 0
    waiting: deque[Future[list[Photo | InputError]]] = deque()
    ready: deque[Photo | InputError] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lensbox-read") as pool:

        def fill_up() -> None:
            nonlocal taken
            while group := list(islice(remaining, min(group_size, ahead + given - taken))):
                taken += len(group)
                waiting.append(pool.submit(_photos_or_errors, read, group))

        try:
            fill_up()
            while taken > given:
                while waiting and len(ready) < batch_size:
                    ready.extend(waiting.popleft().result())
                batch = [ready.popleft() for _ in range(min(batch_size, len(ready)))]
                given += len(batch)
                fill_up()  # before the batch is used: the threads are busy meanwhile
                yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _photos_or_errors(read: Callable[[File], Photo], files: list[File]) -> list[Photo | InputError]:
    return [_photo_or_error(read, file) for file in files]


def _photo_or_error(read: Callable[[File], Photo], file: File) -> Photo | InputError:
    try:
        return read(file)
    except InputError as error:
        return error
    except OSError as error:  # such as FileNotFoundError
        return InputError(str(error))
