"""`lensbox bench` in a checkout: FILE as everywhere, and the project's own benchmarks."""

import logging
from pathlib import Path
from typing import Any

import click

from lensbox.bench import GROUPS, article_module
from lensbox.cli.bench import bench as bench_file
from lensbox.cli.command import FILE, Command, start_reporting
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


@bench.command(cls=Command)
@click.option(
    "--only", type=click.Choice(list(GROUPS)), multiple=True, metavar="NAME...", help=", ".join(GROUPS)
)
@click.option("--quick", is_flag=True, help="Fewer sizes and samples, no torch.compile.")
@_device
def ops(**options: Any) -> None:
    """Time the box ops beside the implementations that a user would pick instead."""
    from lensbox.bench.measure import run_ops

    run_ops(**options)


@bench.command(cls=Command)
@_device
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Samples. Default: 1024; 32 on the CPU.")
@click.option("--quick", is_flag=True, help="Few steps, nothing by torch.compile.")
@click.option("--chart", type=FILE, metavar="PNG", help="Draw the phases (matplotlib).")
@click.option("--trace", type=FILE, metavar="DIR", help="Write a profiler trace of each row to DIR.")
def article(**options: Any) -> None:
    """Repeat the article's experiment (examples/article).

    A training step of its net in phases, one row for each way to the loss. A GPU with a batch of 1024 stands
    beside the published figures. A CPU runs the experiment scaled down.
    """
    for name, require in (("chart", require_writable_file), ("trace", require_writable_folder)):
        if options[name] is not None:
            require(f"--{name}", options[name])
    article_module("experiment").run(**options)


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
def serve(**options: Any) -> None:
    """Load the HTTP service with wrk, in turns with LitServe and the artifact in process.

    Needs the program wrk. LitServe is left out if it is not installed; the fastest of its settings counts.
    """
    from lensbox.bench.serve.benchmark import run_load_test

    run_load_test(**options)
