"""ONNX files: the device, and the needed package.

`tests/runtimes/test_formats.py` has changed files.
"""

import sys
from pathlib import Path

import pytest

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
