"""The `lensbox` command."""

import importlib.metadata
import logging

import click
import pytest
from programs import run_python

from lensbox.common.command import Command, seconds, spread
from lensbox.common.errors import ArtifactError, DeviceError, ExitCode, InputError
from lensbox.common.main import COMMANDS, LazyCommand, main


def _replace_export(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> None:
    """Make `lensbox export` run another command."""
    monkeypatch.setattr("lensbox.export.cli.export", command)


def _raising(error: BaseException) -> click.Command:
    @click.command(cls=Command)
    def export() -> None:
        raise error

    return export


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_every_command(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    output = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name} " in output
        assert command.summary in output


def test_version_names_the_package_and_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    words = capsys.readouterr().out.split()
    assert words[0] == "lensbox"
    assert words[1] == importlib.metadata.version("lensbox")
    assert importlib.metadata.version("torch") in " ".join(words)


def test_help_and_version_do_not_import_torch() -> None:
    lines = [["--help"], ["--version"], ["unknown"], *([name, "--help"] for name in COMMANDS)]
    run_python(
        "-c",
        "import sys\n"
        "from lensbox.common.main import main\n"
        f"codes = [main(line) for line in {lines}]\n"
        "assert codes == [0, 0, 2] + [0] * len(codes[3:]), codes\n"
        "sys.exit('torch' in sys.modules)",
    )


def test_without_a_command_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Usage: lensbox")


@pytest.mark.parametrize(
    ("name", "message"),
    [("srve", "No such command 'srve'. Did you mean 'serve'?"), ("--prot", "No such option '--prot'")],
)
def test_names_an_unknown_command_or_option(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_target_is_a_command_whose_options_have_help(name: str) -> None:
    module, _, attribute = COMMANDS[name].target.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    leaves = command.commands.values() if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        assert isinstance(leaf, Command)
        assert leaf.help
        options = [parameter for parameter in leaf.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if not option.help] == []


def test_a_missing_package_names_the_extra() -> None:
    # None in sys.modules makes the import fail as if the package were not installed.
    result = run_python(
        "-c",
        "import sys\n"
        "sys.modules['uvicorn'] = None\n"
        "from lensbox.common.main import main\n"
        f"sys.exit(main(['serve', '--artifact', {__file__!r}, '--port', '0']))",
        code=3,
    )
    assert "'uvicorn' is not installed" in result.stderr
    assert "pip install 'lensbox[serve]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_command_without_an_extra_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "export", LazyCommand("no_such_package.module:export", "summary"))
    assert main(["export"]) == 3
    message = capsys.readouterr().err
    assert "'no_such_package' is not installed" in message
    assert "pip install 'lensbox'" in message


def test_a_missing_module_of_this_package_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "export", LazyCommand("lensbox.export.no_such_module:export", "summary"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        main(["export"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("boxes must be [N, 4], got [3]"), ExitCode.BAD_INPUT),
        (ArtifactError("it is damaged"), ExitCode.UNUSABLE),
        (DeviceError("there is no GPU"), ExitCode.USAGE),
        (OSError(28, "No space left on device"), ExitCode.UNUSABLE),
    ],
)
def test_errors_that_a_user_can_fix_are_one_message(
    error: Exception, code: ExitCode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _replace_export(monkeypatch, _raising(error))
    assert main(["export"]) == code
    assert capsys.readouterr().err == f"lensbox export: {error}\n"


def test_other_errors_keep_their_traceback_and_an_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _replace_export(monkeypatch, _raising(RuntimeError("CUDA out of memory")))
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        main(["export"])
    _replace_export(monkeypatch, _raising(KeyboardInterrupt()))
    assert main(["export"]) == 130


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("--data a b c --out x", "--data a --data b --data c --out x"),
        ("--data=a b --quick --data c", "--data=a --data b --quick --data c"),
        ("--out x y", "--out x y"),
        ("--data a --out - --data b", "--data a --out - --data b"),
    ],
)
def test_a_repeatable_option_takes_several_values(given: str, read: str) -> None:
    assert spread(given.split(), {"--data"}) == read.split()


def test_an_argument_after_a_repeatable_option_stays_an_argument() -> None:
    command = Command("x", params=[click.Argument(["file"]), click.Option(["--ops"], multiple=True)])
    context = command.make_context("x", ["--ops", "a.so", "photo.jpg"])
    assert context.params == {"file": "photo.jpg", "ops": ("a.so",)}


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
def test_rejects_infinite_times(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"at least 0, got {text}"):
        seconds(text)


def test_logs_to_stderr_with_the_level_of_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command(cls=Command)
    def export() -> None:
        logging.getLogger("lensbox.export").info("half done")
        logging.getLogger("lensbox.export").warning("odd weights")
        logging.getLogger("torch").info("not for the user")
        click.echo("the result")

    _replace_export(monkeypatch, export)
    assert main(["export"]) == 0
    assert capsys.readouterr() == ("the result\n", "half done\nwarning: odd weights\n")
