"""Runs `lensbox <command> [options]` and returns its exit code."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import click

from lensbox.common.commands import COMMANDS
from lensbox.common.environment import warn_of_unknown_variables
from lensbox.common.errors import ExitCode
from lensbox.common.lazy_group import LazyGroup
from lensbox.common.reporting import reporting


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code, one of `lensbox.common.errors.ExitCode`.

    arguments: without the program's name; None takes those of the process. Errors that a user can mend become
    one message on stderr; all others keep their traceback.
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
        # From package metadata: importing torch is slow.
        python = platform.python_version()
        click.echo(f"lensbox {_version('lensbox')} (torch {_version('torch')}, Python {python})")
        context.exit()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


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
    if context.invoked_subcommand != "serve":  # it has a log of its own, and warns there
        warn_of_unknown_variables()
