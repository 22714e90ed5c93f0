"""`lensbox info`: the report of an installation, and the description of each format."""

import json
import platform
from pathlib import Path

import pytest
import torch

from lensbox.cli.main import main
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


def described(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["info", str(path)]) == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["file"] == f"{path}, {path.stat().st_size} bytes"
    return lines


def test_describes_a_file(
    colors_path: Path, onnx_path: Path, program_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = described(colors_path, capsys)
    assert lines["format"] == "TorchScript, metadata of format 2"
    assert lines["detector"] == "red_and_blue"
    assert lines["canvas"] == "320 x 192, RGB, letterbox, bilinear"
    assert lines["classes"] == "2: red, blue"
    assert lines["thresholds"] == "score 0.4, IoU 0.3"
    assert described(onnx_path, capsys)["format"] == "ONNX (only detect), metadata of format 2"
    assert described(program_path, capsys)["format"].startswith("Exported program (detect and loss)")


def test_prints_the_metadata(
    artifact_path: Path, onnx_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for path in (artifact_path, onnx_path):
        assert main(["info", "--json", str(path)]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert found[0]["self_test"]["image"] == found[1]["self_test"]["image"]


def test_reports_the_installation_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert "torch: " in capsys.readouterr().out
    assert main(["info", "--json"]) == 2
