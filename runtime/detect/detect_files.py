"""Detection in many image files: threads read ahead while the device computes."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch

from lensbox.common.canvas import Canvas
from lensbox.common.detections import TileSpec
from lensbox.common.errors import InputError
from lensbox.runtime.detect.captured_detect import Thresholds
from lensbox.runtime.detect.detection import Detections, as_tensors
from lensbox.runtime.detect.pipeline import Pipeline
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.files import read_photo
from lensbox.runtime.images.gpu_jpeg import CodedPhoto, coded_photos, decoded_photos, decoded_pixels
from lensbox.runtime.images.photo import Photo

# More threads wait for Python's lock (GIL): on 16 cores, 16 threads were slower than 8. Threads that only
# read files for the GPU's decoder are fastest in pairs: docs/benchmarks_detector.md.
_MAX_THREADS = 8
_MAX_THREADS_BESIDE_GPU_DECODER = 2
# Threads take a few files at a time, to save hand-overs.
_MAX_GROUP = 8
# The GPU checks one batch while it decodes another.
_DECODING_THREADS = 2

File = str | Path | bytes
Item = TypeVar("Item")
Result = TypeVar("Result")


def detect_batches(
    pipeline: Pipeline,
    batches: Generator[list[Photo | InputError], None, None],
    thresholds: Thresholds,
    tiles: TileSpec | None,
) -> Generator[Detections | InputError, None, None]:
    """Yield the detections of each photograph, and the errors. Closing the generator closes `batches`."""
    with closing(batches):
        for batch in batches:
            photos = [photo for photo in batch if isinstance(photo, Photo)]
            arrays = pipeline.detect_photos(photos, thresholds) if tiles is None else []
            found = map(as_tensors, arrays)
            for photo in batch:
                if isinstance(photo, InputError):
                    yield photo
                    continue
                try:
                    yield next(found) if tiles is None else pipeline.detect_tiles(photo, thresholds, tiles)
                except InputError as error:  # too many tiles
                    yield error


def photo_batches(
    files: Iterable[File],
    canvas: Canvas,
    reading: Reading,
    gpu: torch.device | None,
    batch_size: int,
    threads: int | None,
) -> Generator[list[Photo | InputError], None, None]:
    """Yield photographs in the order of their files, `batch_size` at a time; an error for an unreadable file.

    gpu: decodes the JPEG files that it can, a few batches ahead, for the stream that is current at the first
    `next`. Closing the generator leaves no thread.
    """

    def read(file: File) -> Photo | InputError:
        try:
            return read_photo(file, canvas, reading)
        except (InputError, OSError) as error:  # such as FileNotFoundError
            return InputError(str(error))

    most = _MAX_THREADS if gpu is None else _MAX_THREADS_BESIDE_GPU_DECODER
    threads = threads or min(most, os.cpu_count() or 1)
    if gpu is None:
        yield from in_batches(lambda group: list(map(read, group)), files, batch_size, threads)
        return
    stream = torch.cuda.current_stream(gpu)

    def read_coded(group: list[File]) -> list[CodedPhoto | Photo | InputError]:
        coded = coded_photos(group, canvas, reading)
        return [photo or read(file) for photo, file in zip(coded, group, strict=True)]

    def decoded(batches: list[list[CodedPhoto | Photo | InputError]]) -> list[list[Photo | InputError]]:
        (batch,) = batches
        coded = [one for one in batch if isinstance(one, CodedPhoto)]
        with torch.cuda.stream(stream):
            photos = iter(decoded_photos(decoded_pixels(coded, gpu, canvas), coded))
        return [[(next(photos) or read(one.source)) if isinstance(one, CodedPhoto) else one for one in batch]]

    with (
        closing(in_batches(read_coded, files, batch_size, threads)) as batches,
        closing(in_batches(decoded, batches, 1, _DECODING_THREADS)) as decoded_batches,
    ):
        for (batch,) in decoded_batches:
            yield batch


def in_batches(
    function: Callable[[list[Item]], list[Result]], items: Iterable[Item], batch_size: int, threads: int
) -> Generator[list[Result], None, None]:
    """Yield the results for items in their order, `batch_size` at a time. function: takes a few items.

    Beside the yielded batch, at most `batch_size + max(batch_size, threads)` results are in memory. Closing
    the generator waits for the few items that each thread is computing, and leaves no thread.
    """
    # At least two groups per thread and batch, so that no thread waits long for another.
    group_size = max(1, min(_MAX_GROUP, batch_size // (2 * threads)))
    most = batch_size + max(batch_size, threads)
    remaining = iter(items)
    groups = iter(lambda: list(islice(remaining, group_size)), [])
    waiting: deque[Future[list[Result]]] = deque()
    ready: deque[Result] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lensbox-read") as pool:

        def fill_up() -> None:
            free = (most - len(ready)) // group_size - len(waiting)
            waiting.extend(pool.submit(function, group) for group in islice(groups, free))

        try:
            fill_up()
            while waiting or ready:
                while waiting and len(ready) < batch_size:
                    ready.extend(waiting.popleft().result())
                batch = [ready.popleft() for _ in range(min(batch_size, len(ready)))]
                fill_up()  # before `yield`: the threads compute while the caller uses the batch
                yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
