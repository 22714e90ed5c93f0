"""What is timed on which device."""

from collections.abc import Callable, Iterator
from functools import partial

from lensbox.bench.photo.case import Case
from lensbox.bench.photo.file_cases import file_case
from lensbox.bench.photo.frame_cases import batch_case, frame_case
from lensbox.bench.photo.graph_case import graph_case
from lensbox.bench.photo.photographs import jpeg_photograph, jpeg_variants
from lensbox.bench.photo.stream_case import stream_case
from lensbox.bench.photo.subject import Subject

LARGE, FULL_HD = (4000, 3000), (1920, 1080)
FRAMES = 64
_STREAM_LENGTH = {"cpu": 256, "cuda": 4096}
_QUICK_STREAM_LENGTH = {"cpu": 64, "cuda": 2048}
_GRAPH_BATCHES = (1, 16, 256)


def all_cases(subject: Subject, quick: bool) -> Iterator[Callable[[], Case]]:
    """Each makes its photographs when it is called, and its memory is free again when the case is gone."""
    device = subject.device.type
    for size in (LARGE, FULL_HD):
        yield partial(_jpeg_case, subject, size)
    if device == "cpu":
        yield partial(frame_case, subject, *FULL_HD)
        for photograph in [] if quick else jpeg_variants(*LARGE):
            yield partial(file_case, subject, photograph, by_steps=False)
    else:
        yield partial(batch_case, subject, *FULL_HD, FRAMES)
        for batch_size in _GRAPH_BATCHES[: 1 if quick else None]:
            yield partial(graph_case, subject, batch_size)
    yield partial(stream_case, subject, (_QUICK_STREAM_LENGTH if quick else _STREAM_LENGTH)[device])


def _jpeg_case(subject: Subject, size: tuple[int, int]) -> Case:
    return file_case(subject, jpeg_photograph(*size), by_steps=True)
