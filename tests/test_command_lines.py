"""Every `lensbox COMMAND` on a page exists, and so do its options."""

import importlib
import re
from pathlib import Path

import click
import pytest
from test_documents import REPOSITORY, pages

from lensbox.common.main import COMMANDS

# A command ends with its line, with its piece of code, or before the next program.
_LINE = re.compile(r"\blensbox (?P<name>(?:bench )?[a-z]+)(?P<rest>[^\n`|;]*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def _commands() -> dict[str, set[str]]:
    """Return the options of each command by its name, such as "bench ops"."""
    found: dict[str, click.Command] = {}
    for name, lazy in COMMANDS.items():
        module, _, attribute = lazy.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {below}": inner for below, inner in command.commands.items()}
    return {
        name: {"--help", *(option for one in command.params for option in (*one.opts, *one.secondary_opts))}
        for name, command in found.items()
    }


OPTIONS = _commands()


def command_lines(page: Path) -> list[tuple[str, list[str]]]:
    """Return the names of commands on a page with the options behind them."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    found = ((line["name"], _OPTION.findall(line["rest"])) for line in _LINE.finditer(text))
    return [(name, options) for name, options in found if options]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_and_options_exist(page: Path) -> None:
    wrong = [
        f"lensbox {name} {option}"
        for name, options in command_lines(page)
        for option in options
        if option not in OPTIONS.get(name, set())
    ]
    assert not wrong


def test_finds_command_lines() -> None:
    assert sum(len(options) for page in pages() for _, options in command_lines(page)) > 100
