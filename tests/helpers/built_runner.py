"""The built lensbox_runner, and programs for tests that build."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def built_runner() -> Path:
    """Return the runner in LENSBOX_RUNNER, or the runner of `make runner`. Fail the test if it is missing."""
    path = Path(os.environ.get("LENSBOX_RUNNER", REPOSITORY / "build" / "runner" / "lensbox_runner"))
    if not path.is_file():
        pytest.fail(f"{path} is missing: build it with `make runner`, or set LENSBOX_RUNNER")
    return path


@functools.cache
def runner_onnxruntime() -> str | None:
    """Return the version of onnxruntime in the built runner; None if it has none."""
    line = subprocess.run([built_runner(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r", onnxruntime (\S+)\)$", line)
    return None if found is None else found[1]


def path_with_build_tools() -> str:
    """Return a PATH with the programs of this Python's environment before the machine's."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
