"""One run of `lensbox bench photo`."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from lensbox.bench.machine import copy_bandwidth, cpu_threads
from lensbox.bench.photo.files import (
    LENSBOX,
    OPENCV,
    PILLOW,
    STREAM_SIDE,
    steps_case,
    stream_case,
    to_boxes_case,
)
from lensbox.bench.photo.frames import batch_case, frame_case
from lensbox.bench.photo.photographs import Photograph, jpeg_photograph
from lensbox.bench.report import Figure, Options, Report
from lensbox.bench.runner import Case, Effort, run_case
from lensbox.bench.timing import MICROSECONDS
from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.loading import load_artifact

LARGE, FULL_HD = (4000, 3000), (1920, 1080)
FRAMES = 64
STREAM_LENGTH = {"cpu": 256, "cuda": 4096}
QUICK_STREAM_LENGTH = {"cpu": 64, "cuda": 2048}
EFFORT = Effort(rounds=30, sample_seconds=0.02, figure_seconds=4.0)
QUICK = Effort(rounds=7, sample_seconds=0.01, figure_seconds=1.0)


def run(detector: FaceDetector, options: Options) -> Report:
    """Check and time the ways from photographs to boxes. Raises ArtifactError if the export fails."""
    with tempfile.TemporaryDirectory() as folder, cpu_threads(options.threads), torch.inference_mode():
        file = Path(folder) / "detector.pt"
        save_artifact(detector, file)
        load = partial(load_artifact, file, options.device)
        artifact = load()
        speed = copy_bandwidth(options.device)
        report = Report.start("photo", options, ("pillow", "opencv-python-headless"), speed)
        for make in _cases(artifact, load, options):
            report.add(run_case(make(), QUICK if options.quick else EFFORT, speed))
    report.finish(_figures(report, options))
    return report


def _cases(
    artifact: Artifact, load: Callable[[], Artifact], options: Options
) -> Iterator[Callable[[], Case]]:
    """Yield functions that make a case with its photographs; its memory is freed before the next one."""
    threads, device = options.threads, options.device
    for size in (LARGE, FULL_HD):
        for case_of in (steps_case, to_boxes_case):
            yield partial(_jpeg_case, case_of, artifact, size, threads)
    if device == "cpu":
        yield partial(frame_case, artifact.metadata.canvas, *FULL_HD, threads)
    else:
        yield partial(batch_case, artifact.metadata.canvas, *FULL_HD, FRAMES)
    length = (QUICK_STREAM_LENGTH if options.quick else STREAM_LENGTH)[device]
    yield partial(stream_case, artifact, load, length, threads)


def _jpeg_case(
    case_of: Callable[[Artifact, Photograph, int], Case],
    artifact: Artifact,
    size: tuple[int, int],
    threads: int,
) -> Case:
    return case_of(artifact, jpeg_photograph(*size), threads)


def _figures(report: Report, options: Options) -> list[Figure]:
    if options.device == "cuda":
        return _gpu_figures(report)
    if options.threads != 1:
        return []

    def ratio(case: str, peer: str) -> float | None:
        theirs, ours = (report.median(case, way, "call") for way in (peer, LENSBOX))
        return None if theirs is None or ours is None else theirs / ours

    sizes = {size: "JPEG {} x {} to boxes".format(*size) for size in (LARGE, FULL_HD)}
    frame = "RGB frame {} x {} to a canvas".format(*FULL_HD)
    return [
        *(
            Figure(f"CPU, one thread, {title}: Pillow / ours", ratio(title, PILLOW))
            for title in sizes.values()
        ),
        Figure(f"CPU, one thread, {frame}: Pillow / ours", ratio(frame, PILLOW), 2.5, 5),
        Figure("... OpenCV, gray and INTER_AREA / ours", ratio(frame, OPENCV), 1.2, 2.5),
    ]


def _gpu_figures(report: Report) -> list[Figure]:
    batch = report.find("{} RGB frames {} x {} to canvases".format(FRAMES, *FULL_HD), LENSBOX, "graph")
    share = None if batch is None or batch.share is None else 100 * batch.share
    speeds = [
        row.images * MICROSECONDS / row.summary.median
        for row in report.rows
        if "in a stream" in row.case and row.summary is not None
    ]
    name = f"GPU, JPEG {STREAM_SIDE} x {STREAM_SIDE} from memory to boxes, a second"
    return [
        Figure("GPU, 64 RGB frames to canvases: share of a copy's bandwidth, %", share, 40, 70),
        Figure(name, max(speeds, default=None), 3000, 8000),
    ]
