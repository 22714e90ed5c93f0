"""`lensbox bench`: times ops, detector, the way from photographs to boxes, and the article's step."""

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lensbox.bench.groups import GROUPS
from lensbox.bench.serve.rows import ROWS
from lensbox.common.command import FILE, Command, require_runner, seconds
from lensbox.common.errors import DeviceError, ExitCode
from lensbox.common.files import require_writable_folder
from lensbox.common.reporting import start_reporting

if TYPE_CHECKING:
    from lensbox.bench.article.results import ArticleReport
    from lensbox.bench.detector.results import DetectorReport
    from lensbox.bench.ops_report import Report
    from lensbox.bench.serve.options import Peer

# Lensbox's own op or artifact was wrong, or failed.
EXIT_WRONG = ExitCode.DEFECT


def _peer(text: str) -> "Peer":
    """Workers, batch size and threads, as "8x32" or "1x8x2"."""
    from lensbox.bench.serve.options import Peer

    if not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){1,2}", text, re.ASCII):
        raise click.BadParameter(f"must be WORKERSxBATCH[xTHREADS], such as 8x32 or 1x8x2, got {text!r}")
    return Peer(*map(int, text.split("x")))


def _load_seconds(text: str) -> float:
    """For how long requests are sent: shorter, and there might be no answer to count."""
    value = seconds(text)
    if value < 0.1:
        raise click.BadParameter(f"must be at least 0.1, got {text}")
    return value


_device = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is a GPU."
)
_weights = click.option("--weights", type=FILE, metavar="F", help="Default: the shipped ones.")
_threads = click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads")


@click.group()
def bench() -> None:
    """Times ops, detector, the way from photographs to boxes and the article's step beside their peers."""
    start_reporting(logging.WARNING)  # of the exports that it times it need not tell


@bench.command(cls=Command)
@_device
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
    from lensbox.bench.benchmark import Options, run

    _check_folders(output=output)
    report = run(Options(_present(device), output, quick, only, threads, time_limit), _say)
    return EXIT_WRONG if _own_defects(report) else ExitCode.GOOD


@bench.command(cls=Command)
@_device
@click.option("--output", type=FILE, metavar="DIR", help="Write article.csv, article.md, article.png to DIR.")
@click.option(
    "--trace", type=FILE, metavar="DIR", help="Write a trace of torch.profiler for each row to DIR."
)
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Samples. Default: 1024; 32 on the CPU.")
@click.option("--quick", is_flag=True, help="Fewer samples of time; no torch.compile.")
@_threads
def article(
    device: str | None, output: Path | None, trace: Path | None, batch: int | None, quick: bool, threads: int
) -> ExitCode:
    """Repeats the article's experiment beside its published figures, and answers it.

    A training step of its net in phases, one row for each way to the loss. A CPU runs it scaled down.
    """
    from lensbox.bench.article.benchmark import Options, run

    _check_folders(output=output, trace=trace)
    report = run(Options(_present(device), output, trace, quick, batch, threads), _say)
    return EXIT_WRONG if _own_article_defects(report) else ExitCode.GOOD


@bench.command(cls=Command)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="cuda only with --artifact so far."
)
@_weights
@click.option("--artifact", type=FILE, metavar="F", help="Time this artifact, of any detector, instead.")
@click.option(
    "--output", type=FILE, metavar="DIR", help="Write CSV files and detector.md (artifact.md) to DIR."
)
@click.option("--quick", is_flag=True, help="Fewer samples; no torch.compile.")
@click.option(
    "--batch",
    type=click.IntRange(1),
    metavar="N",
    help="Images a call. Default: 1, and several numbers with --artifact.",
)
@_threads
def detector(
    device: str,
    weights: Path | None,
    artifact: Path | None,
    output: Path | None,
    quick: bool,
    batch: int | None,
    threads: int,
) -> ExitCode:
    """Times the detector in several formats and runtimes beside a published network.

    Each is checked first. Shows what the time of TorchScript and onnxruntime is made of. With --artifact,
    times any detector for several batch sizes, from canvases and from images.
    """
    _check_folders(output=output)
    if artifact is not None:
        from lensbox.bench.detector import artifact_times

        if weights is not None:
            raise click.UsageError("--weights and --artifact must not be given together")
        options = artifact_times.Options(_present(device), output, quick, threads, batch)
        return ExitCode.GOOD if artifact_times.run(artifact, options, _say) else EXIT_WRONG
    if device == "cuda":
        raise click.UsageError("--device cuda must come with --artifact")

    from lensbox.bench.detector.benchmark import Options, run
    from lensbox.model import load_detector

    report = run(load_detector(weights), Options(output, quick, threads, batch or 1), _say)
    return EXIT_WRONG if _own_detector_defects(report) else ExitCode.GOOD


@bench.command(cls=Command)
@_device
@_weights
@click.option("--output", type=FILE, metavar="DIR", help="Write CSV files and photo.md to DIR.")
@click.option("--quick", is_flag=True, help="Fewer samples, sizes and kinds of files.")
@click.option(
    "--runner",
    type=FILE,
    envvar="LENSBOX_RUNNER",
    metavar="F",
    help="The C++ runner, whose boxes are compared; else that of the environment variable LENSBOX_RUNNER.",
)
@_threads
def photo(
    device: str | None,
    weights: Path | None,
    output: Path | None,
    quick: bool,
    runner: Path | None,
    threads: int,
) -> ExitCode:
    """Times the way from photographs to boxes: decode, letterbox, detect, restore, and all of it.

    Each way is checked first. Shows how answers move by reduced decoding, and how long files that are made
    for it can keep a decoder busy.
    """
    from lensbox.bench.photo.benchmark import Options, own_defects, run
    from lensbox.model import load_detector

    require_runner(runner)
    _check_folders(output=output)
    options = Options(_present(device), output, quick, threads, runner)
    return EXIT_WRONG if own_defects(run(load_detector(weights), options, _say)) else ExitCode.GOOD


@bench.command(cls=Command)
@click.option("--artifact", type=FILE, default=Path("artifacts/detector.pt"), help="What is served.")
@click.option("--image", type=FILE, metavar="F", help="What is sent. Default: a made-up JPEG of 512 x 512.")
@_device
@click.option("--only", type=click.Choice(ROWS), multiple=True, metavar="NAME...", help=", ".join(ROWS))
@click.option("--seconds", "duration", type=_load_seconds, default=8.0, metavar="S", help="Of each load.")
@click.option(
    "--overload-seconds", type=_load_seconds, metavar="S", help="Default: 60; --seconds with --quick."
)
@click.option("--frontends", type=click.IntRange(0), metavar="N", help="Default: the service's own.")
@click.option(
    "--load-processes",
    type=click.IntRange(1),
    metavar="N",
    help="That send requests. Default: 1; from 8 cores on, a quarter of them, which they then have alone.",
)
@click.option(
    "--requests",
    type=click.IntRange(0),
    metavar="N",
    help="Look at the memory after so many; 0: not at all. Default: 100000; 0 with --quick.",
)
@click.option(
    "--litserve",
    type=_peer,
    multiple=True,
    metavar="WORKERSxBATCH[xTHREADS]...",
    help="Default: 1x1 1x8 1x32 8x1 8x8 8x32, each with as many threads as the service.",
)
@click.option("--quick", is_flag=True, help="No peers.")
@_threads
def serve(
    artifact: Path,
    image: Path | None,
    device: str | None,
    only: tuple[str, ...],
    duration: float,
    overload_seconds: float | None,
    frontends: int | None,
    load_processes: int | None,
    requests: int | None,
    litserve: tuple["Peer", ...],
    quick: bool,
    threads: int,
) -> None:
    """Loads the HTTP service from other processes, and LitServe around the same artifact where installed.

    Each figure is that of the service divided by that of the artifact in process, or of LitServe, measured in
    turns. What --only names is measured alone, with what it is divided by.
    """
    from lensbox.bench.serve.benchmark import run
    from lensbox.bench.serve.options import PEERS, Options

    requests = (0 if quick else 100_000) if requests is None else requests
    left_out = {*(["litserve"] if quick else []), *(["memory"] if not requests else [])}
    options = Options(
        artifact,
        _present(device),
        image,
        rows=only or tuple(row for row in ROWS if row not in left_out),
        seconds=duration,
        overload_seconds=overload_seconds or (duration if quick else 60.0),
        frontends=frontends,
        load_processes=load_processes,
        requests=requests or 100_000,
        threads=threads,
        peers=litserve or PEERS,
    )
    run(options, _say)


def _check_folders(**folders: Path | None) -> None:
    """Raises OutputError for a folder, by the name of its option, that cannot be written to."""
    for option, folder in folders.items():
        if folder is not None:
            require_writable_folder(f"--{option}", folder)


def _present(device: str | None) -> str:
    """The device that is asked for; by default a GPU, where there is one. Raises DeviceError."""
    import torch

    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        from lensbox.runtime.device import why_no_gpu

        raise DeviceError(f"--device cuda: PyTorch finds no NVIDIA GPU, with {why_no_gpu()}")
    return device or ("cuda" if has_gpu else "cpu")


def _own_defects(report: "Report") -> bool:
    from lensbox.bench.peers.registry import OWN

    return any(row.peer in OWN and row.note.startswith(("WRONG", "failed")) for row in report.rows)


def _own_detector_defects(report: "DetectorReport") -> bool:
    from lensbox.bench.detector.ways import OWN

    return any(timing.way in OWN and timing.note for timing in report.timings)


def _own_article_defects(report: "ArticleReport") -> bool:
    from lensbox.bench.article.rows import OWN

    return any(result.row in OWN and not result.phases for result in report.rows)


def _say(text: str) -> None:
    print(text, end="\n\n", flush=True)
