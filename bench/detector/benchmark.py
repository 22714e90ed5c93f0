"""One run of `lensbox bench detector`."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lensbox.bench.detector.ways import (
    ONNX,
    ONNXRUNTIME_NETWORK,
    TORCHSCRIPT,
    TORCHSCRIPT_NETWORK,
    YUNET,
    YUNET_SIZE,
    Detectors,
    all_ways,
)
from lensbox.bench.detector.yunet import YuNet
from lensbox.bench.machine import cpu_threads
from lensbox.bench.report import Figure, Options, Report, Table
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
    report = Report.start("detector", options, ("onnx", "onnxscript", "onnxruntime", "openvino"))
    batches = batches or BATCHES[options.device]
    effort = QUICK if options.quick else EFFORT
    with tempfile.TemporaryDirectory() as folder, cpu_threads(options.threads):
        detectors = Detectors(detector, Path(folder), options.device, options.threads)
        macs = _show_costs(report, detector)
        with torch.inference_mode():
            for batch in batches:
                ways = all_ways(detectors, batch)
                case = Case(
                    _title(batch, options.device), ways, options.device, options.threads, cpu_time=True
                )
                report.add(run_case(case, effort))
    report.finish(_figures(report, batches, options.device, macs))
    return report


def network_cost(network: nn.Module, images: Tensor) -> tuple[int, int]:
    """Return the number of parameters, and of multiply-accumulates of one forward pass of `images`."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(images)
    # Two floating-point operations make one multiply-accumulate.
    return sum(parameter.numel() for parameter in network.parameters()), counter.get_total_flops() // 2


def _title(batch: int, device: str) -> str:
    return f"{batch} canvas{'es' if batch > 1 else ''} on {device}"


def _show_costs(report: Report, detector: FaceDetector) -> float:
    """Return the detector's million multiply-accumulates for one canvas."""
    costs = {
        "face detector": network_cost(detector, torch.zeros(1, 1, *YUNET_SIZE, dtype=torch.uint8)),
        "YuNet-n": network_cost(YuNet().eval(), torch.zeros(1, 3, *YUNET_SIZE)),
    }
    lines = [[name, f"{parameters:,}", f"{macs / 1e6:.1f}"] for name, (parameters, macs) in costs.items()]
    header = ["network", "parameters", "million multiply-accumulates"]
    report.show(Table("Networks, one image of 256x256", header, lines))
    return costs["face detector"][1] / 1e6


def _figures(report: Report, batches: Sequence[int], device: str, macs: float) -> list[Figure]:
    figures = [Figure("million multiply-accumulates", macs, 160, at_most=True)]
    if device == "cuda":
        return figures
    title = _title(batches[0], device)

    def ratio(way: str, base: str) -> float | None:
        times = [report.median(title, name, "call") for name in (way, base)]
        return None if times[0] is None or times[1] is None else times[0] / times[1]

    name = f"{title}: TorchScript"
    return [
        *figures,
        Figure(f"{name} / YuNet-n in onnxruntime", ratio(TORCHSCRIPT, YUNET), 4, at_most=True),
        Figure(f"{name} / onnxruntime, the network alone", ratio(TORCHSCRIPT_NETWORK, ONNXRUNTIME_NETWORK)),
        Figure(
            f"{title}: ONNX file / its network, onnxruntime",
            *(ratio(ONNX, ONNXRUNTIME_NETWORK), 1.05),
            at_most=True,
        ),
    ]
