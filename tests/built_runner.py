"""Where the built lensbox_runner is, for all tests of it."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def built_runner() -> Path:
    """The file that LENSBOX_RUNNER names, otherwise the one that `make runner` builds.

    Fails the test that asks for it if it is not there.
    """
    path = Path(os.environ.get("LENSBOX_RUNNER", REPOSITORY / "build" / "runner" / "lensbox_runner"))
    if not path.is_file():
        pytest.fail(f"{path} is not there: build it with `make runner`, or set LENSBOX_RUNNER")
    return path
