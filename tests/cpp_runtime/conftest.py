"""The built lensbox_runner, and artifacts for it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from altered_packages import Values, with_metadata
from built_runner import built_runner
from cpp_runtime.running import Completed, Rewrite, Run, Start
from damaged_files import rewritten
from small_detectors import save_random_artifact

from lensbox.ops import library_path

OPS_LIBRARY = library_path()


@pytest.fixture(scope="session")
def runner() -> Path:
    """The program."""
    return built_runner()


@pytest.fixture(scope="session")
def run(runner: Path) -> Run:
    """Runs the program. `ops` is the value of LENSBOX_OPS_LIBRARY, None for a process without it."""

    def run_program(
        *arguments: str | Path, ops: str | Path | None = OPS_LIBRARY, stdin: str = "", program: Path = runner
    ) -> Completed:
        environment = {key: value for key, value in os.environ.items() if key != "LENSBOX_OPS_LIBRARY"}
        if ops is not None:
            environment["LENSBOX_OPS_LIBRARY"] = str(ops)
        process = subprocess.run(
            [program, *arguments], input=stdin, capture_output=True, text=True, env=environment, check=False
        )
        return Completed(process.returncode, process.stdout, process.stderr)

    return run_program


@pytest.fixture(scope="session")
def start(runner: Path) -> Start:
    """Start the program. Streams that are not given are pipes of bytes. The end of the block kills it."""

    @contextmanager
    def start_program(*arguments: str | Path, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
        environment = {**os.environ, "LENSBOX_OPS_LIBRARY": str(OPS_LIBRARY)}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen([runner, *arguments], env=environment, **{**streams, **options}) as process:
            try:
                yield process
            finally:
                process.kill()

    return start_program


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_artifact(tmp_path_factory.mktemp("artifact"))


@pytest.fixture
def rewrite(artifact: Path, tmp_path: Path) -> Rewrite:
    """Makes a copy of the artifact whose lensbox.json went through a function that changes it in place."""

    def rewrite_metadata(change: Callable[[Values], object]) -> Path:
        path = tmp_path / "rewritten.pt"
        path.write_bytes(rewritten(artifact.read_bytes(), with_metadata(change)))
        return path

    return rewrite_metadata
