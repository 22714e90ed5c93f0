"""ONNX files: the device, the needed package, and no reports to onnxruntime's maker.

`tests/runtimes/test_formats.py` has changed files.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from programs import built_runner

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime import load_artifact


def test_another_device(onnx_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"device must be cpu for an ONNX file, got cuda:0 for .*\.onnx"):
        load_artifact(onnx_path, "cuda:0")
    assert load_artifact(onnx_path, "auto").device.type == "cpu"


def test_a_missing_package_is_named(onnx_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ArtifactError, match=r"onnx is .*onnxruntime: pip install 'lensbox\[onnx\]'"):
        load_artifact(onnx_path)


@pytest.mark.parametrize("is_runner", [False, pytest.param(True, marks=pytest.mark.onnx_runner)])
def test_reports_nothing_to_onnxruntimes_maker(onnx_path: Path, tmp_path: Path, is_runner: bool) -> None:
    load = "import sys; from lensbox.runtime import load_artifact; load_artifact(sys.argv[1])"
    program = [built_runner(), "selftest", "--artifact"] if is_runner else [sys.executable, "-c", load]
    # onnxruntime keeps an ID of the machine in HOME. Where CI is set, it reports nothing: CI is not passed.
    subprocess.run([*program, onnx_path], env={"HOME": str(tmp_path)}, check=True)
    assert not [*tmp_path.iterdir()]
