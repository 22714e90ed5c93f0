"""The `lensbox` command."""

import importlib
import subprocess
import sys

import pytest

from lensbox.cli import dispatch, main
from lensbox.cli.commands import COMMANDS, Command


def _run_python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


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


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["unknown"], ["serve", "--help"]])
def test_answers_about_itself_do_not_import_torch(arguments: list[str]) -> None:
    result = _run_python(
        "import sys\n"
        "from lensbox.cli import main\n"
        "try:\n"
        f"    main({arguments})\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert result.returncode == 0, result.stderr


def test_without_a_command_the_usage_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: lensbox")


@pytest.mark.parametrize(("name", "kind"), [("srve", "command"), ("--prot", "option")])
def test_an_unknown_word_is_named_and_the_commands_are_listed(
    name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    message = capsys.readouterr().err
    assert f"unknown {kind} {name!r}" in message
    assert all(command in message for command in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_target_exists(name: str) -> None:
    module, _, function = COMMANDS[name].target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_rest_of_the_arguments_and_the_exit_code_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[list[str]] = []

    def command(arguments: list[str]) -> int:
        received.append(arguments)
        return 4

    monkeypatch.setattr(dispatch, "_function", lambda target: command)
    assert main(["serve", "--port", "0", "--help"]) == 4
    assert received == [["--port", "0", "--help"]]


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "python_multipart"])
def test_a_missing_package_names_the_extra(package: str) -> None:
    # None in sys.modules makes the import fail as if the package were not installed.
    result = _run_python(
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from lensbox.cli import main\n"
        "sys.exit(main(['serve', '--port', '0']))"
    )
    assert result.returncode == 3
    assert f"'{package}' is not installed" in result.stderr
    assert "pip install 'lensbox[serve]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_command_without_an_extra_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "export", Command("no_such_package.module:main", "summary"))
    assert main(["export"]) == 3
    message = capsys.readouterr().err
    assert "'no_such_package' is not installed" in message
    assert "pip install 'lensbox'" in message


def test_a_missing_module_of_this_package_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "export", Command("lensbox.export.no_such_module:main", "summary"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        main(["export"])


def test_an_interrupt_ends_with_the_shells_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatch, "_function", lambda target: interrupted)
    assert main(["serve"]) == 130


def test_runs_as_a_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "lensbox.cli", "nonsense"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert "unknown command 'nonsense'" in result.stderr
