"""The `lensbox` command. A subcommand is imported when it runs: `lensbox --help` must not wait for torch."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from lensbox.cli.command import CommandError
from lensbox.cli.reporting import reporting, warn_of_unknown_variables
from lensbox.common.errors import ExitCode
from lensbox.common.machine import package_version


class LazyCommand(NamedTuple):
    """A subcommand.

    target: "module:name" of a `click.Command`; importing the module must not import torch. summary: its line
    in the help. extra: the optional dependency group that it needs; "" for the base installation.
    """

    target: str
    summary: str
    extra: str = ""


COMMANDS: dict[str, LazyCommand] = {
    "export": LazyCommand(
        "lensbox.export.cli:export", "Write a detector's files: TorchScript, ONNX, compiled."
    ),
    "sign": LazyCommand("lensbox.export.artifact_cli:sign", "Sign artifacts.", extra="sign"),
    "info": LazyCommand("lensbox.export.artifact_cli:info", "Describe an artifact, or this installation."),
    "detect": LazyCommand("lensbox.cli.detect:detect", "Detect objects in image files."),
    # Training is in the repository, not in the wheel.
    "train": LazyCommand("lensbox.train.cli:train", "Train a face detector (in a clone).", extra="train"),
    "evaluate": LazyCommand(
        "lensbox.train.cli:evaluate", "Score a detector on labelled photographs (in a clone).", extra="train"
    ),
    "bench": LazyCommand(
        # Only the repository has the project's own benchmarks.
        "lensbox.bench.cli:bench" if find_spec("lensbox.bench") else "lensbox.cli.bench:bench",
        "Time an artifact on this machine.",
        extra="bench",
    ),
    "serve": LazyCommand("lensbox.serve.cli:serve", "Answer detection requests over HTTP.", extra="serve"),
}


class LazyGroup(click.Group):
    """A group of lazy commands. commands_by_name: the table; help shows it without importing commands."""

    def __init__(self, *args: Any, commands_by_name: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the table."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in self._lazy:
            return None
        module, _, name = self._lazy[cmd_name].target.partition(":")
        try:
            found: click.Command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise self._missing_package(cmd_name, error) from error
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command in the arguments. Raise UsageError with a suggestion for an unknown name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self._lazy, 1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command in the arguments."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise self._missing_package(str(ctx.invoked_subcommand), error) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self._lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names of commands, and the options of the group."""
        names = [
            CompletionItem(name, help=command.summary)
            for name, command in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def _missing_package(self, command: str, error: ModuleNotFoundError) -> Exception:
        package = (error.name or "").partition(".")[0]
        if (error.name or "").startswith("lensbox.train"):
            message = "training and evaluation are in the repository, not in the package; run this in a clone"
            return CommandError(f"lensbox {command}", f"{message} (docs/training.md)", ExitCode.UNUSABLE)
        if package in ("", "lensbox"):
            return error  # a defect of this package, not a missing installation
        extra = self._lazy[command].extra
        requirement = f"lensbox[{extra}]" if extra else "lensbox"
        message = (
            f"the Python package {package!r} is not installed; install it with\n  pip install '{requirement}'"
        )
        return CommandError(f"lensbox {command}", message, ExitCode.UNUSABLE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, one of `lensbox.common.errors.ExitCode`.

    arguments: without the program's name; None for the arguments of the process. Errors that a user can fix
    become one message on stderr; all others keep their traceback.
    """
    with reporting():
        try:
            code = lensbox(args=arguments, prog_name="lensbox", standalone_mode=False)
        except click.Abort:  # SIGINT
            return ExitCode.INTERRUPTED
        except click.ClickException as error:
            error.show()
            return error.exit_code
    return ExitCode.GOOD if code is None else code


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        # Package metadata: importing torch is slow.
        python = platform.python_version()
        click.echo(
            f"lensbox {package_version('lensbox')} (torch {package_version('torch')}, Python {python})"
        )
        context.exit()


@click.group(
    cls=LazyGroup, commands_by_name=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions of Lensbox, torch and Python, and exit.",
)
@click.pass_context
def lensbox(context: click.Context) -> None:
    """The deployment bundle for detectors that depend on custom CUDA ops."""
    if context.invoked_subcommand != "serve":  # `serve` warns in its own log
        warn_of_unknown_variables()
