"""The `lensbox` command. A subcommand is imported when it runs: `lensbox --help` must not wait for torch."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import click

from lensbox.cli.command import reporting
from lensbox.common.errors import ExitCode, LensboxError
from lensbox.common.machine import package_version


class LazyCommand(click.Command):
    """The name and the summary of a command, which is imported when it gets its arguments.

    target: "module:name" of a `click.Command`; importing the module must not import torch. extra: the
    optional dependency group that the command needs; "" for the base installation.
    """

    def __init__(self, name: str, target: str, summary: str, extra: str = "") -> None:
        super().__init__(name, help=summary)
        self.target, self.extra = target, extra

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Return the context of the imported command, which click then invokes."""
        return self.load().make_context(*arguments, **extra)


COMMANDS = {
    name: LazyCommand(name, *row)
    for name, *row in (
        ("export", "lensbox.export.cli:export", "Write a detector's files: TorchScript, ONNX, compiled."),
        ("sign", "lensbox.export.cli:sign", "Sign artifacts.", "sign"),
        ("info", "lensbox.export.cli:info", "Describe an artifact, or this installation."),
        ("detect", "lensbox.cli.detect:detect", "Detect objects in image files."),
        ("train", "lensbox.train.cli:train", "Train a face detector (in a clone).", "train"),
        ("evaluate", "lensbox.evaluation.cli:evaluate", "Score a detector on photographs.", "evaluate"),
        (
            "bench",  # only the repository has the project's own benchmarks
            "lensbox.bench.cli:bench" if find_spec("lensbox.bench") else "lensbox.cli.bench:bench",
            "Time an artifact on this machine.",
            "bench",
        ),
        ("serve", "lensbox.serve.cli:serve", "Answer detection requests over HTTP.", "serve"),
    )
}


@click.group(
    commands=COMMANDS, context_settings={"show_default": True, "help_option_names": ["-h", "--help"]}
)
@click.version_option(  # versions from the packages' metadata: importing torch is slow
    package_version("lensbox"),
    message=f"%(prog)s %(version)s (torch {package_version('torch')}, Python {platform.python_version()})",
    help="Show the versions of Lensbox, torch and Python, and exit.",
)
def lensbox() -> None:
    """The deployment bundle for detectors that depend on custom CUDA ops."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, one of `lensbox.common.errors.ExitCode`.

    arguments: without the program's name; None for the arguments of the process. Errors that a user can fix
    become one message on stderr; all others keep their traceback.
    """
    _open_closed_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = next((word for word in words if word in COMMANDS), "")
    with reporting():
        try:
            code = lensbox(args=words, prog_name="lensbox", standalone_mode=False, obj=words)
            return ExitCode.GOOD if code is None else code
        except click.Abort:  # SIGINT
            return ExitCode.INTERRUPTED
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except LensboxError as error:
            message, code = str(error), error.exit_code
        except ModuleNotFoundError as error:
            message, code = _missing_package(error, COMMANDS.get(name)), ExitCode.UNUSABLE
        except OSError as error:  # a file that cannot be read or written, a full disk
            is_whole = error.filename and error.strerror
            message = f"{error.filename}: {error.strerror}" if is_whole else str(error)
            code = ExitCode.UNUSABLE
    click.echo(f"{f'lensbox {name}'.strip()}: {message}", err=True)
    return code


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed (`>&-`), as nothing: the next files would get their
    numbers, and with these what libraries print."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        name = ("stdin", "stdout", "stderr")[number]
        setattr(sys, name, open(number, "w" if number else "r", closefd=False, encoding="utf-8"))  # noqa: SIM115
    os.close(number)


def _missing_package(error: ModuleNotFoundError, command: LazyCommand | None) -> str:
    """Return how to install what is missing. Raise the error again if it is a defect of this package."""
    package = (error.name or "").partition(".")[0]
    if (error.name or "").startswith("lensbox.train"):
        return "training is in the repository, not in the package (docs/training.md)"
    if package in ("", "lensbox"):
        raise error
    if "pip install" in str(error):
        return str(error)
    needed = f"lensbox[{command.extra}]" if command and command.extra else "lensbox"
    return f"the Python package {package!r} is not installed; install it with\n  pip install '{needed}'"
