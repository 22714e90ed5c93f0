"""Finds the function of a command and calls it.

A command's module is imported only when that command runs: `lensbox --help` must not wait for torch.
"""

import importlib
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from lensbox.cli.commands import COMMANDS, Command

EXIT_GOOD = 0
EXIT_USAGE = 2
EXIT_UNUSABLE = 3  # as in the C++ runner: something needed to run is missing
EXIT_INTERRUPTED = 130  # 128 + SIGINT, the shells' convention


def main(arguments: list[str] | None = None) -> int:
    """Runs `lensbox <command> [options]` and returns its exit code.

    arguments: without the program's name; None takes those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print(help_text(), file=sys.stderr)
        return EXIT_USAGE
    name, rest = arguments[0], arguments[1:]
    if name in ("-h", "--help"):
        print(help_text())
        return EXIT_GOOD
    if name == "--version":
        print(version_text())
        return EXIT_GOOD
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        print(f"lensbox: unknown {kind} {name!r}\n\n{help_text()}", file=sys.stderr)
        return EXIT_USAGE
    return _run(name, COMMANDS[name], rest)


def help_text() -> str:
    """Usage and the list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: lensbox [--help] [--version] <command> [options]",
            "",
            "commands:",
            *lines,
            "",
            "`lensbox <command> --help` lists the options of a command.",
        ]
    )


def version_text() -> str:
    """Versions of Lensbox, torch and Python, read from package metadata: importing torch is slow."""
    return f"lensbox {_version('lensbox')} (torch {_version('torch')}, Python {platform.python_version()})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _run(name: str, command: Command, arguments: list[str]) -> int:
    try:
        return _function(command.target)(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "lensbox"):
            raise  # a defect of this package, not of the installation
        print(_missing_package_text(name, command, missing), file=sys.stderr)
        return EXIT_UNUSABLE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _function(target: str) -> Callable[[list[str]], int]:
    module, _, function = target.partition(":")
    found: Callable[[list[str]], int] = getattr(importlib.import_module(module), function)
    return found


def _missing_package_text(name: str, command: Command, package: str) -> str:
    requirement = f"lensbox[{command.extra}]" if command.extra else "lensbox"
    return (
        f"lensbox {name}: the Python package {package!r} is not installed; install it with\n"
        f"  pip install '{requirement}'"
    )
