"""The base of all commands and their options."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import click

from lensbox.common.errors import ExitCode, LensboxError

# readable=False: click would report a file without permission as wrong usage; the command reports it better.
FILE = click.Path(path_type=Path, readable=False)

# The option of every command that loads an artifact.
OPS = click.option(
    "--ops",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Shared library with operators of the detector, loaded before the detector. Its code runs with all "
    "your rights. May be repeated.",
)

_GIVEN = "lensbox.given_arguments"


class CommandError(click.ClickException):
    """An error that ends a command with one message, which begins with the command's name."""

    def __init__(self, command: str, message: str, exit_code: ExitCode) -> None:
        super().__init__(f"{command}: {message}")
        self.exit_code = exit_code  # type: ignore[misc]  # (click declares it for classes)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message to stderr, or to `file`."""
        click.echo(self.message, file=file, err=file is None)


class Command(click.Command):
    """A command whose help shows defaults, and whose repeatable options take several values.

    `--data a b` is short for `--data a --data b`, so that shells can expand `--data shards/*.tar`. A command
    with positional arguments takes one value at a time.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = {"show_default": True, "help_option_names": ["-h", "--help"]}
        super().__init__(*args, **{"context_settings": settings, **kwargs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, after `spread`."""
        ctx.meta[_GIVEN] = list(args)
        repeatable = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.multiple
            for name in parameter.opts
        }
        if any(isinstance(parameter, click.Argument) for parameter in self.params):
            repeatable = set()
        try:
            return super().parse_args(ctx, spread(args, repeatable))
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            message = f"{error.message}: each value follows its option{self._such_as()}"
            raise click.UsageError(message, ctx) from error

    def _such_as(self) -> str:
        """Return a hint that names the option which was probably forgotten."""
        names = {name for parameter in self.params for name in parameter.opts}
        meant = next((name for name in ("--artifact", "--data", "--output") if name in names), None)
        return f", such as {meant}" if meant else ""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Convert errors that the user can fix to CommandError; raise all others."""
        try:
            return super().invoke(ctx)
        except LensboxError as error:
            raise CommandError(ctx.command_path, str(error), error.exit_code) from error
        except OSError as error:  # a file that cannot be read or written, a full disk
            has_both = error.filename and error.strerror
            message = f"{error.filename}: {error.strerror}" if has_both else str(error)
            raise CommandError(ctx.command_path, message, ExitCode.UNUSABLE) from error


def spread(arguments: Sequence[str], repeatable: set[str]) -> list[str]:
    """Insert the name of a repeatable option before each of its further values."""
    spread_out: list[str] = []
    option, has_value = "", False
    for argument in arguments:
        if argument.startswith("-"):
            option, has_value = argument.partition("=")[0], "=" in argument
        elif option in repeatable and has_value:
            spread_out.append(option)
        else:
            has_value = True
        spread_out.append(argument)
    return spread_out


def given_arguments() -> list[str]:
    """Return the arguments of the running command as the user typed them."""
    arguments: list[str] = click.get_current_context().meta[_GIVEN]
    return arguments


def require_at_most_one(options: Mapping[str, Any], *names: str) -> None:
    """Raise UsageError if more than one of these options is given."""
    given = [f"--{name}" for name in names if options[name] not in (None, False)]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} must not be given together")


def require_runner(program: Path | None) -> None:
    """Raise UsageError if `--runner` is given and is not an executable program."""
    if program is not None and not (program.is_file() and os.access(program, os.X_OK)):
        raise click.UsageError(
            f"--runner, or LENSBOX_RUNNER, must be the program lensbox_runner, got {program}"
        )


def seconds(text: str) -> float:
    """Return a finite time of at least 0, for an option's `type`."""
    value = float(text)
    if not 0 <= value < math.inf:  # written so that NaN fails
        raise click.BadParameter(f"must be finite and at least 0, got {text}")
    return value


def fraction(text: str) -> float:
    """Return a number between 0 and 1, for an option's `type`."""
    value = float(text)
    if not 0 <= value <= 1:
        raise click.BadParameter(f"must be between 0 and 1, got {text}")
    return value
