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
    all_ways,
)
from lensbox.bench.machine import cpu_threads
from lensbox.bench.report import Figure, Options, Report
from lensbox.bench.runner import Case, Effort, run_case
from lensbox.model import FaceDetector

# Many short samples: on a busy machine, most of them are undisturbed, so their median is.
EFFORT = Effort(rounds=100, sample_seconds=0.004, figure_seconds=3.0)
QUICK = Effort(rounds=15, sample_seconds=0.004, figure_seconds=0.5, quick=True)
BATCHES = {"cpu": (1, 8), "cuda": (1, 8, 32, 128, 256)}


def run(detector: FaceDetector, options: Options, batches: Sequence[int] | None = None) -> Report:
    """Check and time a detector that is on the CPU and in eval mode, a table per batch size.

    batches: canvases per call, several numbers; None for the device's default. Raises ArtifactError if the
    detector cannot be exported.
    """
    report = Report.start("detector", options, ("onnx", "onnxscript", "onnxruntime"))
    batches = batches or BATCHES[options.device]
    effort = QUICK if options.quick else EFFORT
    with tempfile.TemporaryDirectory() as folder, cpu_threads(options.threads):
        detectors = Detectors(detector, Path(folder), options.device, options.threads)
        with torch.inference_mode():
            for batch in batches:
                ways = all_ways(detectors, batch)
                case = Case(
                    _title(batch, options.device), ways, options.device, options.threads, cpu_time=True
                )
                report.add(run_case(case, effort))
    report.finish(_figures(report, _title(batches[0], "cpu")) if options.device == "cpu" else [])
    return report


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
