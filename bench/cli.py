"""`lensbox bench` in a checkout: FILE as everywhere, and the project's own benchmarks."""

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lensbox.client.bench import bench as bench_file
from lensbox.common.command import FILE, Command, seconds
from lensbox.common.errors import ExitCode
from lensbox.common.files import require_writable_folder
from lensbox.common.reporting import start_reporting

if TYPE_CHECKING:
    from lensbox.bench.report import Report
    from lensbox.bench.serve.benchmark import LitServe

# Kept here, and not imported: `--help` must not import torch. A test compares them with their homes.
GROUPS = ("headline", "weighted", "transfer", "nms", "cpu", "pairwise", "exercise", "sizes")
SERVE_ROWS = ("throughput", "latency", "canvases", "overload", "memory", "recovery", "litserve")


class _FileOrCommand(click.Group):
    """Takes arguments that begin with no command's name as those of `lensbox bench FILE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, and its arguments."""
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "FILE", bench_file, args


def _litserve(text: str) -> "LitServe":
    """Parse workers, batch size and threads, such as "8x32" or "1x8x2"."""
    from lensbox.bench.serve.benchmark import LitServe

    if not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){1,2}", text, re.ASCII):
        raise click.BadParameter(f"must be WORKERSxBATCH[xTHREADS], such as 8x32 or 1x8x2, got {text!r}")
    return LitServe(*map(int, text.split("x")))


def _load_seconds(text: str) -> float:
    """Parse the duration of a load. A shorter one might have no answer to count."""
    value = seconds(text)
    if value < 0.1:
        raise click.BadParameter(f"must be at least 0.1, got {text}")
    return value


def _batches(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    from lensbox.client.bench import batch_sizes

    return None if text is None else batch_sizes(text)


_device = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda if there is a GPU."
)
_weights = click.option("--weights", type=FILE, metavar="F", help="Default: the shipped weights.")
_threads = click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads")
_output = click.option("--output", type=FILE, metavar="DIR", help="Write tables, CSV files and plots to DIR.")
_quick = click.option("--quick", is_flag=True, help="Fewer sizes and samples; nothing that is slow to start.")


@click.group(
    cls=_FileOrCommand,
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
    subcommand_metavar="FILE | COMMAND [OPTIONS]",
)
def bench() -> None:
    """Time an artifact (lensbox bench FILE), or run one of the project's own benchmarks.

    Each way is checked before it is timed. Exit code 1: Lensbox's own answer was wrong.
    """
    start_reporting(logging.WARNING)  # the exports that are timed log nothing


@bench.command(cls=Command)
@_device
@_output
@_quick
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
    """Time the box ops beside the implementations that a user would pick instead."""
    from lensbox.bench.ops.benchmark import Options, run

    _check_folders(output=output)
    return _exit_code(run(Options(_usable(device), output, quick, only, threads, time_limit), _say))


@bench.command(cls=Command)
@_device
@_output
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Samples. Default: 1024; 32 on the CPU.")
@_quick
@_threads
def article(
    device: str | None, output: Path | None, batch: int | None, quick: bool, threads: int
) -> ExitCode:
    """Repeat the article's experiment beside its published figures.

    A training step of its net in phases, one row for each way to the loss. A CPU runs it scaled down.
    """
    from lensbox.bench.article.benchmark import Options, run

    _check_folders(output=output)
    return _exit_code(run(Options(_usable(device), output, quick, batch, threads), _say))


@bench.command(cls=Command)
@_device
@_weights
@_output
@_quick
@click.option(
    "--batch",
    callback=_batches,
    metavar="N,N...",
    help="Canvases per call. Default: 1,8; on a GPU 1,8,32,128,256.",
)
@_threads
def detector(
    device: str | None,
    weights: Path | None,
    output: Path | None,
    quick: bool,
    batch: tuple[int, ...] | None,
    threads: int,
) -> ExitCode:
    """Time the detector by format, precision and batch size, on a GPU in CUDA graphs too."""
    from lensbox.bench.detector.benchmark import Options, run
    from lensbox.model import load_detector

    _check_folders(output=output)
    return _exit_code(
        run(load_detector(weights), Options(_usable(device), output, quick, threads, batch), _say)
    )


@bench.command(cls=Command)
@_device
@_weights
@_output
@_quick
@_threads
def photo(
    device: str | None, weights: Path | None, output: Path | None, quick: bool, threads: int
) -> ExitCode:
    """Time the way from photographs to boxes beside Pillow and OpenCV.

    Shows also how answers move by decoding at a reduced scale.
    """
    from lensbox.bench.photo.benchmark import Options, run
    from lensbox.model import load_detector

    _check_folders(output=output)
    return _exit_code(run(load_detector(weights), Options(_usable(device), output, quick, threads), _say))


@bench.command(cls=Command)
@click.option("--artifact", type=FILE, default=Path("artifacts/detector.pt"), help="The file to serve.")
@click.option("--image", type=FILE, metavar="F", help="The file to send. Default: a made-up JPEG, 512 x 512.")
@_device
@_output
@click.option(
    "--only", type=click.Choice(SERVE_ROWS), multiple=True, metavar="NAME...", help=", ".join(SERVE_ROWS)
)
@click.option("--seconds", "duration", type=_load_seconds, default=8.0, metavar="S", help="Of each load.")
@click.option(
    "--overload-seconds", type=_load_seconds, metavar="S", help="Default: 60; --seconds with --quick."
)
@click.option("--frontends", type=click.IntRange(0), metavar="N", help="Default: the service's own.")
@click.option(
    "--load-processes",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that send. Default: 1; from 8 cores on a quarter of the cores, which they then own.",
)
@click.option(
    "--requests",
    type=click.IntRange(0),
    metavar="N",
    help="Look at the memory after so many; 0: not at all. Default: 100000; 0 with --quick.",
)
@click.option(
    "--litserve",
    type=_litserve,
    multiple=True,
    metavar="WORKERSxBATCH[xTHREADS]...",
    help="Default: 1x1 1x8 1x32 8x1 8x8 8x32, each with as many threads as the service.",
)
@click.option("--quick", is_flag=True, help="No LitServe, and a short overload.")
@_threads
def serve(
    artifact: Path,
    image: Path | None,
    device: str | None,
    output: Path | None,
    only: tuple[str, ...],
    duration: float,
    overload_seconds: float | None,
    frontends: int | None,
    load_processes: int | None,
    requests: int | None,
    litserve: tuple["LitServe", ...],
    quick: bool,
    threads: int,
) -> None:
    """Load the HTTP service from other processes, and LitServe around the same artifact if installed.

    Each figure is the service's, divided by that of the artifact in process or of LitServe, taken in turns.
    A row that --only names is measured alone, with the one that it is divided by.
    """
    from lensbox.bench.serve.benchmark import LITSERVES, Options, run

    _check_folders(output=output)
    requests = (0 if quick else 100_000) if requests is None else requests
    left_out = {*(["litserve"] if quick else []), *(["memory"] if not requests else [])}
    options = Options(
        artifact,
        _usable(device),
        output,
        image,
        rows=only or tuple(row for row in SERVE_ROWS if row not in left_out),
        seconds=duration,
        overload_seconds=overload_seconds or (duration if quick else 60.0),
        frontends=frontends,
        load_processes=load_processes,
        requests=requests or 100_000,
        threads=threads,
        peers=litserve or LITSERVES,
    )
    run(options, _say)


def _check_folders(**folders: Path | None) -> None:
    """Raise OutputError, naming the option, for a folder that cannot be written to."""
    for option, folder in folders.items():
        if folder is not None:
            require_writable_folder(f"--{option}", folder)


def _usable(device: str | None) -> str:
    from lensbox.bench.machine import usable_device

    return usable_device(device)


def _exit_code(report: "Report") -> ExitCode:
    return ExitCode.DEFECT if report.has_own_defect else ExitCode.GOOD


def _say(text: str) -> None:
    print(text, end="\n\n", flush=True)
