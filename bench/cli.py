"""`lensbox bench`: times the ops beside their peers, or the detector in several runtimes."""

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lensbox.bench.groups import GROUPS

if TYPE_CHECKING:
    from lensbox.bench.detector.results import DetectorReport
    from lensbox.bench.ops_report import Report

EXIT_GOOD = 0
EXIT_WRONG = 1  # Lensbox's own op or artifact was wrong, or failed
EXIT_UNUSABLE = 3  # as in the other commands: what was asked for is not here
EXIT_BAD_WEIGHTS = 4  # as in `lensbox export`


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args(argv)
    code: int = options.run(options)
    return code


def _ops(options: argparse.Namespace) -> int:
    import torch

    from lensbox.bench.benchmark import Options, run

    has_gpu = torch.cuda.is_available()
    device = options.device or ("cuda" if has_gpu else "cpu")
    if device == "cuda" and not has_gpu:
        print("lensbox bench: --device cuda: PyTorch finds no NVIDIA GPU", file=sys.stderr)
        return EXIT_UNUSABLE
    report = run(
        Options(device, options.output, options.quick, options.only, options.threads, options.time_limit),
        _say,
    )
    return EXIT_WRONG if _own_defects(report) else EXIT_GOOD


def _own_defects(report: "Report") -> bool:
    from lensbox.bench.peers.registry import LENSBOX

    return any(row.peer == LENSBOX and row.note.startswith(("WRONG", "failed")) for row in report.rows)


def _detector(options: argparse.Namespace) -> int:
    from lensbox.bench.detector.benchmark import Options, run
    from lensbox.errors import ArtifactError
    from lensbox.model import load_detector

    try:
        detector = load_detector(options.weights)
    except (OSError, ValueError) as error:
        print(f"lensbox bench: {error}", file=sys.stderr)
        return EXIT_BAD_WEIGHTS
    try:
        report = run(detector, Options(options.output, options.quick, options.threads), _say)
    except ArtifactError as error:
        print(f"lensbox bench: {error}", file=sys.stderr)
        return EXIT_WRONG
    return EXIT_WRONG if _own_detector_defects(report) else EXIT_GOOD


def _own_detector_defects(report: "DetectorReport") -> bool:
    from lensbox.bench.detector.ways import OWN

    return any(timing.way in OWN and timing.note for timing in report.timings)


def _say(text: str) -> None:
    print(text, end="\n\n", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lensbox bench")
    commands = parser.add_subparsers(dest="command", required=True, metavar="ops|detector")
    ops = commands.add_parser(
        "ops",
        help="time the box ops",
        description="Times the box ops beside what a user would pick instead. Each is checked first.",
    )
    ops.set_defaults(run=_ops)
    ops.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    ops.add_argument("--output", type=Path, metavar="DIR", help="write ops.csv, results.md and plots to DIR")
    ops.add_argument(
        "--quick", action="store_true", help="fewer sizes and samples; nothing that compiles for each shape"
    )
    ops.add_argument("--only", nargs="+", choices=GROUPS, default=(), metavar="NAME", help=", ".join(GROUPS))
    ops.add_argument(
        "--time-limit", type=_seconds, metavar="SECONDS", help="begin nothing new after so many seconds"
    )
    detector = commands.add_parser(
        "detector",
        help="time the detector",
        description="Times the detector in several runtimes, one image a call, beside a published network. "
        "Each is checked first. Shows what the time of TorchScript and onnxruntime is made of.",
    )
    detector.set_defaults(run=_detector)
    detector.add_argument("--device", choices=("cpu",), default="cpu", help="only the CPU so far")
    detector.add_argument("--weights", type=Path, metavar="F", help="default: the shipped ones")
    detector.add_argument("--output", type=Path, metavar="DIR", help="write CSV files and detector.md to DIR")
    detector.add_argument("--quick", action="store_true", help="fewer samples; no torch.compile")
    for command in (ops, detector):
        command.add_argument("--threads", type=_positive, default=1, help="CPU threads (1)")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:  # written so that NaN fails
        raise argparse.ArgumentTypeError(f"must be finite and at least 0, got {text}")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
