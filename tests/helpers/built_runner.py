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
    """The file that LENSBOX_RUNNER names, otherwise the one that `make runner` builds.

    Fails the test that asks for it if it is not there.
    """
    path = Path(os.environ.get("LENSBOX_RUNNER", REPOSITORY / "build" / "runner" / "lensbox_runner"))
    if not path.is_file():
        pytest.fail(f"{path} is not there: build it with `make runner`, or set LENSBOX_RUNNER")
    return path


@functools.cache
def runner_onnxruntime() -> str | None:
    """The version of onnxruntime with which the built runner takes ONNX files; None if it takes none."""
    line = subprocess.run([built_runner(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r", onnxruntime (\S+)\)$", line)
    return None if found is None else found[1]


def path_with_build_tools() -> str:
    """A PATH on which they are: first of this Python's environment, then of the machine."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
