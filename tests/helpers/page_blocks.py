"""Code blocks of a page, and a shell that runs them as the page's reader does."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

from programs import REPOSITORY, built_runner, path_with_build_tools, run
from serve_process import ServeProcess

ADDRESS = "http://127.0.0.1:8000"


class Block(NamedTuple):
    """A block between ``` and ```: its language and its text."""

    language: str
    text: str


def read_blocks(page: str, section: str = "") -> list[Block]:
    """Return the blocks of a page, named by its path in the repository, or of one of its sections."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def commands(console: str) -> list[tuple[str, str]]:
    """Return each command of a console block with the output that is shown."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE)


class Shell:
    """A shell in a folder like a clone, with `lensbox` and the runner; it keeps variables and `cd`.

    url: of the service that stands for ADDRESS. `lensbox serve` sets it.
    """

    def __init__(self, folder: Path, url: str = ADDRESS) -> None:
        self.folder, self.url = folder, url
        self._server: ServeProcess | None = None
        (folder / "build").mkdir()
        (folder / "build" / "runner").symlink_to(built_runner().parent)
        path = os.pathsep.join([str(built_runner().parent), path_with_build_tools()])
        # The page's reader has not set LENSBOX_RUNNER.
        self._environment = {"PATH": path, "PYTHONUNBUFFERED": "1", "LENSBOX_RUNNER": ""}

    def run(self, command: str, code: int | None = 0) -> str:
        """Run a command and return its output, errors included, without the paths of this machine."""
        if command.startswith("lensbox serve"):
            return self._serve(shlex.split(command)[-1])
        if change := re.fullmatch(r"cd (\S+)", command):
            self.folder /= change[1]
            return ""
        if export := re.fullmatch(r'export (\w+)="(.*)"', command):
            self._environment[export[1]] = self.run(f'echo "{export[2]}"').strip()
            return ""
        command = command.replace(ADDRESS, self.url).replace(ADDRESS[7:], self.url[7:])
        done = run(
            "bash", "-c", command, cwd=self.folder, env=self._environment, stderr=subprocess.STDOUT, code=code
        )
        return self._without_paths(done.stdout)

    def _serve(self, artifact: str) -> str:
        self._server = ServeProcess(self.folder / artifact)
        self.url = self._server.ready()
        return self._without_paths(self._server.log)

    def _without_paths(self, text: str) -> str:
        return re.sub(rf"({re.escape(str(self.folder))}|\S*(?=/model/weights))/", "", text)

    def close(self) -> None:
        """Kill the service."""
        if self._server is not None:
            self._server.close()
