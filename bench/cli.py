"""`lensbox bench` in a checkout: FILE as everywhere, and the project's own benchmarks."""

import functools
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lensbox.bench import OPS_GROUPS, SERVE_ROWS
from lensbox.client.bench import batch_sizes
from lensbox.client.bench import bench as bench_file
from lensbox.common.command import FILE, Command, seconds
from lensbox.common.decode import DECODE, Decode
from lensbox.common.errors import ExitCode
from lensbox.common.files import require_writable_file, require_writable_folder
from lensbox.common.reporting import start_reporting

if TYPE_CHECKING:
    from lensbox.bench.report import Options, Report


class _FileOrCommand(click.Group):
    """Pass arguments that do not begin with the name of a command to `lensbox bench FILE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, and its arguments."""
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "FILE", bench_file, args


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


def _command(run: Callable[..., "Report"]) -> click.Command:
    """Make a command of a function that takes the options which all benchmarks share, and its own."""

    @functools.wraps(run)
    def command(device: str, output: Path | None, quick: bool, threads: int, **own: Any) -> ExitCode:
        from lensbox.bench.report import Options
        from lensbox.runtime.device import choose_device

        if output is not None:
            require_writable_folder("--output", output)
        report = run(Options(choose_device(device).type, output, quick, threads, _say), **own)
        return ExitCode.DEFECT if report.has_own_defect else ExitCode.GOOD

    shared = (
        click.option(
            "--device", type=click.Choice(["cpu", "cuda", "auto"]), default="auto", help="auto: a GPU."
        ),
        click.option("--output", type=FILE, metavar="DIR", help="Write tables and CSV files to DIR."),
        click.option("--quick", is_flag=True, help="Fewer sizes and samples; nothing that is slow to start."),
        click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads"),
    )
    decorated: Any = command
    for option in reversed(shared):
        decorated = option(decorated)
    return bench.command(cls=Command)(decorated)


def _only(names: tuple[str, ...]) -> Callable[[Any], Any]:
    return click.option(
        "--only", type=click.Choice(names), multiple=True, metavar="NAME...", help=", ".join(names)
    )


_weights = click.option("--weights", type=FILE, metavar="F", help="Default: the shipped weights.")


@_command
@_only(OPS_GROUPS)
def ops(options: "Options", only: tuple[str, ...]) -> "Report":
    """Time the box ops beside the implementations that a user would pick instead."""
    from lensbox.bench.ops.benchmark import run

    return run(options, only)


@bench.command(cls=Command)
@click.option("--device", type=click.Choice(["cpu", "cuda", "auto"]), default="auto", help="auto: a GPU.")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Samples. Default: 1024; 32 on the CPU.")
@click.option("--quick", is_flag=True, help="Few steps, nothing by torch.compile.")
@click.option("--chart", type=FILE, metavar="PNG", help="Draw the phases (matplotlib).")
@click.option("--trace", type=FILE, metavar="DIR", help="Write a profiler trace of each row to DIR.")
def article(device: str, **options: Any) -> ExitCode:
    """Repeat the article's experiment (examples/article) beside its published figures.

    A training step of its net in phases, one row for each way to the loss. A CPU runs it scaled down.
    """
    from lensbox.runtime.device import choose_device

    for name, require in (("chart", require_writable_file), ("trace", require_writable_folder)):
        if options[name] is not None:
            require(f"--{name}", options[name])
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "article"))
    run = importlib.import_module("experiment").run
    return ExitCode.GOOD if run(choose_device(device), **options) else ExitCode.DEFECT


@_command
@_weights
@click.option(
    "--batch",
    callback=lambda _, __, text: None if text is None else batch_sizes(text),
    metavar="N,N...",
    help="Canvases per call. Default: 1,8; on a GPU 1, 2, 4 and so on to 256.",
)
@click.option(
    "--package",
    "packages",
    type=FILE,
    multiple=True,
    metavar="F...",
    help="AOTInductor packages of the detector to time. Default: export them.",
)
def detector(
    options: "Options", weights: Path | None, batch: tuple[int, ...] | None, packages: tuple[Path, ...]
) -> "Report":
    """Time the detector by format, precision and batch size, on a GPU in CUDA graphs too."""
    from lensbox.bench.detector.benchmark import run
    from lensbox.model import load_detector

    return run(load_detector(weights), options, batch, packages)


@_command
@_weights
def photo(options: "Options", weights: Path | None) -> "Report":
    """Time the way from photographs to boxes beside Pillow and OpenCV."""
    from lensbox.bench.photo.benchmark import run
    from lensbox.model import load_detector

    return run(load_detector(weights), options)


@_command
@click.option("--artifact", type=FILE, default=Path("artifacts/detector.pt"), help="The file to run.")
@click.option("--data", type=FILE, multiple=True, required=True, help="Labelled photographs, 144 at least.")
def tiles(options: "Options", artifact: Path, data: tuple[Path, ...]) -> "Report":
    """Score and time tiles in mosaics of labelled photographs, beside the photographs one by one."""
    from lensbox.bench.tiles.benchmark import run

    return run(options, artifact, data)


def _load_seconds(text: str) -> float:
    """Parse the duration of a load. A shorter one might have no answer to count."""
    value = seconds(text)
    if value < 0.1:
        raise click.BadParameter(f"must be at least 0.1, got {text}")
    return value


@_command
@click.option("--artifact", type=FILE, default=Path("artifacts/detector.pt"), help="The file to serve.")
@_only(SERVE_ROWS)
@click.option("--seconds", "duration", type=_load_seconds, default=8.0, metavar="S", help="Of each load.")
@click.option("--decode", type=click.Choice(DECODE), default="auto", help="JPEG files.")
def serve(
    options: "Options", artifact: Path, only: tuple[str, ...], duration: float, decode: Decode
) -> "Report":
    """Load the HTTP service from other processes, and LitServe around the same artifact if installed.

    Each figure of the service is divided by the figure of the artifact in process or of LitServe, in turns.
    A row that --only names is measured alone, with the one that it is divided by. --quick leaves LitServe and
    the memory out, and shortens the overload.
    """
    from lensbox.bench.serve.benchmark import Plan, run

    usual = tuple(row for row in SERVE_ROWS if not (options.quick and row in ("litserve", "memory")))
    return run(options, Plan(artifact, only or usual, duration, decode))


def _say(text: str) -> None:
    print(text, end="\n\n", flush=True)
