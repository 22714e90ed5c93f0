"""`lensbox bench` in a checkout: FILE as everywhere, and the project's own benchmarks."""

import logging
from pathlib import Path
from typing import Any

import click

from lensbox.bench import OPS_GROUPS, article_module
from lensbox.cli.bench import bench as bench_file
from lensbox.cli.command import FILE, Command, start_reporting
from lensbox.common.errors import ExitCode
from lensbox.common.files import require_writable_file, require_writable_folder


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
    subcommand_metavar="FILE... | COMMAND [OPTIONS]",
)
def bench() -> None:
    """Time artifacts (lensbox bench FILE...), or run one of the project's own benchmarks.

    Each way is checked before it is timed. Exit code 1: Lensbox's own answer was wrong.
    """
    start_reporting(logging.WARNING)


_device = click.option(
    "--device", type=click.Choice(["cpu", "cuda", "auto"]), default="auto", help="auto: a GPU."
)
_threads = click.option("--threads", type=click.IntRange(1), default=1, metavar="N", help="CPU threads.")


@bench.command(cls=Command)
@click.option(
    "--only", type=click.Choice(OPS_GROUPS), multiple=True, metavar="NAME...", help=", ".join(OPS_GROUPS)
)
@click.option("--quick", is_flag=True, help="Fewer sizes and samples, no torch.compile.")
@_device
@_threads
def ops(device: str, quick: bool, threads: int, only: tuple[str, ...]) -> ExitCode:
    """Time the box ops beside the implementations that a user would pick instead."""
    from lensbox.bench.ops.cases import run_ops
    from lensbox.runtime.device import choose_device

    is_good = run_ops(choose_device(device), quick, threads, only, _say)
    return ExitCode.GOOD if is_good else ExitCode.DEFECT


@bench.command(cls=Command)
@_device
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
    run = article_module("experiment").run
    return ExitCode.GOOD if run(choose_device(device), **options) else ExitCode.DEFECT


@bench.command(cls=Command)
@click.option("--artifact", type=FILE, default=Path("artifacts/detector.pt"), help="The file to serve.")
@click.option(
    "--connections",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 64, 256),
    metavar="N...",
    help="A table for each number of connections.",
)
@click.option("--seconds", type=click.IntRange(1), default=8, metavar="S", help="Of each load.")
@click.option("--quick", is_flag=True, help="Without LitServe, whose settings are tried first.")
@_device
@_threads
def serve(
    artifact: Path, connections: tuple[int, ...], seconds: int, quick: bool, device: str, threads: int
) -> ExitCode:
    """Load the HTTP service with wrk, in turns with LitServe and the artifact in process.

    Needs the program wrk. LitServe is left out if it is not installed; the fastest of its settings counts.
    """
    from lensbox.bench.serve.benchmark import LoadTest, run_load_test
    from lensbox.runtime.device import choose_device

    test = LoadTest(artifact, choose_device(device).type, threads, connections, seconds, not quick)
    return ExitCode.GOOD if run_load_test(test, _say) else ExitCode.DEFECT


def _say(text: str) -> None:
    print(text, end="\n\n", flush=True)
