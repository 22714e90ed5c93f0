"""The report of an installation, whole and broken."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lensbox.common.machine import package_version
from lensbox.ops import library_path
from lensbox.runtime import supported
from lensbox.runtime.report import report


def test_the_report_names_versions_library_and_devices() -> None:
    lines = dict(report())
    assert lines["lensbox"] == package_version("lensbox")
    assert lines["Python"] == platform.python_version()
    assert lines["torch"] == torch.__version__
    assert lines["op library"] == f"{library_path()}, loaded"
    assert torch.__version__.partition("+")[0] in lines["its build"]
    assert any(name == "GPU" or name.startswith("cuda:") for name in lines)
    assert all("\n" not in line for line in lines.values())


def test_a_broken_op_library_is_a_line_of_the_report(tmp_path: Path) -> None:
    library = tmp_path / "none.so"
    library.write_bytes(b"\x7fELF")
    run = subprocess.run(
        [sys.executable, "-m", "lensbox.common", "info"],
        env=os.environ | {"LENSBOX_OPS_LIBRARY": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = dict(line.split(": ", 1) for line in run.stdout.splitlines())
    assert lines["op library"].startswith(f"cannot be used: {library} is not a lensbox op library")
    assert lines["LENSBOX_OPS_LIBRARY"] == str(library)
    assert lines["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("name", "found"), [("torch", "2.10.1+cu126"), ("torch", "3.0.0"), ("python", "3.14.0")]
)
def test_versions_outside_of_the_bounds_are_said_to_be(name: str, found: str) -> None:
    assert supported.verdict(name, found).startswith(f"{found}, NOT SUPPORTED: it must be at least ")


def test_versions_within_the_bounds_are_shown_as_they_are() -> None:
    assert supported.verdict("torch", "2.13.0+cpu") == "2.13.0+cpu"


def test_a_missing_package_is_said_to_be_missing() -> None:
    assert package_version("no-such-package") == "not installed"
