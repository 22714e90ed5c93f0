"""A click group whose commands are imported when they run: `lensbox --help` must not wait for torch."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from lensbox.common.command import CommandError
from lensbox.common.commands import LazyCommand
from lensbox.common.errors import ExitCode


class LazyGroup(click.Group):
    """commands_by_name: the table of commands; help shows their summaries without importing them."""

    def __init__(self, *args: Any, commands_by_name: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module."""
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
        """The command that the arguments name. Raises UsageError, with the name that may be meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self._lazy, 1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise self._missing_package(str(ctx.invoked_subcommand), error) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table's summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self._lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, and the group's own options."""
        names = [
            CompletionItem(name, help=command.summary)
            for name, command in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def _missing_package(self, command: str, error: ModuleNotFoundError) -> Exception:
        package = (error.name or "").partition(".")[0]
        if package in ("", "lensbox"):
            return error  # a defect of this package, not of the installation
        extra = self._lazy[command].extra
        requirement = f"lensbox[{extra}]" if extra else "lensbox"
        message = (
            f"the Python package {package!r} is not installed; install it with\n  pip install '{requirement}'"
        )
        return CommandError(f"lensbox {command}", message, ExitCode.UNUSABLE)
