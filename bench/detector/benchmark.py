"""One run of `lensbox bench detector`."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from lensbox.bench.detector.ways import (
    ONNX,
    ONNXRUNTIME_NETWORK,
    TORCHSCRIPT_NETWORK,
    Detectors,
    groups_of_ways,
)
from lensbox.bench.machine import cpu_threads
from lensbox.bench.report import Figure, Options, Report, Table, number
from lensbox.bench.runner import Case, Effort, Row, run_case
from lensbox.bench.timing import MICROSECONDS
from lensbox.model import FaceDetector

# Many short samples: on a busy machine, most of them are undisturbed, so their median is.
EFFORT = Effort(rounds=100, sample_seconds=0.004, figure_seconds=3.0)
QUICK = Effort(rounds=15, sample_seconds=0.004, figure_seconds=0.5, quick=True)
BATCHES = {"cpu": (1, 8), "cuda": (1, 2, 4, 8, 16, 32, 64, 128, 256)}


def run(
    detector: FaceDetector,
    options: Options,
    batches: Sequence[int] | None = None,
    packages: Sequence[Path] = (),
) -> Report:
    """Check and time a detector that is on the CPU and in eval mode, a table per batch size.

    Each group of ways is exported, timed at all batch sizes and written before the next one. batches:
    canvases per call, several numbers; None for the device's default. packages: AOTInductor files of the
    detector to time; () exports them. Raises ArtifactError if the detector cannot be exported, or for files
    that are no packages for this device.
    """
    report = Report.start("detector", options, ("onnx", "onnxscript", "onnxruntime"))
    batches = batches or BATCHES[options.device]
    effort = QUICK if options.quick else EFFORT
    with tempfile.TemporaryDirectory() as folder, cpu_threads(options.threads):
        detectors = Detectors(detector, Path(folder), options.device, options.threads, packages)
        groups = zip(*(groups_of_ways(detectors, batch) for batch in batches), strict=True)
        with torch.inference_mode():
            for group in groups:
                for batch, ways in zip(batches, group, strict=True):
                    title = _title(batch, options.device)
                    case = Case(title, ways, options.device, options.threads, cpu_time=True)
                    report.add(run_case(case, effort))
                    report.show(_by_batch(report.rows, batches), aloud=False)
    options.say(_by_batch(report.rows, batches).text())
    report.finish(_figures(report, _title(batches[0], "cpu")) if options.device == "cpu" else [])
    return report


def _by_batch(rows: Sequence[Row], batches: Sequence[int]) -> Table:
    """Return a line per way and a column per batch size: images per second, and milliseconds of a batch."""
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        if row.summary is not None:
            rate = number(row.images * MICROSECONDS / row.summary.median)
            cells.setdefault(row.way, {})[row.images] = f"{rate}; {number(row.summary.median / 1000)}"
    lines = [[way, *(by_batch.get(batch, "") for batch in batches)] for way, by_batch in cells.items()]
    return Table("Images/s; ms a batch", ["batch", *map(str, batches)], lines)


def _title(batch: int, device: str) -> str:
    return f"{batch} canvas{'es' if batch > 1 else ''} on {device}"


def _figures(report: Report, title: str) -> list[Figure]:
    def ratio(way: str, base: str) -> float | None:
        times = [report.median(title, name, "call") for name in (way, base)]
        return None if times[0] is None or times[1] is None else times[0] / times[1]

    network = f"{title}: TorchScript / onnxruntime, the network alone"
    return [
        Figure(network, ratio(TORCHSCRIPT_NETWORK, ONNXRUNTIME_NETWORK)),
        Figure(
            f"{title}: ONNX file / its network, onnxruntime",
            *(ratio(ONNX, ONNXRUNTIME_NETWORK), 1.05),
            at_most=True,
        ),
    ]
