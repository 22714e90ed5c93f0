"""Many JPEG files in memory to boxes, in one process: files are decoded in threads beside the device."""

from collections.abc import Callable, Sequence
from functools import partial

from lensbox.bench.check import WrongAnswerError
from lensbox.bench.measurement import Effort
from lensbox.bench.photo import check
from lensbox.bench.photo.case import Case, Way
from lensbox.bench.photo.chains import LENSBOX, PREVIOUS
from lensbox.bench.photo.photographs import small_photographs
from lensbox.bench.photo.previous_code import read_image
from lensbox.bench.photo.subject import Subject
from lensbox.bench.timing import MICROSECONDS, Pace, Series, complete_sampler, nothing
from lensbox.common.errors import InputError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections

STREAM = "photograph in a stream"
SIDE = 512
_BATCH_SIZES = (32, 128)
_DISTINCT = 64  # files, which come again and again
_CHECKED = 8
_FEWER = 16  # one after another takes long

Detect = Callable[[Sequence[bytes]], list[Detections]]


def stream_case(subject: Subject, count: int) -> Case:
    """`count` files a sample, with as many threads as `detect_files` chooses. Wall-clock time, CPU or not."""
    distinct = [photograph.file for photograph in small_photographs(SIDE, min(_DISTINCT, count))]
    files = [distinct[index % len(distinct)] for index in range(count)]
    ways = [
        (f"{LENSBOX}, batches of {size}", partial(_streaming, subject.artifact, size), count)
        for size in _BATCH_SIZES
    ]
    if subject.device.type == "cuda":
        ways += [
            (f"{LENSBOX}, captured, batches of {size}", partial(_captured, subject, size), count)
            for size in _BATCH_SIZES
        ]
    ways.append((PREVIOUS, partial(_one_by_one, subject), max(1, count // _FEWER)))

    def prepare(make: Callable[[], Detect], number: int, effort: Effort) -> Series:
        detect = make()
        _check(detect, distinct[:_CHECKED], subject)

        def run(_: int) -> object:
            return detect(files[:number])

        sampler = complete_sampler(run, 1, nothing)
        rounds = effort.rounds_at(Pace(1, sampler() / MICROSECONDS))
        return Series(lambda: sampler() / number, rounds)

    return Case(
        f"JPEG {SIDE} x {SIDE} from memory, in a stream",
        [Way(STREAM, name, partial(prepare, make, number)) for name, make, number in ways],
    )


def _streaming(artifact: Artifact, batch_size: int) -> Detect:
    def detect(files: Sequence[bytes]) -> list[Detections]:
        found = []
        for result in artifact.detect_files(files, batch_size=batch_size):
            if isinstance(result, InputError):
                raise WrongAnswerError(f"a file is refused: {result}")
            found.append(result)
        return found

    return detect


def _captured(subject: Subject, batch_size: int) -> Detect:
    artifact = subject.another_artifact()
    artifact.capture([batch_size])
    return _streaming(artifact, batch_size)


def _one_by_one(subject: Subject) -> Detect:
    def detect(files: Sequence[bytes]) -> list[Detections]:
        return [subject.previous.detect_image(read_image(file)) for file in files]

    return detect


def _check(detect: Detect, files: Sequence[bytes], subject: Subject) -> None:
    """Raises WrongAnswerError."""
    found = detect(files)
    if len(found) != len(files):
        raise WrongAnswerError(f"{len(files)} photographs give {len(found)} results")
    for file, detections in zip(files, found, strict=True):
        check.require_same_faces(detections, check.expected_detections(file, subject))
