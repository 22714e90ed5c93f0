"""The `lensbox` command."""

import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

import click
import pytest
from PIL import Image
from programs import Lensbox, run, run_lensbox, run_python, unprivileged

from lensbox.cli.command import Command
from lensbox.cli.main import COMMANDS, LazyCommand, main
from lensbox.common.errors import ArtifactError, DeviceError, ExitCode, InputError
from lensbox.model.weights_file import SHIPPED_WEIGHTS


def let_export_raise(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command(cls=Command)
    def export() -> None:
        raise error

    monkeypatch.setattr("lensbox.export.cli.export", export)


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], []])
def test_help_lists_every_command(arguments: list[str], lensbox: Lensbox) -> None:
    texts = lensbox(*arguments, code=0 if arguments else ExitCode.USAGE)
    assert all(f"  {name} " in texts[0 if arguments else 1] for name in COMMANDS)


def test_version_names_the_package_and_torch(lensbox: Lensbox) -> None:
    own, torchs = (importlib.metadata.version(name) for name in ("lensbox", "torch"))
    assert lensbox("--version")[0].startswith(f"lensbox {own} (torch {torchs}, Python ")


def test_help_and_version_do_not_import_torch() -> None:
    lines = [["--help"], ["--version"], ["unknown"], *([name, "--help"] for name in COMMANDS)]
    run_python(
        "-c",
        "import sys\n"
        "from lensbox.cli.main import main\n"
        f"codes = [main(line) for line in {lines}]\n"
        "assert codes == [0, 0, 2] + [0] * len(codes[3:]), codes\n"
        "sys.exit('torch' in sys.modules)",
    )


def test_tab_completes_commands_and_options() -> None:
    for words, completed in (("lensbox exp", "plain,export"), ("lensbox export --form", "plain,--format")):
        variables = {
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
            "_LENSBOX_COMPLETE": "bash_complete",
        }
        assert run_lensbox(env=variables).stdout.splitlines() == [completed]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    command = COMMANDS[name].load()
    leaves = command.commands.values() if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        assert leaf.help
        options = [parameter for parameter in leaf.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize(("extra", "requirement"), [("serve", "lensbox[serve]"), ("", "lensbox")])
@pytest.mark.parametrize("is_imported", [False, True])
def test_a_missing_package_names_the_extra(
    extra: str, requirement: str, is_imported: bool, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    target = "lensbox.export.cli:export" if is_imported else "no_such_package.module:export"
    let_export_raise(ModuleNotFoundError("no", name="no_such_package.module"), monkeypatch)
    monkeypatch.setitem(COMMANDS, "export", LazyCommand("export", target, "summary", extra))
    _, said = lensbox("export", code=ExitCode.UNUSABLE)
    assert "'no_such_package' is not installed" in said
    assert f"pip install '{requirement}'" in said


def test_a_missing_module_of_this_package_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "export", LazyCommand("export", "lensbox.export.no_such_module:export", ""))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        main(["export"])


def test_closed_standard_streams_hold_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "lensbox.cli", "detect", "none.jpg"]
    run("sh", "-c", 'exec "$@" >&- 2>&-', "sh", *words, cwd=tmp_path, code=ExitCode.BAD_INPUT)


def test_an_empty_name_is_not_the_current_folder(lensbox: Lensbox) -> None:
    for words in (["detect", ""], ["info", ""], ["evaluate", "--data", ""]):
        assert "must name a file or a folder, got ''" in lensbox(*words, code=ExitCode.USAGE)[1]


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
    error: Exception, code: ExitCode, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    let_export_raise(error, monkeypatch)
    assert lensbox("export", code=code) == ("", f"lensbox export: {error}\n")


def test_other_errors_keep_their_traceback_and_an_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_export_raise(RuntimeError("CUDA out of memory"), monkeypatch)
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        main(["export"])
    let_export_raise(KeyboardInterrupt(), monkeypatch)
    assert main(["export"]) == 130


@pytest.mark.parametrize(
    ("command", "code", "part"),
    [
        ("srve", 2, "No such command 'srve'. Did you mean 'serve'?"),
        ("detect nofile.jpg --artifact none.pt", 4, "there is no file nofile.jpg in "),  # loads no detector
        ("train --data photos", 4, "examples/train.py"),
        ("train --data boxes.csv", 4, "boxes.csv"),
        (f"evaluate --data photos --artifact {SHIPPED_WEIGHTS}", 3, "lensbox export --weights"),
        (f"export --weights {__file__}", 4, "test_main.py"),
        ("export --output /proc/detector.pt", 2, "/proc/detector.pt"),
        ("export --model my_detector.py:make", 2, "without .py"),
    ],
)
def test_names_the_mistake(
    command: str, code: int, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "boxes.csv").write_text("file,x1,y1,x2,y2\n")
    (tmp_path / "my_detector.py").write_text("def make():\n    pass\n")
    assert part in lensbox(*command.split(), code=code)[1]


# Run a command whose files nobody may read; root must have given up its rights before.
_PROGRAM = (
    "import sys; from lensbox.cli.main import main\n"
    "sys.exit([main(line.split()) for line in sys.argv[1:]] != {codes})"
)


def test_messages_say_that_a_file_may_not_be_read(tmp_path: Path, artifact_path: Path) -> None:
    photo, locked = tmp_path / "photo.jpg", tmp_path / "locked"
    Image.new("RGB", (64, 64)).save(photo)
    for path in (locked, tmp_path / "locked.jpg"):
        shutil.copy(photo, path)
        path.chmod(0)
    lines = {
        f"detect {locked}.jpg {photo} --artifact {artifact_path}": 4,
        f"detect {photo} --artifact {locked}": 3,
        f"info {locked}": 3,
        f"export --weights {locked} --output {locked}.new": 4,
    }
    program = _PROGRAM.format(codes=list(lines.values()))
    done = run(*unprivileged(sys.executable, "-c", program, *lines))
    assert done.stderr.count("cannot be read: Permission denied") == len(lines)
    assert "Errno" not in done.stderr
    assert [("error" in json.loads(line)) for line in done.stdout.splitlines()] == [True, False]
