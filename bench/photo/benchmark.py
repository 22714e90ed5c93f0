"""One run of `lensbox bench photo` from beginning to end."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.bench.bandwidth import copy_bandwidth
from lensbox.bench.environment import environment
from lensbox.bench.measurement import Effort
from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.photo import photo_report
from lensbox.bench.photo.answers import movements
from lensbox.bench.photo.case import run_case
from lensbox.bench.photo.cases import FULL_HD, LARGE, all_cases
from lensbox.bench.photo.chains import LENSBOX
from lensbox.bench.photo.hostile.decode_time import LARGEST_SIDE, Decoder, measure
from lensbox.bench.photo.hostile.files import HOSTILE_FILES
from lensbox.bench.photo.photographs import Photograph, jpeg_photograph, jpeg_variants, png_photograph
from lensbox.bench.photo.results import PhotoReport, write_csv_files
from lensbox.bench.photo.runner import runner_differences
from lensbox.bench.photo.subject import make_subject
from lensbox.bench.threads import cpu_threads
from lensbox.common.files import atomic_write
from lensbox.model import FaceDetector
from lensbox.runtime.freed_memory import keep_freed_memory

_PACKAGES = ("pillow", "opencv-python-headless")
_EFFORT = Effort(rounds=30, sample_seconds=0.02, figure_seconds=4.0)
_QUICK = Effort(rounds=7, sample_seconds=0.01, figure_seconds=1.0)
_DECODINGS, _QUICK_DECODINGS = 3, 1  # of each hostile file
_SMALL = (640, 480)
# Whose answers are shown, as sizes and variants of the picture.
_ANSWERS = [(size, variant) for size in (LARGE, LARGE[::-1], FULL_HD, (6000, 4000)) for variant in (0, 1)]


@dataclass(frozen=True)
class Options:
    """What is to be run.

    device: "cpu" or "cuda".
    output: folder for the files, or None.
    quick: fewer samples, sizes and kinds of files.
    threads: of the CPU.
    runner: the C++ runner to compare with, or None.
    """

    device: str
    output: Path | None = None
    quick: bool = False
    threads: int = 1
    runner: Path | None = None


def run(detector: FaceDetector, options: Options, say: Callable[[str], None]) -> PhotoReport:
    """Checks and times the ways from photographs to boxes, says each table when it is there, and keeps the
    files up to date meanwhile. Raises ArtifactError if the detector cannot be exported."""
    keep_freed_memory()
    device = torch.device(options.device)
    with tempfile.TemporaryDirectory() as folder, cpu_threads(options.threads), torch.inference_mode():
        subject = make_subject(detector, Path(folder), options.device, options.threads)
        speed = copy_bandwidth(device)
        found = PhotoReport(environment(device, _PACKAGES, speed), options.device, options.threads)
        say(photo_report.heading(found))
        for make in all_cases(subject, options.quick):
            timings = run_case(make(), _QUICK if options.quick else _EFFORT, speed)
            found.timings += timings
            say(photo_report.case_text(timings))
            _write(options.output, found)
        found.movements = movements(subject, _for_answers(options.quick))
        _add_runner_differences(found, subject.artifact_file, options)
    _add_decode_times(found, subject.artifact.metadata, options.quick)
    say(photo_report.text(found))
    _write(options.output, found)
    return found


def own_defects(report: PhotoReport) -> bool:
    """Whether Lensbox's own answer was wrong or failed somewhere, or there was none."""
    return (
        any(
            timing.way.startswith(LENSBOX) and timing.note.startswith(("WRONG", "failed"))
            for timing in report.timings
        )
        or any(time.seconds is None for time in report.decode_times)
        or any(difference.boxes != 0 or difference.scores != 0 for difference in report.runner_differences)
    )


def _for_answers(quick: bool) -> list[Photograph]:
    return [jpeg_photograph(*size, variant) for size, variant in _ANSWERS[: 2 if quick else None]]


def _add_runner_differences(found: PhotoReport, artifact_file: Path, options: Options) -> None:
    if options.runner is None:
        found.notes.append("the C++ runner: --runner or LENSBOX_RUNNER says where it is")
        return
    photographs = [
        jpeg_photograph(*FULL_HD),
        *jpeg_variants(*(FULL_HD if options.quick else LARGE)),
        png_photograph(*_SMALL),
    ]
    try:
        found.runner_differences = runner_differences(options.runner, artifact_file, photographs)
    except UnavailableError as error:
        found.notes.append(f"the C++ runner: {error}")


def _add_decode_times(found: PhotoReport, metadata: ArtifactMetadata, quick: bool) -> None:
    try:
        from lensbox.bench.photo.hostile.service_decoder import decode
    except ModuleNotFoundError as error:
        found.notes.append(
            f"files made to take long: the Python package {error.name!r} is not installed; "
            "pip install 'lensbox[serve]' brings it"
        )
        return
    with Decoder(partial(decode, metadata.canvas, metadata.reading)) as decoder:
        repeats = _QUICK_DECODINGS if quick else _DECODINGS
        found.decode_times = list(measure(HOSTILE_FILES, LARGEST_SIDE, repeats, decoder))


def _write(output: Path | None, found: PhotoReport) -> None:
    if output is None:
        return
    write_csv_files(output, found)
    atomic_write(output / "photo.md", photo_report.markdown(found).encode())
