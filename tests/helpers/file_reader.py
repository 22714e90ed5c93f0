"""The C++ test program `read_files`, which says what comes of files and outlives all of them, or should."""

import os
import select
import subprocess
from pathlib import Path
from types import TracebackType

import pytest
from built_runner import built_runner

from lensbox.ops import library_path

_PATIENCE = 60  # seconds for one file


class FileReader:
    """The running program: LENSBOX_READ_FILES names it, else it is the one beside the built runner."""

    def __init__(self, log: Path) -> None:
        """log: where its stderr goes, with the sanitizers' reports."""
        beside = (
            built_runner().parent / "tests" / "read_files" if "LENSBOX_READ_FILES" not in os.environ else ""
        )
        program = Path(os.environ.get("LENSBOX_READ_FILES", beside))
        if not program.is_file():
            pytest.fail(f"{program} is not there: build the runner with LENSBOX_RUNTIME_TESTS=ON")
        self._log = log
        environment = {**os.environ, "LENSBOX_OPS_LIBRARY": str(library_path())}
        pipe = subprocess.PIPE
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [program], stdin=pipe, stdout=pipe, stderr=stderr, bufsize=0, env=environment
            )

    def __enter__(self) -> "FileReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the program; fails if it does not end well by itself."""
        if kind is not None:
            self._process.kill()
        self._process.communicate(timeout=_PATIENCE)
        assert kind is not None or self._process.returncode == 0, self._report()

    def outcome(self, how: str, path: Path) -> str:
        """'read' or 'refused: MESSAGE'; fails if the program ends or takes too long.

        how: one of the words that read_files.cpp explains.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{how} {path}\n".encode())
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        if not ready:
            pytest.fail(f"{how} {path}: it takes more than {_PATIENCE} s")
        line = self._process.stdout.readline().decode(errors="replace").rstrip("\n")
        if line != "read" and not line.startswith("refused: "):
            code = self._process.wait(_PATIENCE)
            pytest.fail(f"{how} {path}: the program ended with {code}\n{self._report()}")
        return line

    def _report(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]
