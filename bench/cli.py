"""`lensbox bench`: times the ops beside their peers, or the detector in several runtimes."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lensbox.bench.groups import GROUPS
from lensbox.cli.command import FILE, Command, seconds
from lensbox.cli.reporting import start_reporting
from lensbox.errors import DeviceError, ExitCode

if TYPE_CHECKING:
    from lensbox.bench.detector.results import DetectorReport
    from lensbox.bench.ops_report import Report

# Lensbox's own op or artifact was wrong, or failed.
EXIT_WRONG = ExitCode.DEFECT

_threads = click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads")


@click.group()
def bench() -> None:
    """Times the ops beside their peers, or the detector in several runtimes."""
    start_reporting(logging.WARNING)  # of the exports that it times it need not tell


@bench.command(cls=Command)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is a GPU.")
@click.option("--output", type=FILE, metavar="DIR", help="Write ops.csv, results.md and plots to DIR.")
@click.option("--quick", is_flag=True, help="Fewer sizes and samples; nothing that compiles for each shape.")
@click.option("--only", type=click.Choice(GROUPS), multiple=True, metavar="NAME...", help=", ".join(GROUPS))
@click.option(
    "--time-limit", type=seconds, metavar="SECONDS", help="Begin nothing new after so many seconds."
)
@_threads
def ops(
    device: str | None,
    output: Path | None,
    quick: bool,
    only: tuple[str, ...],
    time_limit: float | None,
    threads: int,
) -> ExitCode:
    """Times the box ops beside what a user would pick instead. Each is checked first."""
    import torch

    from lensbox.bench.benchmark import Options, run

    has_gpu = torch.cuda.is_available()
    device = device or ("cuda" if has_gpu else "cpu")
    if device == "cuda" and not has_gpu:
        raise DeviceError("--device cuda: PyTorch finds no NVIDIA GPU")
    report = run(Options(device, output, quick, only, threads, time_limit), _say)
    return EXIT_WRONG if _own_defects(report) else ExitCode.GOOD


@bench.command(cls=Command)
@click.option("--device", type=click.Choice(["cpu"]), default="cpu", help="Only the CPU so far.")
@click.option("--weights", type=FILE, metavar="F", help="Default: the shipped ones.")
@click.option("--output", type=FILE, metavar="DIR", help="Write CSV files and detector.md to DIR.")
@click.option("--quick", is_flag=True, help="Fewer samples; no torch.compile.")
@_threads
def detector(device: str, weights: Path | None, output: Path | None, quick: bool, threads: int) -> ExitCode:
    """Times the detector in several runtimes, one image a call, beside a published network.

    Each is checked first. Shows what the time of TorchScript and onnxruntime is made of.
    """
    from lensbox.bench.detector.benchmark import Options, run
    from lensbox.model import load_detector

    report = run(load_detector(weights), Options(output, quick, threads), _say)
    return EXIT_WRONG if _own_detector_defects(report) else ExitCode.GOOD


def _own_defects(report: "Report") -> bool:
    from lensbox.bench.peers.registry import LENSBOX

    return any(row.peer == LENSBOX and row.note.startswith(("WRONG", "failed")) for row in report.rows)


def _own_detector_defects(report: "DetectorReport") -> bool:
    from lensbox.bench.detector.ways import OWN

    return any(timing.way in OWN and timing.note for timing in report.timings)


def _say(text: str) -> None:
    print(text, end="\n\n", flush=True)
