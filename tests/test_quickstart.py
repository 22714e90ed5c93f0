"""The blocks of docs/quickstart.md, run from first to last in a folder that looks like a clone."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest
from built_runner import built_runner, path_with_build_tools
from page_blocks import REPOSITORY, assert_prints, commands, read_blocks
from programs import run
from serve_process import ServeProcess

BLOCKS = read_blocks("docs/quickstart.md")
SETUP, *STEPS = BLOCKS
SERVE = "lensbox serve --artifact mine.pt"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the examples, the runner, and `lensbox` as a command."""
    clone = tmp_path_factory.mktemp("clone")
    shutil.copytree(REPOSITORY / "examples", clone / "examples", ignore=shutil.ignore_patterns("build"))
    (clone / "build").mkdir()
    (clone / "build" / "runner").symlink_to(built_runner().parent)
    command = clone / "bin" / "lensbox"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lensbox.common "$@"\n')
    command.chmod(0o755)
    return clone


class Shell:
    """A shell that keeps exported variables between commands."""

    def __init__(self, clone: Path) -> None:
        self.clone = clone
        path = f"{clone / 'bin'}{os.pathsep}{path_with_build_tools()}"
        # The page's reader has not set LENSBOX_RUNNER.
        self.environment = {"PATH": path, "PYTHONUNBUFFERED": "1", "LENSBOX_RUNNER": ""}
        self.server: ServeProcess | None = None

    def run(self, command: str) -> str:
        """Run a command and return its output, errors included, without the paths of this machine."""
        if command == SERVE:
            return self._serve()
        if export := re.fullmatch(r'export (\w+)="(.*)"', command):
            self.environment[export[1]] = self._output(f'echo "{export[2]}"').strip()
            return ""
        if self.server is not None:
            command = command.replace("http://127.0.0.1:8000", str(self.server.url()))
            command = command.replace("call_service.py", f"call_service.py --url {self.server.url()}")
        # Two steps show what twenty do.
        return self._output(command.replace("curl ", "curl -s ").replace("train.py ", "train.py --steps 2 "))

    def _output(self, command: str) -> str:
        ended = run("bash", "-c", command, cwd=self.clone, env=self.environment, stderr=subprocess.STDOUT)
        return self._without_paths(ended.stdout)

    def _serve(self) -> str:
        self.server = ServeProcess(self.clone / "mine.pt")
        self.server.ready()
        return self._without_paths(self.server.log)

    def _without_paths(self, text: str) -> str:
        return re.sub(rf"({re.escape(str(self.clone))}|\S*(?=/model/weights))/", "", text)


@pytest.fixture(scope="module")
def shell(clone: Path) -> Iterator[Shell]:
    shell = Shell(clone)
    yield shell
    if shell.server is not None:
        shell.server.close()


def test_make_target_of_the_page_exists() -> None:
    make, activate, extras = SETUP.text.splitlines()
    assert (make, activate) == ("make demo", "source .venv/bin/activate")
    (names,) = re.findall(r"pip install 'lensbox\[(.*)\]'", extras)
    assert set(names.split(",")) <= set(metadata("lensbox").get_all("Provides-Extra") or ())
    subprocess.run(["make", "--dry-run", "demo"], cwd=REPOSITORY, check=True, capture_output=True)


def test_runs_every_block() -> None:
    assert {block.language for block in STEPS} == {"console", "python", "text"}
    assert sum(len(commands(block.text)) for block in STEPS if block.language == "console") >= 10


def test_commands_print_the_output_of_the_page(shell: Shell) -> None:
    """Run all steps in one test, as each step needs the one before."""
    for block, following in zip(STEPS, [*STEPS[1:], None], strict=True):
        if block.language == "python":
            (shell.clone / "block.py").write_text(block.text)
            assert following is not None
            assert_prints(shell.run("python block.py"), following.text)
        elif block.language == "console":
            for command, shown in commands(block.text):
                assert_prints(shell.run(command), shown)
