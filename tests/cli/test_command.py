"""The base of all commands: options with several values, numbers, and logs on stderr."""

import logging

import click
import pytest

from lensbox.cli.command import Command, reporting


@pytest.mark.parametrize(
    ("given", "data", "out"),
    [("--data a b c --out x", "abc", "x"), ("--data=a b --quick --data c", "abc", None)],
)
def test_a_repeatable_option_takes_several_values(given: str, data: str, out: str | None) -> None:
    options = [click.Option(["--data"], multiple=True), click.Option(["--out"])]
    command = Command("x", params=[*options, click.Option(["--quick"], is_flag=True)])
    found = command.make_context("x", given.split()).params
    assert (found["data"], found["out"]) == (tuple(data), out)


def test_an_argument_after_a_repeatable_option_stays_an_argument() -> None:
    command = Command("x", params=[click.Argument(["file"]), click.Option(["--ops"], multiple=True)])
    context = command.make_context("x", ["--ops", "a.so", "photo.jpg"])
    assert context.params == {"file": "photo.jpg", "ops": ("a.so",)}


def test_logs_to_stderr_with_the_level_of_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:], logging.getLogger("lensbox").level
    with reporting():
        logging.getLogger("lensbox.export").info("half done")
        logging.getLogger("lensbox.export").warning("odd weights")
        logging.getLogger("torch").info("not for the user")
    assert capsys.readouterr() == ("", "half done\nwarning: odd weights\n")
    assert before == (logging.getLogger().handlers, logging.getLogger("lensbox").level)
