"""The base of all commands: their options, and their reports to stderr; results go to stdout."""

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from lensbox.common.detect_options import check_device

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


class Command(click.Command):
    """A command whose repeatable options take several values, unless the command has positional arguments.

    `--data a b` is short for `--data a --data b`, so that shells can expand `--data shards/*.tar`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with the name of a repeatable option before each of its further values."""
        ctx.meta[_GIVEN] = list(args)
        repeatable = {name for parameter in self.params if parameter.multiple for name in parameter.opts}
        if any(isinstance(parameter, click.Argument) for parameter in self.params):
            repeatable.clear()
        spread: list[str] = []
        option, has_value = "", False
        for word in args:
            if word.startswith("-"):
                option, has_value = word.partition("=")[0], "=" in word
            elif has_value and option in repeatable:
                spread.append(option)
            has_value = has_value or not word.startswith("-")
            spread.append(word)
        return super().parse_args(ctx, spread)


def given_arguments() -> list[str]:
    """Return the arguments of the running command as the user typed them."""
    arguments: list[str] = click.get_current_context().meta[_GIVEN]
    return arguments


def require_at_most_one(options: Mapping[str, Any], *names: str) -> None:
    """Raise UsageError if more than one of these options is given."""
    given = [f"--{name}" for name in names if options[name] not in (None, False)]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} must not be given together")


def device_name(text: str) -> str:
    """Return the name of a device, for an option's `type`."""
    try:
        check_device(text)
    except ValueError as error:
        raise click.BadParameter(str(error).removeprefix("device ")) from error
    return text


def fraction(text: str) -> float:
    """Return a number between 0 and 1, for an option's `type`; NaN fails."""
    value = float(text)
    if not 0 <= value <= 1:
        raise click.BadParameter(f"must be between 0 and 1, got {text}")
    return value


LOG_FORMAT = "%(asctime)s %(levelname)s: %(message)s"


class _ProgressFormatter(logging.Formatter):
    """Prefix warnings and errors with their level."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {text}"


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Configure logging for a command within the context, then restore it for callers from Python."""
    root, package = logging.getLogger(), logging.getLogger("lensbox")
    handlers, root_level, package_level = root.handlers[:], root.level, package.level
    start_reporting()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(root_level)
        package.setLevel(package_level)


def start_reporting(level: int | str = logging.INFO, as_log: bool = False) -> None:
    """Log to stderr: Lensbox's records from `level` on, warnings and errors of other libraries.

    as_log: start each line with time and level, for commands that run for long.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_FORMAT) if as_log else _ProgressFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("lensbox").setLevel(level)
