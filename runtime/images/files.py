"""Read image files: one, or many in threads that read ahead."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError, system_reason
from lensbox.common.fields import Orientation
from lensbox.common.pictures import ImageFile, content_of
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.decoder import decode_photo
from lensbox.runtime.images.gpu_jpeg import CodedPhoto, GpuJpegDecoder
from lensbox.runtime.images.limits import ImageLimits
from lensbox.runtime.images.photo import Photo

DEFAULT_READING = Reading()

# A usual file of 16 MiB is read in a few thousand pieces. 100,000 pieces take 0.2 s.
MAX_PIECES = 100_000


def read_image(source: ImageFile, orientation: Orientation = "exif") -> Tensor:
    """Decode an image file at full size to uint8 [C, H, W]: C = 1 (gray), 3 (RGB) or 4 (RGBA).

    source: a path, the bytes of a file, or a file open in binary mode. orientation: "exif" turns the picture
    upright by its EXIF data, "stored" leaves the pixels as stored. Other color modes are converted: palettes
    and CMYK to RGB, one bit and 16 bit to gray levels of 8 bit. The memory is interleaved. Raise ValueError
    for another orientation, TypeError for another source, FileNotFoundError, and InputError if Pillow cannot
    decode the file, if it has more than 179 million pixels (Pillow's limit) or more than MAX_PIECES pieces,
    or if `check_jpeg` rejects it.
    """
    return read_photo(source, reading=DEFAULT_READING.asked(orientation)).pixels


def _content(path: Path) -> bytes:
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {system_reason(error)}") from error
    raise FileNotFoundError(f"source must be an image file, got {path}")


def read_photo(source: ImageFile, canvas: Canvas | None = None, reading: Reading = DEFAULT_READING) -> Photo:
    """Decode an image file for a canvas by the rule "Reading images" in `docs/artifact.md`.

    JPEG files are decoded at a scale that suffices for the canvas, and without colors for a gray canvas.
    Without a canvas, decode at full size. Raise what `read_image` raises.
    """
    file, name = content_of(source, "source"), "the image data"
    if file is None:
        name = str(source)
        file = _content(Path(name))
    try:
        return decode_photo(file, canvas, reading, ImageLimits(max_pieces=MAX_PIECES))
    except (InputError, OSError) as error:
        raise InputError(f"{name} must be an image that Pillow can decode: {error}") from error


_MAX_GROUP = 8

File = TypeVar("File")
Read = TypeVar("Read", Photo, Photo | CodedPhoto)


def read_batches(
    files: Iterable[File],
    read: Callable[[File], Read],
    batch_size: int,
    threads: int,
    read_several: Callable[[list[File]], Sequence[Read | None]] | None = None,
) -> Generator[list[Read | InputError], None, None]:
    """Yield photographs in the order of their files, `batch_size` at a time; an error for an unreadable file.

    read_several: called first with a few files; `read` then reads each file for which it returned None.
    Beside the yielded batch, at most `batch_size + max(batch_size, threads)` photographs are in memory.
    Closing the generator waits for the few files that each thread is reading, and leaves no thread.
    """
    # Threads take a few files at a time, to save hand-overs; at least two groups per thread and batch, so
    # that no thread waits long for another.
    group_size = max(1, min(_MAX_GROUP, batch_size // (2 * threads)))
    ahead = batch_size + max(batch_size, threads)
    remaining = iter(files)
    taken = given = 0
    waiting: deque[Future[list[Read | InputError]]] = deque()
    ready: deque[Read | InputError] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lensbox-read") as pool:

        def fill_up() -> None:
            nonlocal taken
            while group := list(islice(remaining, min(group_size, ahead + given - taken))):
                taken += len(group)
                waiting.append(pool.submit(_photos_or_errors, read, read_several, group))

        try:
            fill_up()
            while taken > given:
                while waiting and len(ready) < batch_size:
                    ready.extend(waiting.popleft().result())
                batch = [ready.popleft() for _ in range(min(batch_size, len(ready)))]
                given += len(batch)
                fill_up()  # before `yield`: the threads read while the caller uses the batch
                yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _photos_or_errors(
    read: Callable[[File], Read],
    read_several: Callable[[list[File]], Sequence[Read | None]] | None,
    files: list[File],
) -> list[Read | InputError]:
    photos = [None] * len(files) if read_several is None else read_several(files)
    return [photo or _photo_or_error(read, file) for photo, file in zip(photos, files, strict=True)]


def _photo_or_error(read: Callable[[File], Read], file: File) -> Read | InputError:
    try:
        return read(file)
    except InputError as error:
        return error
    except OSError as error:  # such as FileNotFoundError
        return InputError(str(error))


# The GPU checks one batch while it decodes another.
_BATCHES_DECODED_AHEAD = 2


def decode_batches(
    batches: Generator[list[Photo | CodedPhoto | InputError], None, None],
    decoder: GpuJpegDecoder,
    read: Callable[[str | Path | bytes], Photo],
) -> Generator[list[Photo | InputError], None, None]:
    """Decode the coded photographs in the batches of `read_batches`, two batches ahead.

    read: reads the files that the decoder rejects. Use decoded photographs on the stream that is current at
    the first `next`. Closing the generator closes `batches`, and leaves no thread.
    """
    stream = torch.cuda.current_stream(decoder.device)

    def decoded(batch: list[Photo | CodedPhoto | InputError]) -> list[Photo | InputError]:
        with torch.cuda.stream(stream):
            photos = iter(decoder.decode([one for one in batch if isinstance(one, CodedPhoto)]))
        return [
            (next(photos) or _photo_or_error(read, one.source)) if isinstance(one, CodedPhoto) else one
            for one in batch
        ]

    waiting: deque[Future[list[Photo | InputError]]] = deque()
    with closing(batches), ThreadPoolExecutor(_BATCHES_DECODED_AHEAD, "lensbox-read-gpu") as pool:
        for batch in batches:
            waiting.append(pool.submit(decoded, batch))
            if len(waiting) > _BATCHES_DECODED_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
