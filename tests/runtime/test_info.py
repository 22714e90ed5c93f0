"""The report of an installation."""

import platform
from pathlib import Path

import pytest
import torch

from lensbox.common.machine import package_version
from lensbox.ops import library_path
from lensbox.runtime.info import report


def test_the_report_names_versions_library_and_devices() -> None:
    lines = dict(report())
    assert lines["lensbox"] == package_version("lensbox")
    assert package_version("no-such-package") == "not installed"
    assert lines["Python"] == platform.python_version()
    assert lines["torch"] == torch.__version__
    assert lines["op library"] == f"{library_path()}, loaded"
    assert torch.__version__.partition("+")[0] in lines["its build"]
    assert any(name == "GPU" or name.startswith("cuda:") for name in lines)
    assert all("\n" not in line for line in lines.values())


def test_reports_a_broken_op_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "none.so"
    library.write_bytes(b"\x7fELF")
    monkeypatch.setenv("LENSBOX_OPS_LIBRARY", str(library))
    lines = dict(report())
    assert lines["op library"].startswith(f"cannot be used: {library} is not a lensbox op library")
    assert lines["LENSBOX_OPS_LIBRARY"] == str(library)
    assert lines["torch"] == torch.__version__
