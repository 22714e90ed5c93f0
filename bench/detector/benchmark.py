"""One run of `lensbox bench detector` from beginning to end."""

import functools
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from lensbox.bench.comparison import call_series, clock_of, compare
from lensbox.bench.detector import detector_report
from lensbox.bench.detector.check import check_way
from lensbox.bench.detector.cost import network_cost
from lensbox.bench.detector.detector_report import DETECTOR, YUNET_N
from lensbox.bench.detector.onednn_log import onednn_reorders
from lensbox.bench.detector.onnx_profile import read_profile
from lensbox.bench.detector.onnx_session import exported_network, open_session
from lensbox.bench.detector.operators import typical
from lensbox.bench.detector.results import Breakdown, DetectorReport, Timing, write_csv_files
from lensbox.bench.detector.subject import Subject, make_subject
from lensbox.bench.detector.torch_profile import profile_torch
from lensbox.bench.detector.ways import WAYS, Call, Way
from lensbox.bench.detector.yunet import YuNet
from lensbox.bench.environment import environment
from lensbox.bench.measurement import Effort
from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.threads import cpu_threads
from lensbox.bench.timing import Series
from lensbox.common.files import atomic_write
from lensbox.model import FaceDetector
from lensbox.runtime.freed_memory import keep_freed_memory

_PACKAGES = ("onnx", "onnxscript", "onnxruntime", "openvino")
# Many short samples of a few calls: on a busy machine the median is then that of the undisturbed ones.
_EFFORT = Effort(rounds=100, sample_seconds=0.004, figure_seconds=3.0)
_QUICK = Effort(rounds=15, sample_seconds=0.004, figure_seconds=0.5, leave_out_slow_starts=True)
_WARM_UP_CALLS = 10
_PROFILED_CALLS = 5  # in a row


@dataclass(frozen=True)
class Options:
    """What is to be run.

    output: folder for the files, or None.
    quick: fewer samples, and nothing that is slow to start.
    threads: of the CPU.
    batch: images a call.
    """

    output: Path | None = None
    quick: bool = False
    threads: int = 1
    batch: int = 1


def run(detector: FaceDetector, options: Options, say: Callable[[str], None]) -> DetectorReport:
    """Checks, times and profiles the ways to run a detector that is on the CPU and in eval mode; says what it
    found, and writes it to files where asked to. Raises ArtifactError if the detector cannot be exported."""
    keep_freed_memory()
    effort = _QUICK if options.quick else _EFFORT
    with tempfile.TemporaryDirectory() as folder, cpu_threads(options.threads):
        subject = make_subject(detector, Path(folder), options.threads, options.batch)
        costs = {
            DETECTOR: network_cost(detector, subject.canvas[:1]),
            YUNET_N: network_cost(YuNet().eval(), torch.zeros(1, 3, *subject.canvas.shape[2:])),
        }
        found = DetectorReport(
            environment(torch.device("cpu"), _PACKAGES), costs, options.threads, batch=options.batch
        )
        with torch.inference_mode():
            found.timings = _measure(subject, effort)
            try:
                if options.batch > 1:
                    raise UnavailableError("shown for one image a call")
                found.breakdown = _break_down(subject, effort)
            except UnavailableError as error:
                found.notes.append(f"where the time goes: {error}")
    say(detector_report.text(found))
    if options.output is not None:
        write_csv_files(options.output, found)
        atomic_write(options.output / "detector.md", detector_report.markdown(found).encode())
    return found


def _measure(subject: Subject, effort: Effort) -> list[Timing]:
    prepared = {way.name: functools.partial(_prepare, way, subject, effort) for way in WAYS}
    outcomes = compare(prepared)
    return [
        Timing(way.name, way.computes, outcomes[way.name].summary, outcomes[way.name].note) for way in WAYS
    ]


def _prepare(way: Way, subject: Subject, effort: Effort) -> Series:
    if way.slow_to_start and effort.leave_out_slow_starts:
        raise UnavailableError("left out by --quick: it is slow to start")
    call = way.load(subject)
    check_way(way, call, subject)
    return call_series(call, effort, clock_of(subject.threads))


def _break_down(subject: Subject, effort: Effort) -> Breakdown:
    """Profiles both runtimes, a few calls of each in turn, so that a disturbance meets both."""
    session = open_session(exported_network(subject), subject.threads, profile=subject.folder / "profile")
    inputs = {"images": subject.canvas.numpy()}
    module, thresholds = subject.artifact.module, (subject.score_threshold, subject.iou_threshold)
    anchors = len(subject.detector.anchor_strides)

    def detect() -> object:
        return module.detect(subject.canvas, *thresholds)

    def infer() -> object:
        return session.run(None, inputs)

    for call in (detect, infer):
        _repeat(call, _WARM_UP_CALLS)
    torch_splits = []
    turns = math.ceil(effort.rounds / _PROFILED_CALLS)
    for _ in range(turns):
        torch_splits += profile_torch(detect, _PROFILED_CALLS, anchors)
        _repeat(infer, _PROFILED_CALLS)
    onnx_splits = read_profile(Path(session.end_profiling()), anchors)
    after_warm_up = onnx_splits[_WARM_UP_CALLS:]
    return Breakdown(typical(torch_splits), typical(after_warm_up), onednn_reorders(detect))


def _repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()
